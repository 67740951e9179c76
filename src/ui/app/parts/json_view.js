// @ts-check
import { size } from "../core/format.js";
import { html } from "../core/html.js";
import { useMemo, useState } from "../vendor/hooks.js";
import { Copy, Panel } from "./basics.js";

const MAX_SHOWN = 65_536;

/** A value as indented JSON. @param {{ title: string, value: any, none?: string }} props */
export function JsonPanel({ title, value, none }) {
  const [isOpen, setOpen] = useState(true);
  const text = useMemo(() => JSON.stringify(value ?? null, null, 2), [value]);
  if (none !== undefined) {
    return html`
      <${Panel} title=${title}>
        <p class="muted small pad">${none}</p>
        <//>
    `;
  }
  const actions = html`
    <button class="quiet" aria-expanded=${String(isOpen)} onClick=${() => setOpen(!isOpen)}>${isOpen
      ? "Collapse"
      : "Expand"}</button><${Copy}
      text=${text} label=${`Copy the ${title.toLowerCase()}`} words="Copy" />
  `;
  return html`<${Panel} title=${title} aside=${size(text.length)} actions=${actions}>${
    isOpen && html`<${Json} text=${text} label=${`${title} as JSON`} />`
  }<//>`;
}

/** The text of a JSON value, coloured. @param {{ text: string, label: string }} props */
export function Json({ text, label }) {
  const shown = text.slice(0, MAX_SHOWN);
  const parts = useMemo(() => colour(shown), [shown]);
  return html`<div><pre class="json" tabindex="0" role="region" aria-label=${label}>${parts}</pre>${
    text.length > MAX_SHOWN &&
    html`<p class="muted small pad">The first 64 kB of ${size(text.length)}. Copy has all of it.</p>`
  }</div>`;
}

// A key with its colon, a string, or a number, boolean or null.
const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d[\d.eE+-]*|true|false|null)/g;
const MAX_COLOURED = 16_384; // more would be too many elements

/** @param {string} text */
function colour(text) {
  if (text.length > MAX_COLOURED) return [text];
  /** @type {any[]} */
  const parts = [];
  let at = 0;
  for (const match of text.matchAll(TOKEN)) {
    const [whole, string, colon] = match;
    parts.push(text.slice(at, match.index));
    if (string !== undefined && colon !== undefined) parts.push(html`<span class="k">${string}</span>`, colon);
    else parts.push(html`<span class=${string === undefined ? "v" : "s"}>${whole}</span>`);
    at = match.index + whole.length;
  }
  return [...parts, text.slice(at)];
}
