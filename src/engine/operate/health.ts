import { type Host, within } from "../../model/host.ts";
import type { StoreInfo } from "../../store/operate.ts";
import type { StuckRows } from "../../model/effects.ts";
import { toFailure } from "../../model/to_failure.ts";
import { type JobInfo, startableRun, sumHeld } from "./job_info.ts";
import { SharedRead } from "./shared_read.ts";
import type { WorkerInfo } from "./worker_info.ts";
import type { StoreCondition } from "../../statistics/measured_store.ts";

/** `degraded`: it works, but somebody should look. `failing`: it does not. */
export type HealthStatus = "ok" | "degraded" | "failing";

/** One thing that was checked. */
export interface HealthCheck {
  /**
   * Its name: `store`, `worker`, `claims`, `migration`, `stopping`, `event_loop`, `lost_workers`, `due_runs`,
   * `held_runs`, `wal`, `writes`, `statistics`, `retention`, `outbox`.
   */
  name: string;
  /** The result. */
  status: HealthStatus;
  /** The result in words. */
  message: string;
  /** What was measured: milliseconds, bytes, or how many. */
  value?: number;
}

/** The health of a process. */
export interface Health {
  /** `failing` if it is not ready, otherwise the worst of the checks. */
  status: HealthStatus;
  /** Whether the process should go on: if not, restart it. */
  live: boolean;
  /** Whether it should receive requests. */
  ready: boolean;
  /** What was checked. */
  checks: HealthCheck[];
}

/** What the process itself knows, without a call to the store. */
export interface ProcessCondition extends StoreCondition {
  /** How long ago the worker's loop completed a round, and after how long that is too long; `null`: no worker polls. */
  worker: { roundAgoMs: number; limitMs: number } | null;
  /** Why claims fail, and how long after the first of them the last one has; `null`: the last one has succeeded. */
  failedClaims: { error: unknown; forMs: number } | null;
  /** Whether the engine is stopping, or has stopped. */
  isStopping: boolean;
  /** Whether it deletes no run. */
  keepsRuns: boolean;
  /** The rows of the outbox of each data source that need attention, by its name. */
  stuckRows: ReadonlyMap<string, StuckRows>;
  /** The longest time for which the event loop was blocked within the last minute, in milliseconds. */
  eventLoopDelayMs: number;
  /** Why the last report of statistics failed; `null`: it did not. */
  statisticsError: unknown;
}

/** What the store reports. */
interface StoreReport {
  /** The jobs. */
  jobs: readonly JobInfo[];
  /** The workers. */
  workers: readonly WorkerInfo[];
  /** How large it is. */
  info: StoreInfo;
  /** The instant of the store's clock, in milliseconds. */
  now: number;
}

type HealthDeps = {
  /** What the process itself knows. */
  look: () => ProcessCondition;
  /** Reads what the store reports. */
  readStore: () => Promise<StoreReport>;
  host: Host;
};

const MAX_READ_MS = 1_000;
const MAX_EVENT_LOOP_DELAY_MS = 250;
const MAX_DUE_MS = 60_000;
const FAILED_WRITE_MS = 60_000;
const MAX_FAILED_CLAIMS_MS = 60_000;
const MAX_KEPT_RUNS = 1_000_000;
const MAX_WAL_BYTES = 64 * 1_048_576;

/** Checks the health of a process. */
export class HealthChecks {
  readonly #deps: HealthDeps;
  readonly #storeChecks: SharedRead<HealthCheck[]>;

  constructor(deps: HealthDeps) {
    this.#deps = deps;
    this.#storeChecks = new SharedRead(deps.host, () => this.#checkStore());
  }

