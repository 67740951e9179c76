// @ts-check
import { html } from "../core/html.js";
import { useState } from "../vendor/hooks.js";
import { ActButton, Problem } from "./basics.js";

const MAX_ACTIONS = 8;
// Somebody else was faster, or the run has ended.
const LATE = [404, 409, 410];

/**
 * The form of a payload: buttons and fields by its schema, or JSON for those who want that. `send` returns what is said after it.
 * @param {{ id: string, heading: string, label: string, name: string, schema: any, actions?: any, isMessage?: boolean, send: (payload: unknown) => Promise<string>, onLate: (error: any) => void }} props
 * `isMessage`: without a schema it is JSON, not nothing. `onLate` is called with an error that the page has to show, since
 * nobody is asked any more and the form goes away; `null`: there is none.
 */
export function PayloadForm(
  { id, heading, label, name, schema, actions, isMessage = false, send: sendPayload, onLate },
) {
  const { fields, buttons } = formOf(actions, schema, isMessage);
  const [values, setValues] = useState(() => defaultsOf(fields));
  const [isJson, setJson] = useState(isMessage && schema === null);
  const [text, setText] = useState("");
  const [error, setError] = useState(/** @type {any} */ (null));
  const [sent, setSent] = useState("");
  const set = (/** @type {string} */ name, /** @type {any} */ value) =>
    setValues((last) => {
      const { [name]: _, ...others } = last;
      return value === undefined ? others : { ...others, [name]: value };
    });
  const onError = (/** @type {any} */ error) => {
    const isLate = LATE.includes(error?.status);
    onLate(isLate ? error : null);
    setError(isLate ? null : error);
  };
  const send = (/** @type {string} */ words, /** @type {() => unknown} */ payload, /** @type {string} */ name) =>
    html`<${ActButton} key=${words} class=${name} title=${titleOf(payload)} onError=${onError} act=${async () => {
      setSent(await sendPayload(payload()));
      setValues(defaultsOf(fields));
      setText("");
    }}>${words}<//>`;
  // What was refused of one field stands beside it, the rest below the form.
  const issues = isJson ? [] : error?.issues ?? [];
  const issueOf = (/** @type {string} */ name) =>
    issues.filter((/** @type {any} */ { path }) => (path[0] ?? "") === name).map((/** @type {any} */ { message }) =>
      message
    ).join("; ");
  const isShown = issues.length > 0 &&
    issues.every((/** @type {any} */ { path }) => fields.some(({ name }) => name === (path[0] ?? "")));
  return html`<div class="stack tight signal" role="group" aria-label=${label}>
    ${heading && html`<h2 class="h3">${heading}</h2>`}${
    isJson
      ? html`
        <label
          class="field">Payload as JSON<textarea rows="4" class="mono" spellcheck=${false} aria-label=${`Payload of ${name}`} placeholder=${exampleOf(
            fields,
          )} value=${text} onInput=${(
            /** @type {any} */ event,
          ) => setText(event.target.value)} /></label><div
          class="buttons">${send("Send", () => JSON.parse(text), "primary")}<button class="quiet" onClick=${() =>
            setJson(false)}>Back to the form</button></div>
      `
      : html`${
        fields.map((field) =>
          html`
            <${Field} key=${field.name} field=${field} value=${values[field.name]} issue=${issueOf(
              field.name,
            )} id=${`issue-${id}-${field.name}`}
              onChange=${set} />
          `
        )
      }
        <div class="buttons">${
        buttons.map(({ words, payload, isMain }) => send(words, () => payload(values), isMain ? "primary" : ""))
      }<button class="quiet" onClick=${() => setJson(true)}>Send JSON</button></div>`
  }${!isShown && html`<${Problem} error=${error} />`}<p class="small" role="status">${sent}</p></div>`;
}

/** The payload that a button sends. @param {() => unknown} payload */
function titleOf(payload) {
  try {
    return `Sends ${JSON.stringify(payload())}`;
  } catch {
    return ""; // what is entered is not JSON yet
  }
}

/** @typedef {{ name: string, schema: any, isRequired: boolean, isJson: boolean, isNumber: boolean }} FormField */

/** @param {{ field: FormField, value: any, issue: string, id: string, onChange: (name: string, value: any) => void }} props */
function Field({ field: { name, schema, isRequired, isJson, isNumber }, value, issue, id, onChange }) {
  const hint = isRequired ? "" : "optional";
  const choices = choicesOf(schema);
  const read = (/** @type {string} */ text) => text === "" ? undefined : choices ? choices[Number(text)] : text;
  const attributes = {
    required: isRequired,
    onInput: (/** @type {any} */ event) => onChange(name, read(event.target.value)),
    ...(issue === "" ? {} : { "aria-invalid": "true", "aria-describedby": id }),
  };
  return html`<div><label class="field">${schema.title ?? (name === "" ? "Payload" : name)}${
    choices
      ? html`
        <select ...${attributes}
          value=${value === undefined ? "" : String(choices.indexOf(value))}>${// Left out, it would be the default.
          schema.default === undefined && html`<option value="">${hint || "choose"}</option>`}${choices.map((
            /** @type {any} */ choice,
            /** @type {number} */ n,
          ) => html`<option value=${String(n)}>${String(choice)}</option>`)}</select>
      `
      : isJson
      ? html`<textarea rows="3" class="mono" spellcheck=${false} placeholder=${`JSON${hint && ", optional"}`} value=${
        value ?? ""
      } ...${attributes} />`
      : html`<input type=${isNumber ? "number" : "text"} step="any" placeholder=${hint} value=${
        value ?? ""
      } ...${attributes} />`
  }</label>${
    (schema.description || issue) && html`
      <p class=${issue ? "tiny bad" : "tiny muted"} id=${id} role=${issue ? "alert" : undefined}>${issue ||
        schema.description}</p>
    `
  }</div>`;
}

