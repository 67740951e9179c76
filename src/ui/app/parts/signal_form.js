// @ts-check
import { post } from "../core/api.js";
import { html } from "../core/html.js";
import { useState } from "../vendor/hooks.js";
import { ActButton, Problem } from "./basics.js";

const MAX_ACTIONS = 8;

/**
 * The form that answers a wait: buttons and fields by the schema of its payload, or JSON.
 * @param {{ wait: any, schema: any, onDone: () => void }} props
 */
export function SignalForm({ wait, schema, onDone }) {
  const form = formOf(wait, schema);
  const [values, setValues] = useState(/** @type {Record<string, any>} */ ({}));
  const [isJson, setJson] = useState(form.kind === "json");
  const [text, setText] = useState("{}");
  const [error, setError] = useState(/** @type {any} */ (null));
  const [sent, setSent] = useState("");
  const set = (/** @type {string} */ name, /** @type {any} */ value) =>
    setValues((last) => {
      const { [name]: _, ...others } = last;
      return value === undefined ? others : { ...others, [name]: value };
    });
  const signal = async (/** @type {unknown} */ payload) => {
    // The same payload has the same id, so pressing twice sends one signal.
    const signalId = `ui-${wait.id}-${hashOf(JSON.stringify(payload))}`;
    const query = { runId: wait.runId, waitId: wait.id };
    const { disposition } = await post("signal", query, { signalId, payload });
    setSent(disposition === "accepted" ? "The signal was accepted" : "This signal was sent before");
    onDone();
  };
  const send = (/** @type {any} */ words, /** @type {() => unknown} */ payload, /** @type {string} */ name) =>
    html`<${ActButton} class=${name} onError=${setError} act=${async () => await signal(payload())}>${words}<//>`;
  const label = `Payload of ${wait.name}`;
  return html`<div class="stack tight signal" role="group" aria-label=${`Send a signal to ${wait.name}`}>
    <h2 class="h3">Send a signal</h2>${
    isJson
      ? html`
        <label
          class="field">Payload as JSON<textarea rows="4" class="mono" spellcheck=${false} aria-label=${label} value=${text} onInput=${(
            /** @type {any} */ event,
          ) => setText(event.target.value)} /></label><div
          class="buttons">${send("Send", () => JSON.parse(text), "primary")}${form.kind !== "json" &&
            html`<button class="quiet" onClick=${() => setJson(false)}>Back to the form</button>`}</div>
      `
      : html`${
        form.fields.map((field) =>
          html`<${Field} key=${field.name} field=${field} value=${values[field.name]} onChange=${set} />`
        )
      }
        <div class="buttons">${
        form.buttons.map(({ words, payload, isMain }) => send(words, () => payload(values), isMain ? "primary" : ""))
      }<button class="quiet" onClick=${() => setJson(true)}>Send JSON</button></div>`
  }<${Problem} error=${error} /><p class="small" role="status">${sent}</p></div>`;
}

/** @param {{ field: any, value: any, onChange: (name: string, value: any) => void }} props */
function Field({ field: { name, schema, isRequired }, value, onChange }) {
  const hint = isRequired ? "" : "optional";
  const choices = schema.enum ?? (schema.type === "boolean" ? [true, false] : null);
  const read = (/** @type {string} */ text) =>
    text === "" ? undefined : choices ? choices[Number(text)] : isNumeric(schema) ? Number(text) : text;
  const onInput = (/** @type {any} */ event) => onChange(name, read(event.target.value));
  return html`<label class="field">${schema.title ?? name}${
    choices
      ? html`
        <select required=${isRequired} onChange=${onInput}
          value=${value === undefined ? "" : String(choices.indexOf(value))}><option value="">${hint ||
            "choose"}</option>${choices.map((/** @type {any} */ choice, /** @type {number} */ n) =>
              html`<option value=${String(n)}>${String(choice)}</option>`
            )}</select>
      `
      : html`<input type=${isNumeric(schema) ? "number" : "text"} step="any" placeholder=${hint} value=${
        value ?? ""
      } onInput=${onInput} />`
  }</label>`;
}

/** @param {any} schema */
const isNumeric = (schema) => schema.type === "number" || schema.type === "integer";
/** @param {any} schema */
const isScalar = (schema) =>
  ["string", "number", "integer", "boolean"].includes(schema?.type) || Array.isArray(schema?.enum);

/**
 * Which form fits: the actions of the wait, two buttons for one boolean, choices, fields, or JSON.
 * @param {any} wait @param {any} schema
 * @returns {{ kind: "form" | "json", fields: any[], buttons: { words: string, payload: (values: any) => unknown, isMain: boolean }[] }}
 */
function formOf(wait, schema) {
  const button = (/** @type {string} */ words, /** @type {(values: any) => unknown} */ payload, isMain = false) => ({
    words,
    payload,
    isMain,
  });
  const actions = wait.metadata?.actions;
  if (Array.isArray(actions) && actions.length > 0) {
    const named = actions.slice(0, MAX_ACTIONS).filter((action) => typeof action?.label === "string");
    return {
      kind: "form",
      fields: [],
      buttons: named.map(({ label, payload }, n) => button(label, () => payload, n === 0)),
    };
  }
  if (Array.isArray(schema?.enum)) {
    return {
      kind: "form",
      fields: [],
      buttons: schema.enum.map((/** @type {any} */ value) => button(String(value), () => value)),
    };
  }
  const properties = Object.entries(schema?.properties ?? {});
  if (schema?.type !== "object" || properties.length === 0 || !properties.every(([, each]) => isScalar(each))) {
    return { kind: "json", fields: [], buttons: [] };
  }
  const fields = properties.map(([name, each]) => ({
    name,
    schema: each,
    isRequired: (schema.required ?? []).includes(name),
  }));
  const booleans = fields.filter((field) => field.schema.type === "boolean");
  const others = fields.filter((field) => field.schema.type !== "boolean");
  const [main] = booleans;
  if (
    booleans.length === 1 && main !== undefined &&
    others.every((field) => field.schema.type === "string" && !field.schema.enum)
  ) {
    const answers = [true, false].map((value) =>
      button(`${main.name}: ${value ? "yes" : "no"}`, (values) => ({ ...values, [main.name]: value }), value)
    );
    return { kind: "form", fields: others, buttons: answers };
  }
  return { kind: "form", fields, buttons: [button("Send", (values) => values, true)] };
}

/** A hash of a text (FNV-1a). @param {string} text */
function hashOf(text) {
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  return (hash >>> 0).toString(16);
}

/** The metadata of a wait; addresses are links. @param {{ metadata: any }} props */
export function Metadata({ metadata }) {
  if (typeof metadata !== "object" || metadata === null) return null;
  const entries = Object.entries(metadata).filter(([name]) => name !== "actions");
  if (entries.length === 0) return null;
  return html`
    <div class="stack tight">
      <h2 class="h3">Metadata</h2>
      <dl class="kv">${entries.map(([name, value]) =>
        html`
          <dt key=${name}>${name}</dt>
          <dd>${typeof value === "string" && value.startsWith("https://")
            ? html`<a href=${value} target="_blank" rel="noreferrer noopener">${value}</a>`
            : typeof value === "string"
            ? value
            : typeof value === "number"
            ? value.toLocaleString("en")
            : JSON.stringify(value)}</dd>
        `
      )}</dl>
    </div>
  `;
}