  /** Does `Engine.health()`: asks the store at most once a second, and waits for it at most a second. */
  async health(): Promise<Health> {
    const checks = await this.#storeChecks.get();
    const condition = this.#deps.look();
    return toHealth([...this.#checkProcess(condition), ...checks, ...checkOutboxes(condition)]);
  }

  /** The part of the health that is known without a call to the store: a full disk is not to restart processes. */
  liveness(): Health {
    return toHealth([...this.#checkProcess(this.#deps.look())]);
  }

  *#checkProcess(condition: ProcessCondition): Iterable<HealthCheck> {
    yield* checkLife(condition);
    yield* checkReadiness(condition, this.#deps.host.monotonic());
  }

  async #checkStore(): Promise<HealthCheck[]> {
    const { host, readStore, look } = this.#deps;
    const since = host.monotonic();
    let result: { report: StoreReport } | { error: unknown } | null = null;
    const reading = readStore().then((report) => void (result = { report }), (error) => void (result = { error }));
    await within(host, MAX_READ_MS, reading);
    const answer = result as { report: StoreReport } | { error: unknown } | null; // set meanwhile
    if (answer === null) return [failing("store", `The store has not answered for ${MAX_READ_MS} ms`)];
    if ("error" in answer) return [failing("store", `The store cannot answer: ${toFailure(answer.error).message}`)];
    const value = Math.round(host.monotonic() - since);
    return [
      { name: "store", status: "ok", message: "The store answers", value },
      ...checkReport(answer.report),
      ...look().keepsRuns ? checkKept(answer.report) : [],
    ];
  }
}

function failing(name: string, message: string, value?: number): HealthCheck {
  return { name, status: "failing", message, ...(value === undefined ? {} : { value }) };
}

function degraded(name: string, message: string, value?: number): HealthCheck {
  return { name, status: "degraded", message, ...(value === undefined ? {} : { value }) };
}

function* checkOutboxes({ stuckRows }: ProcessCondition): Iterable<HealthCheck> {
  for (const [name, { refused, waiting }] of stuckRows) {
    const value = refused + waiting;
    if (value === 0) continue;
    const rows = (count: number, words: string) =>
      count === 0 ? [] : `${count} ${words.replace("_", count === 1 ? "row" : "rows")}`;
    const what = [rows(refused, "refused _"), rows(waiting, "_ that no engine has relayed for a minute")].flat();
    yield degraded("outbox", `The outbox of data source "${name}" has ${what.join(", and ")}`, value);
  }
}

/** What decides whether the process is live. */
function* checkLife({ worker, isBroken }: ProcessCondition): Iterable<HealthCheck> {
  if (worker !== null) {
    const value = Math.round(worker.roundAgoMs);
    yield worker.roundAgoMs > worker.limitMs
      ? failing("worker", `The worker has not claimed for ${seconds(value)}`, value)
      : { name: "worker", status: "ok", message: "The worker claims runs", value };
  }
  if (isBroken) yield failing("store_file", "The store is broken: a new process must open it");
}

/** What else decides whether it is ready, and what somebody should look at. */
function* checkReadiness(condition: ProcessCondition, now: number): Iterable<HealthCheck> {
  const { failedClaims, isMigrated, isStopping, failedWrite, eventLoopDelayMs, statisticsError } = condition;
  if (!isMigrated) yield failing("migration", "The tables of the store were not created or checked yet");
  if (isStopping) yield failing("stopping", "The engine stops");
  if (failedClaims !== null && failedClaims.forMs >= MAX_FAILED_CLAIMS_MS) {
    const value = Math.round(failedClaims.forMs);
    const why = toFailure(failedClaims.error).message;
    yield failing("claims", `Claims have failed for ${seconds(value)}: ${why}`, value);
  }
  if (eventLoopDelayMs > MAX_EVENT_LOOP_DELAY_MS) {
    const value = Math.round(eventLoopDelayMs);
    yield degraded("event_loop", `The event loop was blocked for ${value} ms`, value);
  }
  // If nobody writes, nothing says that writes succeed again.
  if (failedWrite !== null && now - failedWrite.at <= FAILED_WRITE_MS) {
    yield degraded("writes", `Writes fail: ${toFailure(failedWrite.error).message}`);
  }
  if (statisticsError !== null) {
    yield degraded("statistics", `The statistics could not be written: ${toFailure(statisticsError).message}`);
  }
}

/** What somebody should look at in the store. */
function* checkReport({ jobs, workers, info, now }: StoreReport): Iterable<HealthCheck> {
  const lost = workers.filter(({ state }) => state === "lost").length;
  if (lost > 0) yield degraded("lost_workers", lost === 1 ? "A worker is lost" : `${lost} workers are lost`, lost);
  const [late] = jobs.flatMap((job) => {
    const due = job.paused === null && startableRun(job);
    return due ? [{ jobName: job.jobName, dueMs: now - Date.parse(due.dueSince) }] : [];
  }).filter(({ dueMs }) => dueMs > MAX_DUE_MS).sort((one, other) => other.dueMs - one.dueMs);
  if (late !== undefined) {
    const { jobName, dueMs } = late;
    yield degraded("due_runs", `A run of job "${jobName}" has been due for ${seconds(dueMs)}`, dueMs);
  }
  const held = sumHeld(jobs);
  if (held !== null) {
    const count = held.runs === 1 ? "A run is" : `${held.runs} runs are`;
    const since = seconds(now - Date.parse(held.since));
    yield degraded("held_runs", `${count} held, the first for ${since}: the changed code does not fit`, held.runs);
  }
  const walBytes = info.walBytes ?? 0;
  if (walBytes > MAX_WAL_BYTES) {
    const size = `${Math.round(walBytes / 1_048_576)} MiB`;
    yield degraded("wal", `The write-ahead log has ${size}: something keeps it from being emptied`, walBytes);
  }
}

/** Whether too many runs have ended for an engine that keeps them all. */
function* checkKept({ jobs }: StoreReport): Iterable<HealthCheck> {
  const ended = jobs.reduce((sum, { byStatus }) => sum + byStatus.completed + byStatus.failed + byStatus.cancelled, 0);
  if (ended < MAX_KEPT_RUNS) return;
  const count = ended.toLocaleString("en");
  yield degraded("retention", `${count} runs have ended, and this engine deletes none: set retention`, ended);
}

const NOT_LIVE = new Set(["worker", "store_file"]);

function toHealth(checks: HealthCheck[]): Health {
  const failed = checks.filter(({ status }) => status === "failing");
  const isDegraded = checks.some(({ status }) => status === "degraded");
  return {
    status: failed.length > 0 ? "failing" : isDegraded ? "degraded" : "ok",
    live: !failed.some(({ name }) => NOT_LIVE.has(name)),
    ready: failed.length === 0,
    checks,
  };
}

function seconds(ms: number): string {
  return `${Math.round(ms / 1_000)} s`;
}
