// @ts-check
import { clock, plural } from "../core/format.js";
import { html } from "../core/html.js";
import { options } from "../core/options.js";
import { useData } from "../core/use_data.js";
import { Panel, Segments } from "../parts/basics.js";
import { useEffect, useRef, useState } from "../vendor/hooks.js";

const DRAWN = 500;
const LEVELS = /** @type {const} */ ([["all", "All"], ["warn", "Warnings"], ["error", "Errors"]]);
const RANK = /** @type {Record<string, number>} */ ({ all: 0, info: 0, warn: 1, error: 2 });

/**
 * The log lines of a run: those that were kept, then those that arrive. `null`: they may not be read.
 * @param {string} runId @param {any[]} live
 * @returns {any[] | null}
 */
export function useLines(runId, live) {
  const { data, error } = useData("logs", { runId }, 1e9);
  const kept = data ?? [];
  const known = new Set(kept.map(keyOf));
  const lines = [...kept, ...live.filter((line) => !known.has(keyOf(line)))];
  return error !== null && lines.length === 0 ? null : lines;
}

/** The panel of the log lines of a run. @param {{ lines: any[] }} props */
export function Logs({ lines }) {
  const [level, setLevel] = useState("all");
  const [text, setText] = useState("");
  const [isFollowing, setFollowing] = useState(true);
  const list = useRef(/** @type {any} */ (null));
  const shown = lines.filter((line) =>
    (RANK[line.level] ?? 0) >= (RANK[level] ?? 0) &&
    (text === "" || `${line.message} ${line.stepName ?? ""}`.toLowerCase().includes(text.toLowerCase()))
  );
  useEffect(() => {
    if (isFollowing && list.current) list.current.scrollTop = list.current.scrollHeight;
  }, [shown.length, isFollowing]);
  const onScroll = () => {
    const { scrollTop, scrollHeight, clientHeight } = list.current;
    setFollowing(scrollHeight - scrollTop - clientHeight < 24);
  };
  const actions = html`
    <input class="filter" type="text" aria-label="Filter the lines" placeholder="Filter" value=${text}
      onInput=${(/** @type {any} */ event) =>
        setText(
          event.target.value,
        )} /><${Segments} label="Level" choices=${LEVELS} value=${level} onChange=${setLevel} />
  `;
  return html`<${Panel} title="Logs" aside=${plural(lines.length, "line")} actions=${lines.length > 0 && actions}>${
    shown.length === 0
      ? html`<p class="muted small pad">${
        lines.length > 0
          ? "No line matches."
          : options.keepsLogs
          ? "The run has written no lines."
          : "No lines. This service keeps none: use persistLogs()."
      }</p>`
      : html`
        <div class="logs" role="log" aria-label="Log lines" tabindex="0" ref=${list}
          onScroll=${onScroll}>${shown.length > DRAWN &&
            html`<p class="muted pad">The newest ${DRAWN} of ${
              plural(shown.length, "line")
            }</p>`}<${Lines} lines=${shown.slice(-DRAWN)} /></div>
      `
  }<//>`;
}

/** @param {{ lines: any[] }} props */
export const Lines = ({ lines }) =>
  html`<ol>${
    lines.map((line) =>
      html`
        <li data-l=${line.level}
          key=${line.id ?? keyOf(line)}><time dateTime=${line.timestamp}>${clock(
            line.timestamp,
          )}</time><span class="lv">${line.level}</span><span>${line.message} <span class="at">${dataOf(
            line.data,
          )} ${line.stepName ?? ""}</span></span></li>
      `
    )
  }</ol>`;

/** @param {any} line */
const keyOf = (line) => `${line.timestamp} ${line.level} ${line.stepName} ${line.message}`;

/** @param {any} data */
function dataOf(data) {
  if (data === null || data === undefined) return "";
  if (typeof data !== "object" || Array.isArray(data)) return JSON.stringify(data);
  return Object.entries(data).map(([name, value]) =>
    `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`
  ).join(" ");
}
