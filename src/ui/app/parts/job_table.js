// @ts-check
import { duration, number, percent } from "../core/format.js";
import { html } from "../core/html.js";
import { pageAt } from "../core/location.js";
import { useData } from "../core/use_data.js";
import { FAILURE_RATE } from "./attention.js";
import { MiniBars } from "./charts.js";
import { Status } from "./icons.js";

const COLUMNS = ["Pending", "Running", "Waiting", "Per minute", "Failed", "Median / p95"];
const BARS = 20;

/** Jobs with their numbers. @param {{ jobs: any[], window: "5m" | "1h", hasBars: boolean }} props */
export function JobTable({ jobs, window, hasBars }) {
  if (jobs.length === 0) return html`<p class="pad muted">There are no jobs yet.</p>`;
  return html`
    <div class="scroll">
      <table class="jobs">
        <thead>
          <tr><th scope="col">Job</th>${hasBars && html`<th scope="col">Ended</th>`}${COLUMNS.map((name) =>
            html`<th scope="col" class="num" key=${name}>${name}</th>`
          )}</tr>
        </thead>
        <tbody>${jobs.map((job) => {
          const { byStatus, windows: { [window]: rates } } = job;
          const cells = [
            number(byStatus.pending),
            number(byStatus.running + byStatus.leased),
            number(byStatus.waiting),
            rates.perMinute.toFixed(1).replace(".0", ""),
            percent(rates.failureRate),
            rates.duration === null ? "–" : `${duration(rates.duration.p50)} / ${duration(rates.duration.p95)}`,
          ];
          return html`
            <tr
              key=${job.jobName}><td><a class="name" data-row href=${pageAt(`jobs/${job.jobName}`)}>${job
                .jobName}</a> <${JobState} job=${job} /></td>${hasBars && html`
                <td class="sparkcell">
                  <${Bars} jobName=${job.jobName} />
                </td>
              `}${cells.map((cell, n) =>
                html`<td key=${n} class=${["0", "0 %", "–"].includes(cell) ? "num zero" : "num"} data-h=${COLUMNS[n]}>${
                  n === 4 && rates.failureRate > FAILURE_RATE ? html`<strong class="bad">${cell}</strong>` : cell
                }</td>`
              )}</tr>
          `;
        })}</tbody>
      </table>
    </div>
  `;
}

/** Whether a job is paused, or has no worker. @param {{ job: any }} props */
export function JobState({ job: { paused, liveWorkers, byStatus } }) {
  if (paused !== null) {
    return html`<${Status} status="paused"><span class="tiny">paused${
      paused.by === null ? "" : ` by ${paused.by}`
    }</span><//>`;
  }
  if (liveWorkers === 0 && byStatus.pending > 0) {
    return html`<${Status} status="lost"><span class="tiny">no worker</span><//>`;
  }
  return null;
}

/** @param {{ jobName: string }} props */
function Bars({ jobName }) {
  const { data } = useData("series", { window: "1h", jobName }, 30_000);
  return data && html`<${MiniBars} done=${data.completed.slice(-BARS)} failed=${data.failed.slice(-BARS)} />`;
}
