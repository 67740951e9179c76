import { createHash } from "node:crypto";
import { type FlatField, messageOf, type WaitAction } from "../../model/flat_form.ts";
import type { Wait } from "../../model/wait.ts";
import { PROTECTIVE_HEADERS } from "../response.ts";
import { isObject } from "../../values/unknown_values.ts";

/** What a page asks for, and what was entered before. */
export interface Question {
  /** The token: the form is posted to the same address. */
  token: string;
  /** The wait. */
  wait: Wait;
  /** Its buttons; empty: the fields are asked for. */
  actions: readonly WaitAction[];
  /** Its fields; `null`: none can be asked for. */
  fields: readonly FlatField[] | null;
  /** What was entered, by the names of the controls. */
  entered: ReadonlyMap<string, string>;
  /** What is wrong with it, by the names of the fields; `""`: with all of it. */
  issues: ReadonlyMap<string, string>;
}

const MAX_FACTS = 50;
const MAX_TEXT_LENGTH = 2_000;
// A longer text is asked for in several lines.
const LONG_TEXT = 200;

const STYLE = `
:root { color-scheme: light dark; --ink: #16181d; --dim: #525a68; --line: #767e8c; --back: #f4f5f7; --card: #fff; --main: #1b56c4; --on: #fff; --bad: #b3261e }
@media (prefers-color-scheme: dark) { :root { --ink: #eceef2; --dim: #b3bac6; --line: #8b93a1; --back: #14161a; --card: #1d2026; --main: #8ab4ff; --on: #0b1a38; --bad: #ff9a92 } }
* { box-sizing: border-box }
body { margin: 0; background: var(--back); color: var(--ink); font: 1rem/1.5 system-ui, sans-serif }
main { max-width: 34rem; margin: 0 auto; padding: 1.5rem 1rem; overflow-wrap: anywhere }
.card { background: var(--card); border-radius: .75rem; padding: 1.25rem }
h1 { font-size: 1.375rem; line-height: 1.3; margin: 0 0 1rem }
p { margin: 0 0 1rem } p:last-child { margin: 0 }
dl { margin: 0 0 1.25rem; display: grid; grid-template-columns: minmax(0, max-content) minmax(0, 1fr); gap: .25rem 1rem }
dt { color: var(--dim) } dd { margin: 0 }
label, legend { display: block; font-weight: 600; padding: 0; margin-bottom: .25rem }
fieldset { border: 0; padding: 0; margin: 0 }
.field { margin-bottom: 1.25rem }
.choice { display: inline-flex; align-items: center; gap: .5rem; font-weight: 400; margin-right: 1.5rem; min-height: 2.75rem }
.choice input { width: 1.25rem; height: 1.25rem; margin: 0 }
.hint { color: var(--dim); margin: .25rem 0 0 } .bad { color: var(--bad); margin: .25rem 0 0 }
input[type=text], input[type=email], input[type=date], input[type=number], select, textarea { width: 100%; font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line); border-radius: .375rem; padding: .5rem .625rem; min-height: 2.75rem }
[aria-invalid=true] { border-color: var(--bad); border-width: 2px }
.buttons { display: flex; flex-wrap: wrap; gap: .75rem }
button { font: inherit; font-weight: 600; min-height: 2.75rem; padding: .5rem 1.25rem; border-radius: .375rem; border: 1px solid var(--main); background: none; color: var(--main); cursor: pointer; max-width: 100%; overflow-wrap: anywhere }
button.main { background: var(--main); color: var(--on) }
:focus-visible { outline: 3px solid var(--main); outline-offset: 2px }
`;

const STYLE_HASH = createHash("sha256").update(STYLE).digest("base64");

/** The headers of each answer: a document without scripts, and without anything from elsewhere. */
export const PAGE_HEADERS: Readonly<Record<string, string>> = {
  ...PROTECTIVE_HEADERS,
  "content-type": "text/html; charset=utf-8",
  "content-security-policy":
    `default-src 'none'; style-src 'sha256-${STYLE_HASH}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'`,
  "cache-control": "no-store",
  // With `no-referrer` a browser would send `Origin: null` with the form.
  "referrer-policy": "same-origin",
  "x-robots-tag": "noindex",
};

/** A page with a question. */
export function askPage(question: Question): Response {
  const title = cut(messageOf(question.wait.metadata) ?? question.wait.name);
  const hasIssues = question.issues.size > 0;
  const body = `${factsOf(question.wait)}${formOf(question)}`;
  return respond(hasIssues ? 422 : 200, hasIssues ? `Please check: ${title}` : title, title, body);
}

/** A page that says something. */
export function sayPage(status: number, title: string, text: string, headers: Record<string, string> = {}): Response {
  return respond(status, title, title, `<p>${escapeHtml(text)}</p>`, headers);
}

