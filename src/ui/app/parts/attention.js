// @ts-check
import { post } from "../core/api.js";
import { duration, number, percent, plural } from "../core/format.js";
import { html } from "../core/html.js";
import { pageAt } from "../core/location.js";
import { useState } from "../vendor/hooks.js";
import { ActButton, Ago, Problem } from "./basics.js";
import { eachPart } from "./bulk.js";
import { Shape } from "./icons.js";

/**
 * @typedef {{ key: string, status: string, at: string, what: string, why: string, href: string, act: string, hold?: any }} Point
 * `key`: what it is about, whatever its numbers: so a link keeps the focus. `at`: since when, or when it happened last.
 * `hold`: a group of held runs that can be resumed.
 */

/** A failure rate above this, from 0 to 1, needs attention. */
export const FAILURE_RATE = 0.05;
const DUE_MS = 60_000;
const SHOWN_GROUPS = 3;
/** @type {Record<string, string>} */
const WHY = {
  writes: "What is triggered or done meanwhile can be lost",
  outbox:
    "The column error of a row says why it was refused: delete it when you have looked. One without an error waits for an engine that has its job",
};
// What other points say with more detail.
const COVERED = ["lost_workers", "due_runs", "held_runs"];

/**
 * What somebody should look at now, the newest first.
 * @param {{ stats: any, workers: any, failures: any, failed: number, ends: any, day: any, series: any, waits: any, health: any, schedules: any, held: any, since: string }} data
 * What may not be read is `null`. `failures` are those of the last hour; `failed`: how many of them no retry has mended;
 * `ends`: clean-ups that failed, the newest first;
 * `day`: the series of the last day.
 * @returns {Point[]}
 */
