// @ts-check
import { get, post } from "../core/api.js";
import { clock, duration, number, plural } from "../core/format.js";
import { html } from "../core/html.js";
import { useData } from "../core/use_data.js";
import { Ago, Panel, Problem } from "../parts/basics.js";
import { Shape } from "../parts/icons.js";
import { beginOf, Json } from "../parts/json_view.js";
import { PayloadForm } from "../parts/payload_form.js";
import { useEffect, useRef, useState } from "../vendor/hooks.js";

const PART = 200;
const MAX_READ = 2_000;
const DRAWN = 20;
const PREVIEW = 160;

/**
 * The messages of a run, and the form that sends one: nothing if there is neither.
 * @param {{ run: any, changes: number, onError: (error: any) => void }} props `changes`: another number whenever the run has changed.
 */
export function Inbox({ run, changes, onError }) {
  const { data: jobs } = useData(run.isTerminal ? null : "jobs", {}, 1e9);
  const taken = jobs?.find((/** @type {any} */ job) => job.jobName === run.jobName)?.messages ?? {};
  const isTaking = Object.keys(taken).length > 0;
  const { messages, isMore, error, reload } = useMessages(run.id, isTaking);
  const [drawn, setDrawn] = useState(DRAWN);
  const [open, setOpen] = useState("");
  useEffect(() => void (changes > 0 && reload()), [changes]);
  if (messages.length === 0 && !isTaking) return null;
  const unread = messages.filter(({ status }) => status === "unread");
  // The next to be received, then the one received last.
  const ordered = [...unread, ...messages.filter(({ status }) => status !== "unread").reverse()];
  const words = [
    `${number(unread.length)} unread`,
    ...["received", "closed"].map((status) => [status, messages.filter((each) => each.status === status).length])
      .filter((
        [, count],
      ) => count !== 0).map(([status, count]) => `${number(Number(count))} ${status}`),
  ].join(", ");
  return html`
    <${Panel} title="Inbox" aside=${isMore ? `of the first ${number(messages.length)}: ${words}` : words}>
      <${Problem} error=${error} />${messages.length === 0 &&
        html`<p class="pad muted small">No message was sent to this run.</p>`}<ul class="waits inbox">${ordered.slice(
          0,
          drawn,
        ).map((message) =>
          html`
            <${Message} key=${message.id} message=${message} isOpen=${open === message.id}
              toggle=${() => setOpen(open === message.id ? "" : message.id)} />
          `
        )}</ul>${ordered.length > drawn && html`
        <div
          class="pages small"><span class="muted">${plural(drawn, "message")} of ${number(
            ordered.length,
          )}</span><div class="buttons push"><button onClick=${() =>
            setDrawn(drawn + 5 * DRAWN)}>Show more</button></div></div>
      `}${isTaking && html`
        <${Send} runId=${run.id} taken=${taken} onDone=${reload} onLate=${onError} />
      `}<//>
  `;
}

/** @param {{ message: any, isOpen: boolean, toggle: () => void }} props */
function Message({ message: { name, payload, status, acceptedAt, sentBy, receivedAt, receivedBy }, isOpen, toggle }) {
  const what = status === "unread"
    ? "unread"
    : status === "closed"
    ? "unread when the run ended"
    : `received by ${receivedBy}`;
  const after = receivedAt === null ? "" : ` after ${duration(Date.parse(receivedAt) - Date.parse(acceptedAt))}`;
  const shape = /** @type {any} */ ({ unread: "pending", received: "completed" })[status] ?? "cancelled";
  return html`<li data-s=${shape}><div class="line"><${Shape} status=${shape} /><div><button class="name quiet" data-row
    aria-expanded=${String(isOpen)} onClick=${toggle}>${name}</button> <span class="small mono muted preview">${
    beginOf(payload, PREVIEW)
  }</span><p class="small muted">${sentBy === null ? "" : `by ${sentBy}, `}<${Ago} at=${acceptedAt} /> at ${
    clock(acceptedAt)
  }</p></div><p class="small deadline">${what}${after}</p></div>${
    isOpen && html`
      <${Json} value=${payload} label=${`Payload of ${name}`} />
    `
  }</li>`;
}

/** @param {{ runId: string, taken: Record<string, any>, onDone: () => void, onLate: (error: any) => void }} props */
function Send({ runId, taken, onDone, onLate }) {
  const names = Object.keys(taken);
  const [chosen, choose] = useState(names[0] ?? "");
  const attempt = useRef({ key: "", id: "" });
  const send = async (/** @type {unknown} */ payload) => {
    // What is sent again after an error has the same id, so it is one message.
    const key = JSON.stringify([chosen, payload]);
    if (attempt.current.key !== key) {
      attempt.current = { key, id: `ui-${crypto.getRandomValues(new Uint32Array(3)).join("-")}` };
    }
    await post("send", { runId }, { name: chosen, payload, id: attempt.current.id });
    attempt.current = { key: "", id: "" };
    onDone();
    return "The message was accepted";
  };
  return html`
    <div
      class="pad stack tight send">${names.length > 1 && html`
        <label class="field">Send the message<select value=${chosen} onChange=${(/** @type {any} */ event) =>
          choose(event.target.value)}>${names.map((name) =>
            html`<option key=${name} value=${name}>${name}</option>`
          )}</select></label>
      `}<${PayloadForm} key=${chosen} id=${`message-${chosen}`} heading=${names.length > 1
        ? ""
        : `Send the message “${chosen}”`} label="Send a message"
        name=${chosen} schema=${taken[chosen]} isMessage=${true} send=${send} onLate=${onLate} /></div>
  `;
}

/**
 * The messages of a run, up to 2,000. What was received does not change: it is read from the first unread one on.
 * @param {string} runId @param {boolean} isTaking
 * @returns {{ messages: any[], isMore: boolean, error: any, reload: () => void }}
 */
function useMessages(runId, isTaking) {
  const kept = useRef({ messages: /** @type {any[]} */ ([]), isMore: false });
  const read = useRef(async (/** @type {string} */ path, /** @type {any} */ query, /** @type {any} */ signal) => {
    const known = kept.current.messages;
    const first = known.findIndex(({ status }) => status === "unread");
    const messages = first === -1 ? [...known] : known.slice(0, first);
    let part;
    do {
      part = await get(path, { ...query, after: messages.at(-1)?.id, limit: PART }, signal);
      messages.push(...part);
    } while (part.length === PART && messages.length < MAX_READ);
    return kept.current = { messages, isMore: part.length === PART };
  });
  const isOpen = isTaking || kept.current.messages.some(({ status }) => status === "unread");
  const { data, error, reload } = useData("messages", { runId }, isOpen ? 3_000 : 1e9, read.current);
  return { ...data ?? { messages: [], isMore: false }, error, reload };
}
