import { type Host, within } from "../../model/host.ts";
import type { StoreInfo } from "../../store/operate.ts";
import type { StuckRows } from "../../model/effects.ts";
import { toFailure } from "../../model/failure/to_failure.ts";
import { type JobInfo, sumHeld } from "./job_info.ts";
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
export interface StoreReport {
  /** The jobs. */
  jobs: readonly JobInfo[];
  /** The workers. */
  workers: readonly WorkerInfo[];
  /** How large it is. */
  info: StoreInfo;
  /** The instant of the store's clock, in milliseconds. */
  now: number;
}

/** The dependencies of {@linkcode HealthChecks}. */
export interface HealthDeps {
  /** What the process itself knows. */
  look: () => ProcessCondition;
  /** Reads what the store reports. */
  readStore: () => Promise<StoreReport>;
  /** Time and timers. */
  host: Host;
}

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
    const { stuckRows } = this.#deps.look();
    return toHealth([
      ...checkLife(this.#deps.look()),
      ...this.#checkReadiness(),
      ...checks,
      ...[...stuckRows].flatMap(checkOutbox),
    ]);
  }

  /** The part of the health that is known without a call to the store: a full disk is not to restart processes. */
  liveness(): Health {
    return toHealth([...checkLife(this.#deps.look()), ...this.#checkReadiness()]);
  }

  #checkReadiness(): HealthCheck[] {
    return checkReadiness(this.#deps.look(), this.#deps.host.monotonic());
  }

  async #checkStore(): Promise<HealthCheck[]> {
    const { host, readStore } = this.#deps;
    const since = host.monotonic();
    let result: { report: StoreReport } | { error: unknown } | null = null;
    const reading = readStore().then((report) => void (result = { report }), (error) => void (result = { error }));
    await within(host, MAX_READ_MS, reading);
    const answer = result as { report: StoreReport } | { error: unknown } | null; // set meanwhile
    if (answer === null) {
      return [{ name: "store", status: "failing", message: `The store has not answered for ${MAX_READ_MS} ms` }];
    }
    if ("error" in answer) {
      const message = `The store cannot answer: ${toFailure(answer.error).message}`;
      return [{ name: "store", status: "failing", message }];
    }
    const value = Math.round(host.monotonic() - since);
    return [
      { name: "store", status: "ok", message: "The store answers", value },
      ...checkReport(answer.report),
      ...this.#deps.look().keepsRuns ? checkKept(answer.report) : [],
    ];
  }
}

function checkOutbox([name, { refused, waiting }]: [string, StuckRows]): HealthCheck[] {
  const value = refused + waiting;
  if (value === 0) return [];
  const rows = (count: number, words: string) =>
    count === 0 ? [] : `${count} ${words.replace("_", count === 1 ? "row" : "rows")}`;
  const what = [rows(refused, "refused _"), rows(waiting, "_ that no engine has relayed for a minute")].flat();
  const message = `The outbox of data source "${name}" has ${what.join(", and ")}`;
  return [{ name: "outbox", status: "degraded", message, value }];
}

/** What decides whether the process is live. */
function checkLife({ worker, isBroken }: ProcessCondition): HealthCheck[] {
  const checks: HealthCheck[] = [];
  if (worker !== null) {
    const value = Math.round(worker.roundAgoMs);
    checks.push(
      worker.roundAgoMs > worker.limitMs
        ? { name: "worker", status: "failing", message: `The worker has not claimed for ${seconds(value)}`, value }
        : { name: "worker", status: "ok", message: "The worker claims runs", value },
    );
  }
  if (isBroken) {
    checks.push({ name: "store_file", status: "failing", message: "The store is broken: a new process must open it" });
  }
  return checks;
}

/** What else decides whether it is ready, and what somebody should look at. */
function checkReadiness(condition: ProcessCondition, now: number): HealthCheck[] {
  const { failedClaims, isMigrated, isStopping, failedWrite, eventLoopDelayMs, statisticsError } = condition;
  const checks: HealthCheck[] = [];
  if (!isMigrated) {
    checks.push({
      name: "migration",
      status: "failing",
      message: "The tables of the store were not created or checked yet",
    });
  }
  if (isStopping) checks.push({ name: "stopping", status: "failing", message: "The engine stops" });
  if (failedClaims !== null && failedClaims.forMs >= MAX_FAILED_CLAIMS_MS) {
    const value = Math.round(failedClaims.forMs);
    const message = `Claims have failed for ${seconds(value)}: ${toFailure(failedClaims.error).message}`;
    checks.push({ name: "claims", status: "failing", message, value });
  }
  if (eventLoopDelayMs > MAX_EVENT_LOOP_DELAY_MS) {
    const value = Math.round(eventLoopDelayMs);
    checks.push({
      name: "event_loop",
      status: "degraded",
      message: `The event loop was blocked for ${value} ms`,
      value,
    });
  }
  // If nobody writes, nothing says that writes succeed again.
  if (failedWrite !== null && now - failedWrite.at <= FAILED_WRITE_MS) {
    const message = `Writes fail: ${toFailure(failedWrite.error).message}`;
    checks.push({ name: "writes", status: "degraded", message });
  }
  if (statisticsError !== null) {
    const message = `The statistics could not be written: ${toFailure(statisticsError).message}`;
    checks.push({ name: "statistics", status: "degraded", message });
  }
  return checks;
}

/** What somebody should look at in the store. */
function checkReport({ jobs, workers, info, now }: StoreReport): HealthCheck[] {
  const checks: HealthCheck[] = [];
  const lost = workers.filter(({ state }) => state === "lost").length;
  if (lost > 0) {
    const message = lost === 1 ? "A worker is lost" : `${lost} workers are lost`;
    checks.push({ name: "lost_workers", status: "degraded", message, value: lost });
  }
  const late = jobs.flatMap(({ jobName, paused, oldestDue }) =>
    paused !== null || oldestDue === null ? [] : [{ jobName, dueMs: now - Date.parse(oldestDue.dueSince) }]
  ).filter(({ dueMs }) => dueMs > MAX_DUE_MS).sort((one, other) => other.dueMs - one.dueMs);
  if (late[0] !== undefined) {
    const { jobName, dueMs: value } = late[0];
    const message = `A run of job "${jobName}" has been due for ${seconds(value)}`;
    checks.push({ name: "due_runs", status: "degraded", message, value });
  }
  const held = sumHeld(jobs);
  if (held !== null) {
    const count = held.runs === 1 ? "A run is" : `${held.runs} runs are`;
    const message = `${count} held, the first for ${
      seconds(now - Date.parse(held.since))
    }: the changed code does not fit`;
    checks.push({ name: "held_runs", status: "degraded", message, value: held.runs });
  }
  if ((info.walBytes ?? 0) > MAX_WAL_BYTES) {
    const value = info.walBytes!; // it is larger than 0
    const message = `The write-ahead log has ${
      Math.round(value / 1_048_576)
    } MiB: something keeps it from being emptied`;
    checks.push({ name: "wal", status: "degraded", message, value });
  }
  return checks;
}

/** Whether too many runs have ended for an engine that keeps them all. */
function checkKept({ jobs }: StoreReport): HealthCheck[] {
  const ended = jobs.reduce((sum, { byStatus }) => sum + byStatus.completed + byStatus.failed + byStatus.cancelled, 0);
  if (ended < MAX_KEPT_RUNS) return [];
  const message = `${ended.toLocaleString("en")} runs have ended, and this engine deletes none: set retention`;
  return [{ name: "retention", status: "degraded", message, value: ended }];
}

const NOT_LIVE = new Set(["worker", "store_file"]);

function toHealth(checks: readonly HealthCheck[]): Health {
  const failing = checks.filter(({ status }) => status === "failing");
  const isDegraded = checks.some(({ status }) => status === "degraded");
  return {
    status: failing.length > 0 ? "failing" : isDegraded ? "degraded" : "ok",
    live: !failing.some(({ name }) => NOT_LIVE.has(name)),
    ready: failing.length === 0,
    checks: [...checks],
  };
}

function seconds(ms: number): string {
  return `${Math.round(ms / 1_000)} s`;
}