export function attentionOf(
  { stats, workers, failures, failed, ends, day, series, waits, health, schedules, held, since },
) {
  const { at, jobs, slots } = stats;
  const now = Date.parse(at);
  /** @type {Point[]} */
  const points = [];
  const add = (/** @type {Partial<Point> & { key: string }} */ point) =>
    points.push({ at, why: "", href: "#/workers", act: "See the workers", status: "failed", what: "", ...point });
  for (const { name, status, message } of health?.checks ?? []) {
    if (status === "ok" || COVERED.includes(name)) continue;
    const what = health.ready || status === "degraded" ? message : `This process is not ready: ${message}`;
    add({
      key: `check ${name}`,
      status: status === "failing" ? "failed" : "stuck",
      what,
      why: WHY[name] ?? "",
      ...(name === "outbox" ? { href: "" } : {}),
    });
  }
  for (const group of held?.groups ?? []) {
    const { jobName, message, remedy, count, since } = group;
    add({
      key: `held ${jobName} ${message}`,
      status: "held",
      at: since,
      what: `${plural(count, "run")} of ${jobName} ${count === 1 ? "is" : "are"} held: ${reasonOf(message, remedy)}`,
      why: remedy ?? "Deploy code that fits what they have recorded, then resume them",
      href: pageAt("runs", { jobName, held: true }),
      act: count === 1 ? "See the run" : "See the runs",
      hold: group,
    });
  }
  if (held === null && stats.held) {
    const what = `${plural(stats.held.runs, "run")} ${stats.held.runs === 1 ? "is" : "are"} held`;
    add({ key: "held", status: "held", at: stats.held.since, what, href: "#/runs?held=true", act: "See the runs" });
  }
  const usual = usualOf(day);
  const { failureRate } = stats.windows["1h"];
  if (failed > 0 && (failed > 2 * usual || failureRate > FAILURE_RATE)) {
    const groups = failures?.groups ?? [];
    const shown = groups.slice(0, SHOWN_GROUPS).map((/** @type {any} */ group) =>
      `${number(group.count)} of ${group.jobName}: ${group.error || "no message"}`
    );
    add({
      key: "failures",
      at: groups.map((/** @type {any} */ { lastAt }) => lastAt).sort().at(-1) ?? at,
      what: `${plural(failed, "run")} failed in the last hour${
        failureRate === null ? "" : ` (${percent(failureRate)})`
      }, ${usual === 0 ? "usually none" : `usually ${Number(usual.toFixed(usual < 10 ? 1 : 0))}`}`,
      why: shown.join(" · "),
      href: pageAt("runs", { status: "failed", retried: false, completedAfter: since, ends: "shown" }),
      act: failed === 1 ? "See the run" : "See the runs",
    });
  }
  if (ends?.total > 0) {
    const [newest] = ends.runs;
    const isOne = ends.total === 1;
    add({
      key: "clean-ups",
      at: newest.completedAt,
      what: `${plural(ends.total, "clean-up")} failed`,
      why: `What ${isOne ? "its run has" : "their runs have"} done is not undone · ${newest.jobName}: ${newest.error}`,
      href: isOne ? pageAt(`runs/${newest.id}`) : pageAt("runs", { status: "failed", retried: false, ends: "only" }),
      act: isOne ? "See the run" : "See the runs",
    });
  }
  for (const job of jobs) pointsOfJob(job, now, add);
  for (const worker of workers ?? []) {
    if (worker.state !== "lost") continue;
    add({
      key: `worker ${worker.id}`,
      status: "lost",
      at: worker.lastSeenAt,
      what: `Worker ${worker.name ?? worker.hostname ?? worker.id} has not been seen for ${
        duration(now - Date.parse(worker.lastSeenAt))
      }`,
      why: worker.leases > 0 ? `Its ${plural(worker.leases, "run")} will be claimed by others` : "It held no run",
    });
  }
  const busy = (series?.busy ?? []).slice(-6, -1);
  if (
    slots.total > 0 && busy.length === 5 &&
    busy.every((/** @type {number | null} */ value) => (value ?? 0) >= slots.total)
  ) {
    add({
      key: "slots",
      status: "stuck",
      what: `All ${slots.total} slots have been in use for 5 minutes`,
      why: "Start another worker, or raise worker.concurrency",
    });
  }
  const half = (waits?.waits ?? []).flatMap((/** @type {any} */ { createdAt, deadlineAt }) => {
    const ms = deadlineAt === null ? Infinity : (Date.parse(createdAt) + Date.parse(deadlineAt)) / 2;
    return ms <= now ? [ms] : [];
  });
  if (half.length > 0) {
    const [first] = waits.waits;
    add({
      key: "waits",
      status: "waiting",
      at: new Date(Math.max(...half)).toISOString(),
      what: `${plural(half.length, "wait")} ${half.length === 1 ? "is" : "are"} over half of ${
        half.length === 1 ? "its" : "their"
      } time`,
      why: `The first to time out, in ${
        duration(Math.max(0, Date.parse(first.deadlineAt) - now))
      }: ${first.name} of ${first.jobName}`,
      href: "#/waits",
      act: half.length === 1 ? "See the wait" : "See the waits",
    });
  }
  for (const { name, dueSince, error } of schedules ?? []) {
    const lateMs = dueSince === null ? 0 : now - Date.parse(dueSince);
    if (error === null && lateMs < DUE_MS) continue;
    add({
      key: `schedule ${name}`,
      status: "stuck",
      at: dueSince ?? at,
      what: error === null
        ? `Schedule ${name} has missed its slot ${duration(lateMs)} ago`
        : `Schedule ${name} cannot fire: ${error}`,
      why: error === null ? "No engine that declares it is running" : "",
      href: "#/schedules",
      act: "See the schedules",
    });
  }
  return points.sort((one, other) => one.at < other.at ? 1 : one.at > other.at ? -1 : 0);
}

/** Why a run is held, without what stands beside it. @param {string} message @param {string | null} [remedy] */
const reasonOf = (message, remedy) => message.replace(/^Held: /, "").replace(remedy ?? "", "").replace(/[. ]+$/, "");

