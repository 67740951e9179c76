// @ts-check
import { post } from "../core/api.js";
import { shortId } from "../core/format.js";
import { html } from "../core/html.js";
import { pageAt } from "../core/location.js";
import { PayloadForm } from "./payload_form.js";

/**
 * What a wait asks, and the form that answers it.
 * @param {{ wait: any, onDone: () => void, onLate: (error: any) => void }} props `onLate`: see the form.
 */
export function Ask({ wait, onDone, onLate }) {
  const send = async (/** @type {unknown} */ payload) => {
    // The same payload has the same id, so pressing twice sends one signal.
    const signalId = `ui-${wait.id}-${hashOf(JSON.stringify(payload))}`;
    const query = { runId: wait.runId, waitId: wait.id };
    // Whatever it answers, the wait may have been answered meanwhile.
    const { disposition } = await post("signal", query, { signalId, payload }).finally(onDone);
    return disposition === "accepted" ? "The signal was accepted" : "This signal was sent before";
  };
  return html`
    <div class="ask">
      <${Metadata} metadata=${wait.metadata} />
      <${PayloadForm} id=${wait.id} heading="Send a signal" label=${`Send a signal to ${wait.name}`} name=${wait.name}
        schema=${wait.payloadSchema ?? null} actions=${wait.metadata?.actions} send=${send} onLate=${onLate} />
    </div>
  `;
}

/** A hash of a text (FNV-1a). @param {string} text */
function hashOf(text) {
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  return (hash >>> 0).toString(16);
}

/** The metadata of a wait, without the actions that are buttons. @param {{ metadata: any }} props */
function Metadata({ metadata }) {
  const { actions, ...others } = Object(metadata);
  const shown = Array.isArray(actions) ? others : metadata;
  if (shown === null || shown === "" || (typeof shown === "object" && Object.keys(shown).length === 0)) return null;
  return html`
    <div class="stack tight">
      <h2 class="h3">Metadata</h2>
      <${Tree} value=${shown} depth=${0} />
    </div>
  `;
}

const MAX_DEPTH = 8;
const MAX_MEMBERS = 50;
const RUN_ID = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** A value as a small tree: addresses and the ids of runs are links. @param {{ value: any, depth: number }} props */
function Tree({ value, depth }) {
  if (typeof value !== "object" || value === null) {
    if (typeof value !== "string") return String(value);
    if (RUN_ID.test(value)) return html`<a class="mono" href=${pageAt(`runs/${value}`)}>${shortId(value)}</a>`;
    return value.startsWith("https://")
      ? html`<a href=${value} target="_blank" rel="noreferrer noopener">${value}</a>`
      : value;
  }
  const entries = Object.entries(value);
  if (entries.length === 0) return html`<span class="muted">none</span>`;
  if (depth === MAX_DEPTH) return "…";
  return html`<dl class="kv">${
    entries.slice(0, MAX_MEMBERS).map(([name, each]) =>
      html`
        <dt key=${name}>${Array.isArray(value) ? Number(name) + 1 : name}</dt>
        <dd>
          <${Tree} value=${each} depth=${depth + 1} />
        </dd>
      `
    )
  }${
    entries.length > MAX_MEMBERS && html`
      <dt>…</dt>
      <dd>${entries.length - MAX_MEMBERS} more</dd>
    `
  }</dl>`;
}
