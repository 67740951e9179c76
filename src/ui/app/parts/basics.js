// @ts-check
import { ago } from "../core/format.js";
import { html } from "../core/html.js";
import { useNow } from "../core/use_data.js";
import { useErrorBoundary, useLayoutEffect, useRef, useState } from "../vendor/hooks.js";
import { Icon } from "./icons.js";

/** How long ago something was. @param {{ at: string }} props */
export function Ago({ at }) {
  return html`<time dateTime=${at} title=${at}>${ago(at, useNow())}</time>`;
}

/**
 * A panel with a heading.
 * @param {{ title: string, aside?: any, actions?: any, class?: string, children?: any }} props
 */
export function Panel({ title, aside, actions, class: name = "", children }) {
  const id = `h-${title.replaceAll(/\W+/g, "-").toLowerCase()}`;
  return html`<section class=${`panel ${name}`} aria-labelledby=${id}>
    <header><h2 id=${id}>${title}</h2>${aside && html`<span class="muted small">${aside}</span>`}${
    actions && html`<div class="push buttons">${actions}</div>`
  }</header>${children}</section>`;
}

/**
 * A choice among a few.
 * @param {{ label: string, choices: readonly (readonly [string, string])[], value: string, onChange: (value: string) => void }} props
 */
export const Segments = ({ label, choices, value, onChange }) =>
  html`<div class="segments" role="group" aria-label=${label}>${
    choices.map(([name, words]) =>
      html`<button aria-pressed=${String(name === value)} onClick=${() => onChange(name)}>${words}</button>`
    )
  }</div>`;

/**
 * Shows its content, or that it could not be shown: what one part of a page cannot show is not to take the others away.
 * Without a title it then shows nothing.
 * @param {{ title?: string, children?: any }} props
 */
export function Guarded({ title, children }) {
  const [error, retry] = useErrorBoundary((thrown) => console.error(thrown));
  if (error === undefined) return children;
  if (title === undefined) return null;
  return html`
    <${Panel} title=${title}>
      <div
        class="pad stack tight">
        <p>This part could not be shown: ${error.message}</p>
        <div class="buttons"><button onClick=${retry}>Try again</button></div>
      </div>
      <//>
  `;
}

/** Copies a text. @param {{ text: string | (() => string), label: string, words?: string }} props */
export function Copy({ text, label, words }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard?.writeText(typeof text === "string" ? text : text());
    setCopied(true);
    setTimeout(() => setCopied(false), 1_500);
  };
  return html`
    <button class="quiet copy" aria-label=${isCopied ? "Copied" : label}
      onClick=${copy}><${Icon} name="copy" />${isCopied ? "Copied" : words}</button>
  `;
}

/** Labels of a run. @param {{ labels: Record<string, string> }} props */
export const Labels = ({ labels }) =>
  html`<span class="chips">${
    Object.entries(labels).map(([key, value]) => html`<span class="chip" key=${key}>${key}=${value}</span>`)
  }</span>`;

/** What a request was refused with. @param {{ error: any }} props */
export function Problem({ error }) {
  if (!error) return null;
  const text = error.status === 403 ? "You may not see this" : error.message;
  return html`<div class="problem" role="alert"><p>${text}</p>${
    error.issues?.length > 0 &&
    html`<ul>${
      error.issues.map((/** @type {any} */ issue) =>
        html`<li><code>${issue.path.join(".") || "input"}</code> ${issue.message}</li>`
      )
    }</ul>`
  }</div>`;
}

/**
 * A button whose action asks the server; shows that it is under way, and what was refused.
 * @param {{ act: () => Promise<unknown>, class?: string, title?: string, children?: any, onError?: (error: any) => void, isDisabled?: boolean }} props
 */
export function ActButton({ act, class: name = "", title, children, onError, isDisabled = false }) {
  const [isBusy, setBusy] = useState(false);
  const press = async () => {
    setBusy(true);
    onError?.(null);
    try {
      await act();
    } catch (error) {
      onError?.(error);
    }
    setBusy(false);
  };
  return html`<button class=${name} title=${title} disabled=${
    isBusy || isDisabled
  } onClick=${press}>${children}</button>`;
}

/**
 * A question before something that cannot be undone.
 * @param {{ title: string, children?: any, confirm: string, isDanger?: boolean, onConfirm: () => Promise<unknown>, onClose: () => void, isBlocked?: boolean }} props
 */
export function Dialog({ title, children, confirm, isDanger, onConfirm, onClose, isBlocked = false }) {
  const dialog = useRef(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  useLayoutEffect(() => {
    dialog.current.showModal();
  }, []);
  const act = async () => {
    await onConfirm();
    dialog.current?.close();
  };
  return html`
    <dialog ref=${dialog} aria-labelledby="dialog-title" onClose=${onClose}>
      <h2 id="dialog-title">${title}</h2>
      <div class="stack tight">${children}</div>
      <${Problem} error=${error} />
      <div class="buttons end"><button onClick=${() => dialog.current.close()}>Keep</button>
        <${ActButton} class=${isDanger
          ? "danger"
          : "primary"} act=${act} onError=${setError} isDisabled=${isBlocked}>${confirm}<//></div></dialog>
  `;
}