/** How many runs fail in an hour, by the hours of the last day before this one that have any number. @param {any} day */
function usualOf(day) {
  if (day === null) return 0;
  const perHour = 3_600_000 / day.stepMs;
  /** @type {[failed: number, completed: number][]} */
  const slots = day.failed.map((/** @type {number} */ failed, /** @type {number} */ n) => [failed, day.completed[n]])
    .slice(0, -perHour);
  const first = slots.findIndex(([failed, completed]) => failed + completed > 0);
  if (first === -1) return 0;
  return slots.reduce((sum, [failed]) => sum + failed, 0) / (slots.length - first) * perHour;
}

/** @param {any} job @param {number} now @param {(point: Partial<Point> & { key: string }) => void} add */
function pointsOfJob({ jobName, byStatus, liveWorkers, oldestDue, paused, limits }, now, add) {
  const key = `job ${jobName}`;
  const toRuns = { href: pageAt("runs", { jobName, status: "pending" }), act: "See the runs" };
  const overdueMs = oldestDue === null ? 0 : now - Date.parse(oldestDue.dueSince);
  if (paused !== null) {
    add({
      key,
      status: "paused",
      at: paused.since,
      what: `${jobName} has been paused for ${duration(now - Date.parse(paused.since))}${
        paused.by === null ? "" : ` by ${paused.by}`
      }`,
      why: [paused.note, byStatus.pending > 0 && `${plural(byStatus.pending, "run")} pending`].filter(Boolean).join(
        " · ",
      ),
      href: pageAt(`jobs/${jobName}`),
      act: "See the job",
    });
  } else if (oldestDue !== null && liveWorkers === 0) {
    add({
      key,
      status: "stuck",
      at: oldestDue.dueSince,
      what: `${plural(byStatus.pending, "run")} of ${jobName} cannot start: no live worker has this job`,
      why: `The oldest has been due for ${duration(overdueMs)}`,
      ...toRuns,
    });
  } else if (overdueMs > DUE_MS && !limits?.opensAt) { // a job that waits for its rate needs nobody
    add({
      key,
      status: "stuck",
      at: oldestDue.dueSince,
      what: `A run of ${jobName} has been due for ${duration(overdueMs)}`,
      ...(oldestDue.runId === null
        ? toRuns
        : { why: "Its page says why", href: pageAt(`runs/${oldestDue.runId}`), act: "See the run" }),
    });
  }
}

/** @param {{ points: Point[], reload: () => void }} props */
export function Attention({ points, reload }) {
  return html`
    <section class="panel"
      aria-labelledby="attention"><header><h2 id="attention">Needs attention</h2>${points.length > 0 &&
        html`<span class="badge alert">${points.length}</span>`}</header>${points.length === 0
        ? html`<p class="pad muted">Nothing needs attention.</p>`
        : html`<ul class="attention">${
          points.map((point) =>
            html`
              <li key=${point.key}
                data-s=${point.status}>
                <${Shape} status=${point.status} />
                <div>
                  <p class="what">${point
                    .what}</p>
                  <p class="small muted"><${Ago} at=${point.at} />${point.why && ` · ${point.why}`}</p>
                </div>
                <div
                  class="act buttons">${point.hold &&
                    html`<${Resume} group=${point.hold} onDone=${reload} />`}${point.href &&
                    html`<a class="button" data-row href=${point.href}>${point.act}</a>`}</div>
              </li>
            `
          )
        }</ul>`}</section>
  `;
}

/** Resumes a group of held runs, or one of them to see whether it goes on. @param {{ group: any, onDone: () => void }} props */
export function Resume({ group: { jobName, message, count, runIds }, onDone }) {
  const [error, setError] = useState(/** @type {any} */ (null));
  const one = async () => {
    await post("resume", { runId: runIds[0] });
    onDone();
  };
  const all = async () => {
    await eachPart("resume", { filter: { held: true, jobName, error: message } });
    onDone();
  };
  return html`<${ActButton} act=${one} onError=${setError}>Resume one<//>${
    count > 1 && html`<${ActButton} class="primary" act=${all} onError=${setError}>Resume all<//>`
  }<${Problem} error=${error} />`;
}
