// @ts-check
import { useChanges } from "../core/changes.js";
import { addressOf, get } from "../core/api.js";
import { countOfWaits, duration, number, percent, plural } from "../core/format.js";
import { html } from "../core/html.js";
import { pageAt } from "../core/location.js";
import { getWaits, useData } from "../core/use_data.js";
import { Attention, attentionOf } from "../parts/attention.js";
import { Ago, Copy, Guarded, Panel, Problem, Segments } from "../parts/basics.js";
import { EndedChart, filled, LatencyChart, Spark } from "../parts/charts.js";
import { endsOf } from "../parts/ends.js";
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
  const ofStats = useData("stats");
  const { data: stats, error, reload } = ofStats;
  const ofSeries = useData("series", { window: window === "24h" ? "24h" : "1h" });
  const ofFailures = useData("failures");
  const ofWorkers = useData("workers");
  const ofWaits = useData("waits/open", {}, 5_000, getWaits);
  const ofHealth = useData("health", {}, 20_000, getAnyway);
  const ofSchedules = useData("schedules", {}, 30_000);
  const ofDay = useData("series", { window: "24h" }, 300_000);
  const ofHeld = useData(stats?.held ? "held" : null);
  const [whole, workers, waits, day] = [ofSeries.data, ofWorkers.data, ofWaits.data, ofDay.data];
  // Rounded, so that it stays the same for a while.
  const hourAgo = new Date(Math.floor(Date.now() / 60_000 - 60) * 60_000).toISOString();
  const toDo = { status: "failed", retried: false, limit: 0 };
  const { data: failed } = useData("runs", toDo);
  const ofFailedLately = useData("runs", { ...toDo, completedAfter: hourAgo });
  const failedLately = ofFailedLately.data;
  const ofGroups = useData(failedLately?.total > 0 ? "failures" : null, { since: hourAgo });
  // Only where a run has something that cleans up after it.
  const hasEnds = endsOf(stats).some(({ byStatus }) => byStatus.failed > 0);
  const ofEnds = useData(hasEnds ? "runs" : null, { ...toDo, endRun: true, limit: 1, fields: "summary" });
  useEffect(ofHeld.reload, [stats?.held?.runs]);
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
  if (stats === null && error === null) return title;
  const series = window === "5m" && whole !== null ? lastOf(whole, SLOTS_OF_5_MINUTES) : whole;
  const rates = window === "5m" ? "5m" : "1h";
  const reloadAll = () => [reload, ofHeld.reload].forEach((each) => each());
  const sources = [ofStats, ofWorkers, ofWaits, ofHealth, ofSchedules, ofDay, ofHeld, ofFailedLately, ofGroups, ofEnds];
  const attention = html`
    <${Guarded} title="Needs attention">
      <${NeedsAttention} error=${sources.find(({ error }) => isShown(error))?.error} reload=${reloadAll} data=${stats &&
        {
          ...{ stats, workers, waits, health: ofHealth.data, schedules: ofSchedules.data, day, held: ofHeld.data },
          failures: ofGroups.data,
          failed: failedLately?.total ?? 0,
          ends: ofEnds.data,
          since: hourAgo,
          series: window === "24h" ? null : whole,
        }} />
      <//>
  `;
  if (stats?.total === 0 && (day?.triggered ?? []).every((/** @type {number} */ value) => value === 0)) {
    return html`${title}${attention}<${FirstSteps} jobs=${stats.jobs} workers=${workers} />`;
  }
  return html`
    ${title}${attention}${stats && html`
      <${Guarded} title="Counts">
        <${Tiles} stats=${stats} series=${series} rates=${rates} waits=${waits} failed=${failed} />
        <//>
    `}<div class="charts">
      <${Part} title="Ended per minute" of=${ofSeries} show=${() => html`<${EndedChart} series=${series} />`} />
      <${Part} title="Start delay" of=${ofSeries} show=${() =>
        html`<${LatencyChart} title="Start delay" series=${series} of=${series.startDelay} />`} />
    </div>
    <${Part} title="Jobs" of=${ofStats} show=${(/** @type {any} */ { jobs }) =>
      html`
        <${Panel} title="Jobs" aside=${rates === "5m"
          ? "last 5 minutes"
          : "last hour"} actions=${html`<a class="small" href="#/jobs">All jobs</a>`}>
          <${JobTable} jobs=${jobs.toSorted((/** @type {any} */ one, /** @type {any} */ other) =>
            weightOf(other) - weightOf(one)
          ).slice(0, MAX_JOBS)} window=${rates} hasBars=${true} />
          <//>
      `} />
    <div class="cols">
      <${Part} title="Failures by error" of=${ofFailures} show=${(/** @type {any} */ { examined, groups }) =>
        html`
          <${Panel} title="Failures by error" aside=${`of the newest ${
            number(examined)
          }`} actions=${html`<a class="small" href="#/runs?status=failed">All failed runs</a>`}>
            <${FailureRows} groups=${groups.slice(0, MAX_ROWS)} />
            <//>
        `} />
      <${Part} title="Workers" of=${ofWorkers} show=${(/** @type {any} */ all) =>
        html`
          <${Panel} title="Workers" actions=${html`<a class="small" href="#/workers">All workers</a>`}>
            <${WorkerRows} workers=${all.slice(0, MAX_ROWS)} />
            <//>
        `} />
    </div>
  `;
}

