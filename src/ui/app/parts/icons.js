// @ts-check
import { html } from "../core/html.js";
import { capital } from "../core/format.js";

/** @type {Record<string, string>} */
const PATHS = {
  overview: "M2 9.5 5 6l3 2.5L14 3M2 13.5h12",
  runs: "M5.5 4h8.5M5.5 8h8.5M5.5 12h8.5M2.25 4h.01M2.25 8h.01M2.25 12h.01",
  waits: "M4 2h8M4 14h8M5 2v2.5L8 8l3-3.5V2M5 14v-2.5L8 8l3 3.5V14",
  jobs: "M2.5 5.5h11v8h-11zM5.5 5.5v-2h5v2M2.5 9h11",
  schedules: "M8 4.5V8l2.5 1.5M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0Z",
  workers: "M3 3h10v4H3zM3 9h10v4H3zM5.5 5h.01M5.5 11h.01",
  more: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  search: "M11 11l3 3M12.5 7.25a5.25 5.25 0 1 1-10.5 0 5.25 5.25 0 0 1 10.5 0Z",
  copy: "M5.5 5.5h8v8h-8zM3 10.5H2.5v-8h8V3",
  close: "M4 4l8 8M12 4l-8 8",
  alert: "M8 4.5v4M8 11h.01M8 14.5A6.5 6.5 0 1 0 8 1.5a6.5 6.5 0 0 0 0 13Z",
};

/** A drawing; the words beside it say what it means. @param {{ name: string }} props */
export const Icon = ({ name }) =>
  html`
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true">
      <path d=${PATHS[name]} />
    </svg>
  `;

// Each status has a shape of its own, so that it is told apart without colours.
/** @type {Record<string, () => object>} */
const SHAPES = {
  pending: () => html`<circle cx="8" cy="8" r="6" stroke-dasharray="2.6 2.1" />`,
  running: () =>
    html`
      <g>
        <circle cx="8" cy="8" r="6" opacity=".3" />
        <path d="M8 2a6 6 0 0 1 6 6" class="spin" />
      </g>
    `,
  waiting: () =>
    html`
      <g>
        <circle cx="8" cy="8" r="6" />
        <path d="M6.5 5.75v4.5M9.5 5.75v4.5" />
      </g>
    `,
  sleeping: () => html`<path d="M13.5 9.6A5.8 5.8 0 1 1 6.4 2.5a4.6 4.6 0 0 0 7.1 7.1Z" />`,
  retrying: () => html`<path d="M13 3v3.5H9.5M12.8 6.3A5.4 5.4 0 1 0 13.4 9" />`,
  completed: () =>
    html`
      <g>
        <circle cx="8" cy="8" r="6.7" class="disc" />
        <path d="M5.2 8.2l2 2 3.7-4.2" class="cut" />
      </g>
    `,
  failed: () =>
    html`
      <g>
        <circle cx="8" cy="8" r="6.7" class="disc" />
        <path d="M5.7 5.7l4.6 4.6M10.3 5.7l-4.6 4.6" class="cut" />
      </g>
    `,
  cancelled: () =>
    html`
      <g>
        <circle cx="8" cy="8" r="6" />
        <path d="M4 12 12 4" />
      </g>
    `,
  paused: () => html`<path d="M5.5 3.5v9M10.5 3.5v9" stroke-width="2.4" />`,
  lost: () =>
    html`
      <g>
        <path d="M8 1.8 15 14H1Z" />
        <path d="M8 6v3.6M8 11.8h.01" />
      </g>
    `,
};
/** @type {Record<string, string>} */
const SAME = { leased: "running", live: "completed", stopping: "cancelled", held: "lost", stuck: "lost" };

/** The shape of a status. @param {{ status: string }} props */
export const Shape = ({ status }) =>
  html`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true">${
    (SHAPES[SAME[status] ?? status] ?? SHAPES.pending)?.()
  }</svg>`;

/**
 * A status: a shape, a word and a colour.
 * @param {{ status: string, isPill?: boolean, children?: any }} props
 */
export const Status = ({ status, isPill, children }) =>
  html`<span class=${isPill ? "status pill" : "status"} data-s=${status}><${Shape} status=${status} /><span>${
    children ?? capital(status)
  }</span></span>`;