function respond(
  status: number,
  title: string,
  heading: string,
  body: string,
  headers: Record<string, string> = {},
): Response {
  const html = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>${
    escapeHtml(title)
  }</title><style>${STYLE}</style></head><body><main><div class="card"><h1>${
    escapeHtml(heading)
  }</h1>${body}</div></main></body></html>
`;
  return new Response(html, { status, headers: { ...PAGE_HEADERS, ...headers } });
}

/** The members of the metadata that are plain values. */
function factsOf({ metadata }: Wait): string {
  if (!isObject(metadata)) return "";
  const facts = Object.entries(metadata)
    .filter(([name, value]) =>
      name !== "message" && name !== "actions" && ["string", "number", "boolean"].includes(typeof value)
    )
    .slice(0, MAX_FACTS)
    .map(([name, value]) => {
      const shown = typeof value === "boolean" ? value ? "yes" : "no" : String(value);
      return `<dt>${escapeHtml(cut(name))}</dt><dd>${escapeHtml(cut(shown))}</dd>`;
    });
  return facts.length === 0 ? "" : `<dl>${facts.join("")}</dl>`;
}

function formOf({ token, actions, fields, entered, issues }: Question): string {
  if (actions.length === 0 && fields === null) return "<p>This question cannot be answered here.</p>";
  const whole = issues.get("");
  const said = whole === undefined ? "" : `<p class="bad" role="alert">${escapeHtml(whole)}</p>`;
  const controls = actions.length > 0
    ? `<div class="buttons">${actions.map(({ label }, at) => buttonOf(label, at === 0)).join("")}</div>`
    : `${
      (fields ?? []).map((field, at) => fieldOf(field, at, entered, issues)).join("")
    }<div class="buttons">${'<button class="main">Send</button>'}</div>`;
  return `${said}<form method="post" action="?t=${escapeHtml(token)}">${controls}</form>`;
}

function buttonOf(label: string, isMain: boolean): string {
  return `<button name="action" value="${escapeHtml(label)}"${isMain ? ' class="main"' : ""}>${
    escapeHtml(cut(label))
  }</button>`;
}

/** The name of the control of a field: names of members could be any. */
export function controlOf(at: number): string {
  return `f${at}`;
}

function fieldOf(
  field: FlatField,
  at: number,
  entered: ReadonlyMap<string, string>,
  issues: ReadonlyMap<string, string>,
): string {
  const name = controlOf(at);
  const issue = issues.get(field.name);
  const value = entered.get(name) ?? (field.default === null ? "" : textOf(field, field.default));
  const hint = field.description === null
    ? ""
    : `<p class="hint" id="${name}-hint">${escapeHtml(cut(field.description))}</p>`;
  const bad = issue === undefined ? "" : `<p class="bad" id="${name}-bad" role="alert">${escapeHtml(cut(issue))}</p>`;
  const described = [hint && `${name}-hint`, bad && `${name}-bad`].filter(Boolean).join(" ");
  const attributes = `name="${name}"${isNeeded(field) ? " required" : ""}${
    described === "" ? "" : ` aria-describedby="${described}"`
  }${issue === undefined ? "" : ' aria-invalid="true"'}`;
  const title = `${escapeHtml(cut(field.title))}${isNeeded(field) ? "" : " (optional)"}`;
  if (field.type === "boolean" && field.choices === null) {
    const choices = [["true", "Yes"], ["false", "No"]].map(([choice, words]) =>
      `<label class="choice"><input type="radio" value="${choice}" ${attributes}${
        value === choice ? " checked" : ""
      }>${words}</label>`
    );
    return `<fieldset class="field"><legend>${title}</legend>${choices.join("")}${hint}${bad}</fieldset>`;
  }
  return `<div class="field"><label for="${name}">${title}</label>${
    controlTag(field, name, attributes, value)
  }${hint}${bad}</div>`;
}

function controlTag(field: FlatField, id: string, attributes: string, value: string): string {
  if (field.choices !== null) {
    const options = field.choices.map((choice) => {
      const text = textOf(field, choice);
      return `<option value="${escapeHtml(text)}"${text === value ? " selected" : ""}>${
        escapeHtml(cut(String(choice)))
      }</option>`;
    });
    const none = field.default === null ? `<option value="">${field.isRequired ? "Choose" : "None"}</option>` : "";
    return `<select id="${id}" ${attributes}>${none}${options.join("")}</select>`;
  }
  if (field.type === "string" && (field.format === null || value.length > LONG_TEXT || value.includes("\n"))) {
    return `<textarea id="${id}" rows="${value.length > LONG_TEXT ? 8 : 2}" ${attributes}>${
      // The parser leaves out a first line break.
      escapeHtml(value.startsWith("\n") ? `\n${value}` : value)}</textarea>`;
  }
  // A number is no `type=number`, which sends nothing of what it cannot read.
  const type = field.format === "email" || field.format === "date" ? field.format : "text";
  const mode = field.type === "integer"
    ? ' inputmode="numeric"'
    : field.type === "number"
    ? ' inputmode="decimal"'
    : "";
  return `<input id="${id}" type="${type}"${mode} ${attributes} value="${escapeHtml(value)}">`;
}

/** Whether a field cannot be left out. One with a default cannot: the schema would fill in what nobody has entered. */
export function isNeeded(field: FlatField): boolean {
  return field.isRequired || field.default !== null;
}

/** A value of a field as its control sends it. */
export function textOf({ choices }: Pick<FlatField, "choices">, value: string | number | boolean): string {
  return choices === null ? String(value) : JSON.stringify(value);
}

function cut(text: string): string {
  return text.length <= MAX_TEXT_LENGTH ? text : `${text.slice(0, MAX_TEXT_LENGTH).toWellFormed()}…`;
}

const ESCAPES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

function escapeHtml(text: string): string {
  return text.replaceAll(/[&<>"']/g, (one) => ESCAPES[one]!);
}
