// @ts-check
import { size } from "../core/format.js";
import { html } from "../core/html.js";
import { useMemo, useState } from "../vendor/hooks.js";
import { Copy, Panel } from "./basics.js";

const MAX_SHOWN = 65_536;
const MAX_DEPTH = 64;

/** A value as indented JSON. @param {{ title: string, value: any, none?: string }} props */
export function JsonPanel({ title, value, none }) {
  const [isOpen, setOpen] = useState(true);
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
      text=${() => JSON.stringify(value ?? null)} label=${`Copy the ${title.toLowerCase()}`} words="Copy" />
  `;
  return html`<${Panel} title=${title} actions=${actions}>${
    isOpen && html`<${Json} value=${value} label=${`${title} as JSON`} />`
  }<//>`;
}

/** A JSON value, indented and coloured, up to 64 kB and 64 levels of it. @param {{ value: any, label: string }} props */
export function Json({ value, label }) {
  const { parts, isCut } = useMemo(() => {
    const { text, isCut } = write(value ?? null);
    return { parts: colour(text), isCut };
  }, [value]);
  return html`<div><pre class="json" tabindex="0" role="region" aria-label=${label}>${parts}</pre>${
    isCut &&
    html`<p class="muted small pad">The first ${size(MAX_SHOWN)}, ${MAX_DEPTH} levels deep. Copy has all of it.</p>`
  }</div>`;
}

/** The begin of a value, on one line. @param {any} value @param {number} length */
export function beginOf(value, length) {
  const { text, isCut } = write(value, length);
  return `${text.replaceAll(/\n */g, " ")}${isCut ? "…" : ""}`;
}

/**
 * Writes a value until it is too long: all of a large or deep one may be longer than a string can be.
 * @param {any} root @param {number} [maxLength]
 */
function write(root, maxLength = MAX_SHOWN) {
  let text = "";
  let isCut = false;
  const add = (/** @type {any} */ value, /** @type {string} */ indent, /** @type {number} */ depth) => {
    const isList = Array.isArray(value);
    const entries = isList ? value : typeof value === "object" && value !== null ? Object.keys(value) : null;
    const [open, close] = isList ? "[]" : "{}";
    if (entries === null) text += JSON.stringify(value);
    else if (entries.length === 0) text += `${open}${close}`;
    else if (depth === MAX_DEPTH) {
      isCut = true;
      text += `${open}…${close}`;
    } else {
      text += open;
      for (let n = 0; n < entries.length && text.length < maxLength; n++) {
        text += `${n === 0 ? "" : ","}\n${indent}  ${isList ? "" : `${JSON.stringify(entries[n])}: `}`;
        add(isList ? entries[n] : value[entries[n]], `${indent}  `, depth + 1);
      }
      text += `\n${indent}${close}`;
    }
  };
  add(root, "", 0);
  return { text: text.slice(0, maxLength), isCut: isCut || text.length > maxLength };
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
