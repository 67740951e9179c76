// @ts-check
import { duration, percent, plural } from "../core/format.js";
import { html } from "../core/html.js";
import { pageAt } from "../core/location.js";
import { Shape } from "./icons.js";

/** @typedef {{ status: string, what: string, why: string, href: string, act: string }} Point */

const FAILURE_RATE = 0.05;
const DUE_MS = 60_000;
const PAUSED_MS = 86_400_000;
const SOON_MS = 3_600_000;

/**
 * What somebody should look at now, by the numbers.
 * @param {{ stats: any, workers: any, failures: any, series: any, waits: any, health: any }} data What may not be read is `null`.
 * @returns {Point[]}
 */
export function attentionOf({ stats, workers, failures, series, waits, health }) {
  const now = Date.parse(stats?.at ?? new Date().toISOString());
  /** @type {Point[]} */
  const points = [];
  if (health !== null && health.ready === false) {
    const bad = (health.checks ?? []).find((/** @type {any} */ check) => check.status === "failing");
    points.push({
      status: "failed",
      what: "This process is not ready",
      why: bad?.message ?? "See /health",
      href: "#/workers",
      act: "Workers",
    });
  }
  for (const job of stats?.jobs ?? []) points.push(...pointsOfJob(job, failures, now));
  for (const worker of workers ?? []) {
    if (worker.state !== "lost") continue;
    const name = worker.name ?? worker.hostname ?? worker.id;
    const why = worker.leases > 0 ? `Its ${plural(worker.leases, "run")} will be claimed by others` : "It held no run";
    points.push({
      status: "lost",
      what: `Worker ${name} has not been seen for ${duration(now - Date.parse(worker.lastSeenAt))}`,
      why,
      href: "#/workers",
      act: "Worker",
    });
  }
  const busy = (series?.busy ?? []).slice(-6, -1);
  const total = stats?.slots.total ?? 0;
  if (
    total > 0 && busy.length === 5 &&
    busy.every((/** @type {number | null} */ value) => value !== null && value >= total)
  ) {
    points.push({
      status: "stuck",
      what: `All ${total} slots have been in use for 5 minutes`,
      why: "Start another worker, or raise worker.concurrency",
      href: "#/workers",
      act: "Workers",
    });
  }
  const soon = (waits?.waits ?? []).filter((/** @type {any} */ wait) =>
    wait.deadlineAt !== null && Date.parse(wait.deadlineAt) - now < SOON_MS
  );
  if (soon.length > 0) {
    points.push({
      status: "waiting",
      what: `${plural(soon.length, "wait")} ${soon.length === 1 ? "times" : "time"} out within the hour`,
      why: `The first: ${soon[0].name} of ${soon[0].jobName}`,
      href: "#/waits",
      act: "See the waits",
    });
  }
  return points;
}

/** @param {any} job @param {any} failures @param {number} now @returns {Point[]} */
function pointsOfJob(job, failures, now) {
  const { jobName, byStatus, liveWorkers, oldestDue, paused, windows } = job;
  const runs = (/** @type {any} */ query) => pageAt("runs", { jobName, ...query });
  /** @type {Point[]} */
  const points = [];
  const [recent, hour] = [windows["5m"], windows["1h"]];
  if (
    recent.failureRate > FAILURE_RATE &&
    (recent.failureRate >= 2 * (hour.failureRate ?? 0) || hour.failed === recent.failed)
  ) {
    const group = failures?.groups.find((/** @type {any} */ each) => each.jobName === jobName);
    const why = group === undefined ? "" : `${group.count} with ${group.error}`;
    points.push({
      status: "failed",
      what: `${jobName}: ${percent(recent.failureRate)} of runs failed in the last 5 minutes, ${
        percent(hour.failureRate)
      } in the last hour`,
      why,
      href: runs({ status: "failed" }),
      act: `See the ${plural(recent.failed, "run")}`,
    });
  }
  const overdueMs = oldestDue === null ? 0 : now - Date.parse(oldestDue.dueSince);
  if (byStatus.pending > 0 && liveWorkers === 0) {
    const why = oldestDue === null ? "" : `The oldest has been due for ${duration(overdueMs)}`;
    points.push({
      status: "stuck",
      what: `${plural(byStatus.pending, "run")} of ${jobName} cannot start: no live worker has this job`,
      why,
      href: runs({ status: "pending" }),
      act: "See the runs",
    });
  } else if (overdueMs > DUE_MS && paused === null) {
    points.push({
      status: "stuck",
      what: `A run of ${jobName} has been due for ${duration(overdueMs)}`,
      ...(oldestDue.runId === null
        ? { why: "", href: runs({ status: "pending" }), act: "See the runs" }
        : { why: "Its page says why", href: pageAt(`runs/${oldestDue.runId}`), act: "See the run" }),
    });
  }
  if (paused !== null && now - Date.parse(paused.since) > PAUSED_MS) {
    const by = paused.by === null ? "" : ` by ${paused.by}`;
    points.push({
      status: "paused",
      what: `${jobName} has been paused for ${duration(now - Date.parse(paused.since))}${by}`,
      why: paused.note ?? "",
      href: pageAt(`jobs/${jobName}`),
      act: "See the job",
    });
  }
  return points;
}

/** @param {{ points: Point[] }} props */
export function Attention({ points }) {
  return html`
    <section class="panel"
      aria-labelledby="attention"><header><h2 id="attention">Needs attention</h2>${points.length > 0 &&
        html`<span class="badge alert">${points.length}</span>`}</header>${points.length === 0
        ? html`<p class="pad muted">Nothing needs attention.</p>`
        : html`<ul class="attention">${
          points.map((point) =>
            html`
              <li key=${point.what}
                data-s=${point.status}><${Shape} status=${point.status} /><div><p class="what">${point
                  .what}</p><p class="small muted">${point.why}</p></div><a class="act button" href=${point
                  .href}>${point.act}</a></li>
            `
          )
        }</ul>`}</section>
  `;
}
