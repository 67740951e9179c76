// @ts-check
import { number, plural, size } from "../core/format.js";
import { html } from "../core/html.js";
import { follow } from "../core/stream.js";
import { useData } from "../core/use_data.js";
import { Ago, Panel, Problem } from "../parts/basics.js";
import { Status } from "../parts/icons.js";
import { beginOf } from "../parts/json_view.js";
import { useEffect, useState } from "../vendor/hooks.js";

const SHOWN = 200;
const MAX_ITEM = 2_000;
const MAX_REPLACED = 5;
const OPENED_BYTES = 262_144;

/** The streams of a run, each with its newest items: nothing if there are none. @param {{ run: any, changes: number }} props */
export function Streams({ run, changes }) {
  const isWriting = run.status === "running" || run.status === "leased";
  const { data: streams, error, reload } = useData("streams", { runId: run.id }, isWriting ? 2_000 : 1e9);
  const [open, setOpen] = useState(/** @type {string | null} */ (null));
  useEffect(() => void (changes > 0 && reload()), [changes]);
  // The first one that is small is opened once.
  useEffect(() => {
    const small = (streams ?? []).find((/** @type {any} */ { bytes }) => bytes < OPENED_BYTES);
    setOpen((last) => last ?? small?.name ?? null);
  }, [streams]);
  if (streams === null || streams.length === 0) {
    return html`<${Problem} error=${error?.status === 403 ? null : error} />`;
  }
  return html`
    <${Panel} title="Streams" aside=${plural(streams.length, "stream")}>
      <ul class="waits streams">${streams.map((
        /** @type {any} */ { name, items, bytes, isOpen, updatedAt },
      ) =>
        html`
          <li key=${name}>
            <div class="line">
              <${Status} status=${isOpen ? "running" : "completed"}>${isOpen ? "Open" : "Ended"}<//>
              <div><button class="name quiet" data-row aria-expanded=${String(name === open)} onClick=${() =>
                setOpen(name === open ? "" : name)}>${name}</button></div>
              <p class="small muted deadline">${plural(items, "item")}, ${size(bytes)}, <${Ago} at=${updatedAt} /></p>
            </div>
            ${name === open && html`
              <${Items} key=${name} runId=${run.id} name=${name} />
            `}
          </li>
        `
      )}</ul>
      <//>
  `;
}

/**
 * The newest items of a stream, as they come.
 * @typedef {{ count: number, items: any[], replaced: { from: number, to: number, items: any[] }[], isEnded: boolean }} Tail
 * `count`: of all items; `items`: the last of them; `replaced`: what does not count any more, after it was seen here.
 * @param {{ runId: string, name: string }} props
 */
function Items({ runId, name }) {
  const [tail, setTail] = useState(/** @type {Tail} */ ({ count: 0, items: [], replaced: [], isEnded: false }));
  const [isLive, setLive] = useState(true);
  useEffect(() => {
    /** @type {any[]} */
    let arrived = []; // without a position: a stream that is cut here sends them again
    const onEvent = (/** @type {any} */ data, /** @type {string} */ type) => {
      if (type === "data") return void (arrived = data);
      const items = arrived;
      arrived = [];
      setTail((last) => withItems(type === "reset" ? cutTo(last, data.from) : last, items, data.streamClosed === true));
      return data.streamClosed === true;
    };
    const onState = (/** @type {boolean} */ isOpen) => {
      arrived = [];
      setLive(isOpen);
    };
    return follow("stream", { runId, name, offset: "-1", live: "sse", resets: "event" }, { onEvent, onState });
  }, [runId, name]);
  const { count, items, replaced, isEnded } = tail;
  const words = [
    count > items.length && `The newest ${number(items.length)} of ${plural(count, "item")}.`,
    !isEnded && (isLive ? "Waiting for more." : "Reconnecting."),
  ].filter(Boolean).join(" ");
  return html`
    <div class="items">
      ${replaced.map(({ from, to, items }) =>
        html`
          <del class="replaced" key=${`${from} ${to}`}>
            <p class="small">Replaced: items ${number(from + 1)} to ${number(to)} of an attempt that does not count</p>
            <${Text} items=${items} label=${`Replaced items of ${name}`} />
          </del>
        `
      )}
      ${words && html`
        <p class="small muted pad">${words}</p>
      `}
      <${Text} items=${items} label=${`Items of ${name}`} />
    </div>
  `;
}

/** Items as text: strings joined, others a line each. @param {{ items: any[], label: string }} props */
function Text({ items, label }) {
  const areStrings = items.every((item) => typeof item === "string");
  const text = areStrings
    ? items.map((item) => item.slice(0, MAX_ITEM)).join("")
    : items.map((item) => beginOf(item, MAX_ITEM)).join("\n");
  return html`<pre class=${
    areStrings ? "json wrap" : "json"
  } tabindex="0" role="region" aria-label=${label}>${text}</pre>`;
}

/** @param {Tail} tail @param {number} from */
function cutTo(tail, from) {
  const first = tail.count - tail.items.length;
  if (from >= tail.count) return tail;
  const kept = Math.max(0, from - first);
  const replaced = [...tail.replaced, { from, to: tail.count, items: tail.items.slice(kept) }].slice(-MAX_REPLACED);
  return { ...tail, count: from, items: tail.items.slice(0, kept), replaced };
}

/** @param {Tail} tail @param {any[]} items @param {boolean} isEnded */
const withItems = (tail, items, isEnded) => ({
  ...tail,
  count: tail.count + items.length,
  items: [...tail.items, ...items].slice(-SHOWN),
  isEnded,
});
