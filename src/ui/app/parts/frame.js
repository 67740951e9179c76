// @ts-check
import { html } from "../core/html.js";
import { goTo } from "../core/location.js";
import { options, shortcuts, theme } from "../core/options.js";
import { useLayoutEffect, useState } from "../vendor/hooks.js";
import { Guarded, Segments } from "./basics.js";
import { Icon } from "./icons.js";

/** @type {readonly (readonly [string, string])[]} */
export const PAGES = [
  ["overview", "Overview"],
  ["runs", "Runs"],
  ["waits", "Waits"],
  ["jobs", "Jobs"],
  ["schedules", "Schedules"],
  ["workers", "Workers"],
];
const THEMES = /** @type {const} */ ([["", "Auto"], ["light", "Light"], ["dark", "Dark"]]);

/** @typedef {{ data: any, count: (data: any) => string, words: string, isAlert?: boolean }} Count */

/**
 * What surrounds each page.
 * @param {{ page: string, isLive: boolean, badges: Record<string, Count>, children?: any }} props
 */
export function Frame({ page, isLive, badges, children }) {
  const link = (/** @type {readonly [string, string]} */ [name, words]) => {
    const badge = badges[name];
    const current = name === page ? { "aria-current": "page" } : {};
    return html`<a key=${name} href=${
      name === "overview" ? "#/" : `#/${name}`
    } ...${current}><${Icon} name=${name} />${words}${
      badge !== undefined && html`
        <${Guarded}>
          <${Badge} ...${badge} />
          <//>
      `
    }</a>`;
  };
  const tabs = /** @type {const} */ ([...PAGES.slice(0, 4), ["more", "More"]]);
  return html`
    <a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <div id="app">
      <nav class="side" aria-label="Pages">
        <div class="in">
          <a class="brand"
            href="#/"><svg viewBox="0 0 16 16" aria-hidden="true"><circle cx="8" cy="8" r="5.2" /></svg>${options
              .title}</a>
          <div class="nav">${PAGES.map(link)}</div>
          <div class="foot small muted"><span class=${isLive ? "live" : "live off"} role="status">${isLive
            ? "Live"
            : "Reconnecting"}</span>
            <${Theme} /><span class="tiny">Holdfast ${options.version}</span></div>
        </div>
      </nav>
      <main id="main" tabindex="-1">${children}</main>
      <nav class="tabs" aria-label="Main pages">${tabs.map(link)}</nav>
    </div>
  `;
}

/** A count beside a link, unless it is 0. @param {Count} props */
function Badge({ data, count, words, isAlert = false }) {
  const text = data === null ? "0" : count(data);
  return text !== "0" &&
    html`<span class=${isAlert ? "badge alert" : "badge"}>${text}<span class="sr"> ${words}</span></span>`;
}

/** @param {Event} event */
function skip(event) {
  event.preventDefault(); // the fragment is the page
  document.getElementById("main")?.focus();
}

/** The choice of the theme. */
function Theme() {
  const [chosen, choose] = useState(theme.get());
  const change = (/** @type {string} */ name) => {
    theme.set(name);
    choose(name);
  };
  return html`<${Segments} label="Theme" choices=${THEMES} value=${chosen} onChange=${change} />`;
}

/** Pages that have no tab on a phone, and the theme. */
export function MorePage() {
  return html`
    <h1>More</h1>
    <ul class="panel rows more">${PAGES.slice(4).map(([name, words]) =>
      html`<li key=${name}><a href=${`#/${name}`}><${Icon} name=${name} /> ${words}</a></li>`
    )}</ul>
    <div class="stack tight">
      <div>
        <${Theme} />
      </div>
      <p class="tiny muted">Holdfast ${options.version}</p>
    </div>
  `;
}

const KEYS = [
  ["/", "Search for a run"],
  ["j, k", "Next and previous row"],
  ["x", "Select the row"],
  ["Enter", "Open the row"],
  ["g then o, r, w, j", "Overview, runs, waits, jobs"],
  ["e", "Next row that failed"],
  ["Esc", "Close"],
  ["?", "This list"],
];

/** Shortcuts of one key, and the list of them. */
export function Shortcuts() {
  const [isOpen, setOpen] = useState(false);
  const [areOn, turn] = useState(shortcuts.areOn());
  // What is pressed as soon as the page is seen must not be lost.
  useLayoutEffect(() => {
    let isGo = false;
    const onKey = (/** @type {KeyboardEvent} */ event) => {
      const target = /** @type {HTMLElement} */ (event.target);
      const isText = target.matches("textarea, select, input:not([type=checkbox])");
      if (event.ctrlKey || event.metaKey || event.altKey || isText || document.querySelector("dialog[open]")) return;
      if (event.key === "?") return setOpen(true);
      if (!shortcuts.areOn()) return;
      const page = isGo ? { o: "", r: "runs", w: "waits", j: "jobs" }[event.key] : undefined;
      isGo = event.key === "g";
      if (page !== undefined) goTo(`#/${page}`);
      else if (event.key === "/") focusOn(document.querySelector("input[type=search]"), event);
      else if (event.key === "j") focusOn(rowFrom(1), event);
      else if (event.key === "k") focusOn(rowFrom(-1), event);
      else if (event.key === "e") focusOn(rowFrom(1, "[data-failed]"), event);
      else if (event.key === "x") {
        const row = document.activeElement?.closest("tr");
        /** @type {HTMLElement | null | undefined} */ (row?.querySelector("input[type=checkbox]"))?.click();
      }
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  if (!isOpen) return null;
  const change = (/** @type {any} */ event) => {
    shortcuts.turn(event.target.checked);
    turn(event.target.checked);
  };
  return html`
    <dialog aria-labelledby="keys-title" ref=${show} onClose=${() => setOpen(false)}>
      <h2 id="keys-title">Keyboard</h2>
      <dl class="kv">${KEYS.map(([key, words]) =>
        html`
          <dt key=${key}><kbd>${key}</kbd></dt>
          <dd>${words}</dd>
        `
      )}</dl>
      <label
        class="check"><input type="checkbox" checked=${areOn} onChange=${change} /> Shortcuts of a single key are on</label>
      <div class="buttons end"><button onClick=${(/** @type {any} */ event) =>
        event.target.closest("dialog").close()}>Close</button></div>
    </dialog>
  `;
}

/** @param {any} dialog */
function show(dialog) {
  if (dialog && !dialog.open) dialog.showModal();
}

/** @param {Element | null | undefined} element @param {Event} event */
function focusOn(element, event) {
  if (!element) return;
  event.preventDefault();
  /** @type {HTMLElement} */ (element).focus();
}

/** The row before or after the one with the focus. @param {1 | -1} step @param {string} [which] */
function rowFrom(step, which = "") {
  const rows = [...document.querySelectorAll(`[data-row]${which}`)];
  const current = document.activeElement?.closest("tr, li")?.querySelector("[data-row]") ?? null;
  if (which !== "" && current !== null) {
    return rows.find((row) => current.compareDocumentPosition(row) & Node.DOCUMENT_POSITION_FOLLOWING) ?? rows[0];
  }
  const at = current === null ? -1 : rows.indexOf(current);
  return rows[at === -1 ? 0 : at + step];
}
