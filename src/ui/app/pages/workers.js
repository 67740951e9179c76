// @ts-check
import { html } from "../core/html.js";
import { pageAt } from "../core/location.js";
import { useData } from "../core/use_data.js";
import { Ago, Copy, Problem } from "../parts/basics.js";
import { Status } from "../parts/icons.js";
import { Meter, nameOf } from "../parts/worker_rows.js";

/** @type {Record<string, number>} */
const ORDER = { lost: 0, stopping: 1, live: 2 };
const MAX_JOBS = 12;

/** The workers, lost ones first. */
export function WorkersPage() {
  const { data, error } = useData("workers", {}, 5_000);
  const workers = (data ?? []).toSorted((/** @type {any} */ one, /** @type {any} */ other) =>
    (ORDER[one.state] ?? 0) - (ORDER[other.state] ?? 0)
  );
  return html`
    <div class="head">
      <h1>Workers</h1>
    </div>
    <${Problem} error=${error} />
    <section class="panel" aria-label="List of workers">${data !== null && workers.length === 0
      ? html`<p class="pad muted">No worker is running.</p>`
      : html`<ul class="cards">${
        workers.map((/** @type {any} */ worker) =>
          html`
            <li key=${worker.id} data-s=${worker.state}>
              <div
                class="head"><h2 data-row tabindex="-1">${nameOf(worker)}</h2><${Status} status=${worker
                  .state} isPill=${true} /><span class="small muted push">seen <${Ago} at=${worker
                  .lastSeenAt} /></span></div>
              <dl class="facts">
                <div>
                  <dt>Slots in use</dt>
                  <dd>${worker.leases} of ${worker.concurrency}<${Meter} worker=${worker} /></dd>
                </div>
                <div>
                  <dt>Host</dt>
                  <dd>${worker.hostname ?? "not known"}<small>${worker.pid === null
                    ? ""
                    : `pid ${worker.pid}`}</small></dd>
                </div>
                <div>
                  <dt>Runtime</dt>
                  <dd>${worker.runtime}<small>Holdfast ${worker.version}</small></dd>
                </div>
                <div>
                  <dt>Deployment</dt>
                  <dd>${worker.deployment ?? "–"}</dd>
                </div>
                <div>
                  <dt>Started</dt>
                  <dd>
                    <${Ago} at=${worker.startedAt} />
                  </dd>
                </div>
              </dl>
              <p class="small muted chips">${worker.jobs.slice(0, MAX_JOBS).map((/** @type {string} */ name) =>
                html`<a class="chip" key=${name} href=${pageAt(`jobs/${name}`)}>${name}</a>`
              )}${worker.jobs.length > MAX_JOBS
                ? `and ${worker.jobs.length - MAX_JOBS} more`
                : ""} ${worker.leases > 0 && html`<a class="chip" href="#/runs?status=running">running runs</a>`}</p>
              <p class="tiny muted mono">${worker.id}<${Copy} text=${worker.id} label="Copy the id of the worker" /></p>
            </li>
          `
        )
      }</ul>`}</section>
  `;
}
