// @ts-check
import { clock, duration, number, until } from "../core/format.js";
import { html } from "../core/html.js";
import { pageAt } from "../core/location.js";
import { useNow } from "../core/use_data.js";
import { Shape } from "../parts/icons.js";
import { Ask } from "../parts/ask.js";

/** @type {Record<string, string>} */
const STATUS = {
  executing: "running",
  due: "pending",
  sleep: "sleeping",
  signal: "waiting",
  message: "waiting",
  child: "waiting",
  retry: "retrying",
  job_paused: "paused",
  worker_lost: "lost",
  no_worker: "lost",
  unknown_job: "lost",
  held: "lost",
  held_child: "lost",
  late: "lost",
  parent_ended: "cancelled",
};

/**
 * Why a run does not go on, with the form that answers its wait.
 * @param {{ run: any, explanation: any, waits: any[], reload: () => void, onError: (error: any) => void }} props
 */
export function WhyBanner({ run, explanation, waits, reload, onError }) {
  const now = useNow();
  if (explanation === null || run.isTerminal) return null;
  const [first, ...others] = explanation.reasons;
  const open = waits.filter((wait) => wait.status === "pending" && wait.suspendedAt !== null);
  return html`<section class="banner" data-s=${STATUS[first.kind] ?? "pending"} aria-label="Why it is not running">
    <div class="why"><${Shape} status=${STATUS[first.kind] ?? "pending"} /><p class="what">${
    titleOf(first, waits, now)
  }</p>
      <p class="small muted">${detailOf(first, now)} ${linkOf(first)}</p>${
    others.map((/** @type {any} */ reason) =>
      html`<p class="small muted">Also: ${reason.message} ${linkOf(reason)}</p>`
    )
  }</div>${
    open.map((wait) => html`<${Ask} key=${wait.id} wait=${wait} onDone=${reload} onLate=${onError} />`)
  }</section>`;
}

/** @param {any} reason @param {any[]} waits @param {number} now */
function titleOf(reason, waits, now) {
  if (reason.kind !== "signal" && reason.kind !== "message") return reason.message;
  const isSignal = reason.kind === "signal";
  const since = isSignal ? waits.find((each) => each.id === reason.waitId)?.suspendedAt ?? null : reason.since;
  const what = isSignal
    ? `signal to “${reason.name}”`
    : `message ${reason.names.map((/** @type {string} */ name) => `“${name}”`).join(" or ")}`;
  return `Waiting for a ${what}${
    since === null ? "" : ` for ${duration(Math.floor((now - Date.parse(since)) / 1_000) * 1_000)}`
  }`;
}

/** @param {any} reason @param {number} now */
function detailOf(reason, now) {
  const free = "The run holds no worker slot, no lease and no concurrency key meanwhile.";
  switch (reason.kind) {
    case "signal":
    case "message":
      return `${reason.deadlineAt === null ? "It has no deadline." : `Times out ${until(reason.deadlineAt, now)}.`} ${
        reason.unread > 0 ? `Unread messages of other names: ${number(reason.unread)}. ` : ""
      }${free}`;
    case "sleep":
      return `It goes on ${until(reason.until, now)}. ${free}`;
    case "delayed":
      return `It may start ${until(reason.until, now)}.`;
    case "retry":
      return `The next attempt is ${until(reason.at, now)}. It failed with: ${reason.error}`;
    case "executing":
      return `Since ${clock(reason.since)}. Its lease lasts until ${
        clock(reason.leaseExpiresAt)
      }, unless it is renewed.`;
    case "job_paused":
      return reason.note ?? "Resume the job, and its runs are claimed again.";
    case "no_worker":
      return "Start a process with a worker.";
    case "unknown_job":
      return "Start a worker that has this job in this version.";
    case "held_child":
      return reason.count > 1 ? `${number(reason.count)} of its children are held.` : "";
    case "held":
      return "Deploy code that fits what the run has recorded, then resume it.";
    case "worker_lost":
      return "The next claim takes the run over, and goes on after the recorded steps.";
    case "slots":
      return "Start another worker, or raise worker.concurrency.";
    default:
      return "";
  }
}

/** @param {any} reason */
function linkOf(reason) {
  const runId = reason.kind === "key" ? reason.holder?.runId : reason.runId;
  if (runId) return html`<a href=${pageAt(`runs/${runId}`)}>Open that run</a>`;
  if (reason.kind === "job_paused" || reason.kind === "limit") return html`<a href="#/jobs">See the jobs</a>`;
  if (reason.kind === "no_worker" || reason.kind === "slots") return html`<a href="#/workers">See the workers</a>`;
  return null;
}

/** Why a run failed, with its stack for those who may see it. @param {{ run: any, timeline: any, failures: any }} props */
export function FailureBanner({ run, timeline, failures }) {
  if (run.status !== "failed") return null;
  const failure = failures?.run ?? null;
  const step = timeline?.rows.find((/** @type {any} */ row) => row.kind === "step" && row.name === run.failedStepName);
  const attempts = step?.spans.filter((/** @type {any} */ span) => span.kind === "active").length ?? 0;
  const last = failures?.steps.findLast((/** @type {any} */ each) => each.name === run.failedStepName)?.failure;
  const allowed = last?.maxAttempts > attempts ? ` of ${last.maxAttempts}` : "";
  return html`<section class="banner error" data-s="failed" aria-label="Error"><div class="why"><${Shape} status="failed" />
    <p class="what">${
    run.failedStepName === undefined
      ? "The run failed"
      : `The step “${run.failedStepName}” failed${
        attempts > 1 || allowed ? ` after ${attempts}${allowed} attempts` : ""
      }`
  }</p>
    <p class="msg">${failure === null ? run.error : `${failure.name}: ${failure.message}`}</p></div>${
    failure !== null && html`
      <details class="under">
        <summary>Stack${failure.cause ? " and cause" : ""}</summary>
        <pre tabindex="0">${stackOf(failure)}</pre>
      </details>
    `
  }</section>`;
}

/** @param {any} failure @returns {string} */
function stackOf(failure) {
  const causes = Array.isArray(failure.cause) ? failure.cause : failure.cause ? [failure.cause] : [];
  const own = failure.stack ?? `${failure.name}: ${failure.message}`;
  return [own, ...causes.map((/** @type {any} */ cause) => `Caused by: ${stackOf(cause)}`)].join("\n");
}
