// @ts-check
import { plural } from "../core/format.js";
import { html } from "../core/html.js";
import { Ago } from "./basics.js";
import { Status } from "./icons.js";

/** The name by which people know a worker. @param {any} worker */
export const nameOf = (worker) => worker.name ?? worker.hostname ?? worker.id;

/** How many slots are in use. @param {{ worker: any }} props */
export const Meter = ({ worker }) =>
  html`<span class="meter" aria-hidden="true"><i style=${{
    width: `${Math.min(100, worker.leases / Math.max(1, worker.concurrency) * 100)}%`,
  }} /></span>`;

/** Workers in few words. @param {{ workers: any[] }} props */
export function WorkerRows({ workers }) {
  if (workers.length === 0) return html`<p class="pad muted">No worker is running.</p>`;
  return html`<ul class="rows">${
    workers.map((worker) =>
      html`
        <li key=${worker.id}
          data-s=${worker.state}><span><${Status} status=${worker.state}>${nameOf(
            worker,
          )}<//></span><span class="small nowrap">${worker.leases} of ${worker
            .concurrency}</span><span class="tiny muted">${worker.state === "lost"
            ? "not seen since "
            : `${plural(worker.jobs.length, "job")} · seen `}<${Ago} at=${worker
            .lastSeenAt} /></span><${Meter} worker=${worker} /></li>
      `
    )
  }</ul>`;
}