/** Whoever may not see something is not told so. @param {any} error */
const isShown = (error) => error !== null && error.status !== 403;

/**
 * What a route answers, or why it cannot be shown: the other parts of the page are shown all the same.
 * @param {{ title: string, of: { data: any, error: any }, show: (data: any) => any }} props
 */
function Part({ title, of: { data, error }, show }) {
  if (data !== null) {
    return html`
      <${Guarded} title=${title}>
        <${Shown} data=${data} show=${show} />
        <//>
    `;
  }
  return isShown(error) && html`
    <${Panel} title=${title}>
      <div class="pad">
        <${Problem} error=${error} />
      </div>
      <//>
  `;
}

/** @param {{ data: any, show: (data: any) => any }} props */
const Shown = ({ data, show }) => show(data);

/** @param {{ data: any, error: any, reload: () => void }} props */
function NeedsAttention({ data, error, reload }) {
  return html`${error && html`<${Problem} error=${error} />`}${
    data && html`<${Attention} points=${attentionOf(data)} reload=${reload} />`
  }`;
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

/** What to do with a store that has no run yet. @param {{ jobs: any[], workers: any[] | null }} props */
function FirstSteps({ jobs, workers }) {
  const curl = `curl -X POST '${addressOf("trigger")}' -d '{"jobName":"${jobs[0]?.jobName ?? "my-job"}","input":{}}'`;
  const isWorking = workers === null || workers.some((worker) => worker.state === "live");
  return html`
    <${Panel} title="No run yet">
      <ol
        class="pad stack tight first">${jobs.length === 0 &&
          html`<li>Give jobs to the engine: <code>createEngine({ store, jobs: { ... } })</code></li>`}${!isWorking &&
          html`<li>Start a worker: <code>await engine.start()</code></li>`}<li>Trigger a run on the page of its job, or: <code>${curl}</code><${Copy} text=${curl} label="Copy the command" words="Copy" /></li></ol>
      <//>
      <${Panel} title="Jobs">
        <${JobTable} jobs=${jobs.slice(0, MAX_JOBS)} window="1h" hasBars=${false} />
        <//>
  `;
}

/** The health also of a process that is not ready, which is a 503. @type {typeof get} */
const getAnyway = (path, query, signal) =>
  get(path, query, signal).catch((error) => {
    if (error.status === 503 && error.body.checks) return error.body;
    throw error;
  });

/** @param {{ stats: any, series: any, rates: string, waits: any, failed: any }} props */
function Tiles({ stats: { byStatus, jobs, slots, at, windows }, series, rates: window, waits, failed }) {
  const rates = windows[window];
  const due = jobs.map((/** @type {any} */ job) => job.oldestDue?.dueSince).filter(Boolean).sort()[0];
  const open = waits === null ? "" : `${countOfWaits(waits)} for a signal`;
  const ended = rates.completed + rates.failed;
  const toDo = failed === null || failed.totalIsAtLeast ? byStatus.failed : failed.total;
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
      toDo,
      toDo < byStatus.failed
        ? `${number(byStatus.failed - toDo)} more completed in a retry`
        : ended === 0
        ? "none ended lately"
        : `${percent(rates.failureRate)} of those that ended`,
      series?.failed,
    ],
  ]);
  return html`<section class="panel tiles" aria-label="Counts">${
    tiles.map(([status, count, words, values]) =>
      html`
        <a class="tile" key=${status}
          href=${pageAt(
            "runs",
            { status, ends: "shown", ...(status === "failed" ? { retried: false } : {}) },
          )}><span><${Status} status=${status} /></span><span class="n">${number(
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
  if (groups.length === 0) return html`<p class="pad muted">No failure is left to do.</p>`;
  return html`<ul class="rows">${
    groups.map((group) =>
      html`
        <li
          key=${`${group.jobName} ${group.stepName} ${group.error}`}><a class="err" data-row href=${pageAt("runs", {
            jobName: group.jobName,
            status: "failed",
            retried: false,
            error: group.error,
          })} title=${group.error}>${group.error || "no message"}</a><strong>${number(
            group.count,
          )}</strong><span class="tiny muted">${group.jobName}${group.stepName === null
            ? ""
            : `, step ${group.stepName}`}</span><span class="tiny muted nowrap"><${Ago} at=${group
            .lastAt} /></span></li>
      `
    )
  }</ul>`;
}