/** @param {any} schema @returns {any[] | null} */
const choicesOf = (schema) =>
  schema.enum ?? (schema.const === undefined ? schema.type === "boolean" ? [true, false] : null : [schema.const]);

/** Without the `null` that it may be, too. @param {any} schema */
function withoutNull(schema) {
  const others = schema?.anyOf?.filter((/** @type {any} */ each) => each.type !== "null");
  if (others?.length === 1) return { ...schema, ...others[0], anyOf: undefined };
  if (!Array.isArray(schema?.type)) return typeof schema === "object" && schema !== null ? schema : {};
  const types = schema.type.filter((/** @type {string} */ each) => each !== "null");
  return { ...schema, type: types.length === 1 ? types[0] : types };
}

/** @param {string} name @param {any} whole @param {boolean} isRequired @returns {FormField} */
function fieldOf(name, whole, isRequired) {
  const schema = withoutNull(whole);
  const hasChoices = choicesOf(schema) !== null;
  const isNumber = !hasChoices && (schema.type === "number" || schema.type === "integer");
  return { name, schema, isRequired, isJson: !hasChoices && !isNumber && schema.type !== "string", isNumber };
}

/** @param {FormField[]} fields @returns {Record<string, any>} */
const defaultsOf = (fields) =>
  Object.fromEntries(
    fields.filter(({ schema }) => schema.default !== undefined).map((
      { name, schema, isJson, isNumber },
    ) => [name, isJson || isNumber ? JSON.stringify(schema.default) : schema.default]),
  );

/**
 * A number as it was entered: one that a number of JavaScript would round is refused.
 * @param {string} text @param {string} name
 */
function numberOf(text, name) {
  const value = Number(text);
  if (digitsOf(String(value)) === digitsOf(text)) return value;
  const message = "has more digits than a number keeps";
  throw Object.assign(new Error(`The number ${message}`), { issues: [{ path: name === "" ? [] : [name], message }] });
}

/** The same for all spellings of one number: `12e-1` for `1.20`. @param {string} text */
function digitsOf(text) {
  const [, sign, whole = "", part = "", exponent = "0"] = /^([+-]?)(\d*)(?:\.(\d*))?(?:e([+-]?\d+))?$/i.exec(text) ??
    [];
  const digits = `${whole}${part}`.replace(/^0+/, "");
  const short = /^.*[^0]/.exec(digits)?.[0] ?? ""; // without the zeros at its end, in one pass
  const size = Number(exponent) - part.length + digits.length - short.length;
  return short === "" ? "0" : `${sign === "-" ? sign : ""}${short}e${size}`;
}

/** @param {FormField[]} fields */
const exampleOf = (fields) =>
  fields.length === 0 || fields[0]?.name === ""
    ? ""
    : `{ ${
      fields.map(({ name, schema }) => `"${name}": ${choicesOf(schema)?.join(" or ") ?? schema.type ?? "…"}`).join(", ")
    } }`;

/**
 * Which form fits: the actions of the wait, buttons for a few values, fields, or a field of JSON.
 * @param {any} actions @param {any} schema @param {boolean} isMessage
 * @returns {{ fields: FormField[], buttons: { words: string, payload: (values: any) => unknown, isMain: boolean }[] }}
 */
function formOf(actions, schema, isMessage) {
  const button = (/** @type {string} */ words, /** @type {(values: any) => unknown} */ payload, isMain = false) => ({
    words,
    payload,
    isMain,
  });
  if (Array.isArray(actions) && actions.length > 0) {
    const named = actions.slice(0, MAX_ACTIONS).filter((action) => typeof action?.label === "string");
    return { fields: [], buttons: named.map(({ label, payload }, n) => button(label, () => payload, n === 0)) };
  }
  if (schema === null || schema.type === "null") {
    const words = isMessage ? "Send without a payload" : "Continue, without a payload";
    return { fields: [], buttons: [button(words, () => null, true)] };
  }
  const choices = choicesOf(schema);
  if (choices !== null) return { fields: [], buttons: choices.map((value) => button(String(value), () => value)) };
  const read = (/** @type {FormField} */ { name, isJson, isNumber }, /** @type {any} */ values) => {
    const value = values[name];
    return value === undefined ? value : isJson ? JSON.parse(value) : isNumber ? numberOf(value, name) : value;
  };
  const properties = Object.entries(schema.properties ?? {});
  if (schema.type !== "object" || properties.length === 0) {
    const field = fieldOf("", schema, true);
    return { fields: [field], buttons: [button("Send", (values) => read(field, values) ?? null, true)] };
  }
  const fields = properties.map(([name, each]) => fieldOf(name, each, (schema.required ?? []).includes(name)));
  const all = (/** @type {any} */ values) =>
    Object.fromEntries(
      fields.filter(({ name }) => values[name] !== undefined).map((field) => [field.name, read(field, values)]),
    );
  const booleans = fields.filter((field) => field.schema.type === "boolean");
  const others = fields.filter((field) => field.schema.type !== "boolean");
  const [main] = booleans;
  if (
    booleans.length === 1 && main !== undefined &&
    others.every((field) => field.schema.type === "string" && !field.schema.enum)
  ) {
    const answers = [true, false].map((value) =>
      button(`${main.name}: ${value ? "yes" : "no"}`, (values) => ({ ...all(values), [main.name]: value }), value)
    );
    return { fields: others, buttons: answers };
  }
  return { fields, buttons: [button("Send", all, true)] };
}
