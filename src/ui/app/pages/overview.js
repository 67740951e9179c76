// @ts-check
import { useChanges } from "../core/changes.js";
import { countOfWaits, duration, number, percent, plural } from "../core/format.js";
import { html } from "../core/html.js";
import { pageAt } from "../core/location.js";
import { useData } from "../core/use_data.js";
import { Attention, attentionOf } from "../parts/attention.js";
import { Ago, Panel, Problem, Segments } from "../parts/basics.js";
import { EndedChart, filled, LatencyChart, Spark } from "../parts/charts.js";
import { Status } from "../parts/icons.js";
import { JobTable } from "../parts/job_table.js";
import { WorkerRows } from "../parts/worker_rows.js";
import { useEffect, useState } from "../vendor/hooks.js";

const WINDOWS = /** @type {const} */ ([["5m", "5 min"], ["1h", "1 h"], ["24h", "24 h"]]);
const MAX_JOBS = 8;
const MAX_ROWS = 5;
const SLOTS_OF_5_MINUTES = 6;

/** What needs attention, and how it is going. @param {{ onLive: (isLive: boolean) => void }} props */
export function OverviewPage({ onLive }) {
  const [window, setWindow] = useState("1h");
  const { data: stats, error, reload } = useData("stats");
  const { data: whole } = useData("series", { window: window === "24h" ? "24h" : "1h" });
  const { data: failures } = useData("failures");
  const { data: workers } = useData("workers");
  const { data: waits } = useData("waits/open", { limit: 50 }, 5_000);
  const { data: health } = useData("health", {}, 20_000);
  const isLive = useChanges({}, reload);
  useEffect(() => onLive(isLive), [isLive]);
  const title = html`
    <div class="head">
      <h1>Overview</h1>
      <div class="push">
        <${Segments} label="Rates and charts over" choices=${WINDOWS} value=${window} onChange=${setWindow} />
      </div>
    </div>
  `;
  if (stats === null) return html`${title}<${Problem} error=${error} />`;
  const series = window === "5m" && whole !== null ? lastOf(whole, SLOTS_OF_5_MINUTES) : whole;
  const rates = window === "5m" ? "5m" : "1h";
  const jobs = stats.jobs.toSorted((/** @type {any} */ one, /** @type {any} */ other) =>
    weightOf(other) - weightOf(one)
  ).slice(0, MAX_JOBS);
  const points = attentionOf({ stats, workers, failures, series: whole, waits, health });
  return html`
    ${title}<${Attention} points=${points} /><${Tiles} stats=${stats} series=${series} rates=${stats.windows[rates]}
      waits=${waits} />
        ${series !== null && html`
          <div class="charts">
            <${EndedChart} series=${series} />
            <${LatencyChart} title="Start delay" series=${series} of=${series.startDelay} />
          </div>
        `}
        <${Panel} title="Jobs" aside=${rates === "5m"
          ? "last 5 minutes"
          : "last hour"} actions=${html`<a class="small" href="#/jobs">All jobs</a>`}>
      <${JobTable} jobs=${jobs} window=${rates} hasBars=${true} />
      <//>
      <div class="cols">${failures !== null && html`
        <${Panel} title="Failures by error" aside=${`of the newest ${
          number(failures.examined)
        }`} actions=${html`<a class="small" href="#/runs?status=failed">All failed runs</a>`}>
          <${FailureRows} groups=${failures.groups.slice(0, MAX_ROWS)} />
          <//>
      `}${workers !== null && html`
        <${Panel} title="Workers" actions=${html`<a class="small" href="#/workers">All workers</a>`}>
          <${WorkerRows} workers=${workers.slice(0, MAX_ROWS)} />
          <//>
      `}</div>
  `;
}

/** @param {any} job */
const weightOf = ({ windows, byStatus }) =>
  windows["1h"].perMinute * 60 + byStatus.pending + byStatus.running + byStatus.leased;

/** @param {any} series @param {number} slots */
function lastOf(series, slots) {
  const cut = (/** @type {any} */ value) =>
    Array.isArray(value)
      ? value.slice(-slots)
      : typeof value === "object" && value !== null
      ? { p50: value.p50.slice(-slots), p95: value.p95.slice(-slots) }
      : value;
  const from = new Date(Date.parse(series.from) + (series.completed.length - slots) * series.stepMs).toISOString();
  return { ...Object.fromEntries(Object.entries(series).map(([name, value]) => [name, cut(value)])), from };
}

/** @param {{ stats: any, series: any, rates: any, waits: any }} props */
function Tiles({ stats: { byStatus, jobs, slots, at }, series, rates, waits }) {
  const due = jobs.map((/** @type {any} */ job) => job.oldestDue?.dueSince).filter(Boolean).sort()[0];
  const open = waits === null ? "" : `${countOfWaits(waits)} for a signal`;
  const ended = rates.completed + rates.failed;
  const tiles = /** @type {const} */ ([
    [
      "pending",
      byStatus.pending,
      due === undefined ? "nothing is due" : `oldest due for ${duration(Date.parse(at) - Date.parse(due))}`,
      series?.pending,
    ],
    [
      "running",
      byStatus.running + byStatus.leased,
      `${number(slots.busy)} of ${plural(slots.total, "slot")}`,
      series?.running,
    ],
    ["waiting", byStatus.waiting, open, series?.waiting],
    [
      "completed",
      byStatus.completed,
      `${rates.perMinute.toFixed(1).replace(".0", "")} ended per minute`,
      series?.completed,
    ],
    [
      "failed",
      byStatus.failed,
      ended === 0 ? "none ended lately" : `${percent(rates.failureRate)} of those that ended`,
      series?.failed,
    ],
  ]);
  return html`<section class="panel tiles" aria-label="Counts">${
    tiles.map(([status, count, words, values]) =>
      html`
        <a class="tile" key=${status}
          href=${pageAt("runs", { status })}><span><${Status} status=${status} /></span><span class="n">${number(
            count,
          )}</span><span class="sub tiny muted">${words}</span><${Spark} values=${filled(
            values ?? [0, 0],
          )} status=${status} /></a>
      `
    )
  }</section>`;
}

/** Failures, grouped by their errors. @param {{ groups: any[] }} props */
export function FailureRows({ groups }) {
  if (groups.length === 0) return html`<p class="pad muted">No run has failed.</p>`;
  return html`<ul class="rows">${
    groups.map((group) =>
      html`
        <li
          key=${`${group.jobName} ${group.stepName} ${group.error}`}><a class="err" href=${pageAt(
            `runs/${group.runIds[0]}`,
          )} title=${group.error}>${group.error || "no message"}</a><strong>${number(
            group.count,
          )}</strong><span class="tiny muted">${group.jobName}${group.stepName === null
            ? ""
            : `, step ${group.stepName}`}</span><span class="tiny muted nowrap"><${Ago} at=${group
            .lastAt} /></span></li>
      `
    )
  }</ul>`;
}
