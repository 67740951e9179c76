import { type Duration, readDuration } from "../values/duration.ts";
import { ChangePoller } from "../events/change_poller.ts";
import type { ChangeWatch } from "../events/change_watch.ts";
import { JournalReader } from "../events/journal_reader.ts";
import { StreamReader } from "../events/stream_reader.ts";
import type { ExecutionDeps } from "../execution/execution.ts";
import { Worker } from "../execution/worker.ts";
import type { WorkerSettings } from "../execution/worker_settings.ts";
import { within } from "../model/host.ts";
import type { JobCatalog } from "../model/job/job_catalog.ts";
import { isoTime } from "../values/iso_time.ts";
import { checkOptionNames } from "../values/option_names.ts";
import type { Retention } from "../model/run.ts";
import type { Logger } from "../model/logger.ts";
import { watchStrandedJobs } from "./engine_log.ts";
import type { EngineCondition, Monitor } from "./operate/statistics/monitor.ts";
import { purgeInSlices, runPurgeLoop, shortestOf } from "./runs/purge_loop.ts";
import type { ScheduleRegistry } from "./schedules/schedule_registry.ts";
import type { Scheduler } from "./schedules/scheduler.ts";
import type { Relay } from "./transactions/relay.ts";
import { runSweeps, sweepAll, type SweepDeps } from "./transactions/sweep.ts";
import type { EngineTransactions } from "./transactions/transactions.ts";

// A container is often killed 10 s after it was asked to stop: leases are released before that.
const DEFAULT_STOP_TIMEOUT_MS = 8_000;
// How long a stop waits for log lines that the store has not stored.
const LAST_LINES_MS = 500;
// How long a stop waits for the statistics that were not written yet.
const LAST_STATISTICS_MS = 500;
// How long a stop waits for event streams to send what was committed before it.
const LAST_EVENTS_MS = 500;
const IDLE_OPTIONS: Record<keyof IdleOptions, true> = { maxRuns: true, timeout: true };

/** Limits of {@linkcode Engine.runUntilIdle}. */
export interface IdleOptions {
  /** The maximum number of claims; a run that paused and is claimed again counts again. Default: all that are due. */
  maxRuns?: number;
  /**
   * After this many milliseconds it claims and deletes nothing more; the current executions are awaited. Default:
   * never.
   */
  timeout?: Duration;
}

/** What {@linkcode Engine.runUntilIdle} has done. */
export interface IdleResult {
  /** How many runs it has executed. A run that paused and resumed meanwhile counts once. */
  executed: number;
  /**
   * When something becomes due without a call: a sleep, a retry, a deadline, a delayed start, a rate that opens, a lease
   * that ends, or a slot of a schedule. ISO 8601 in UTC, by the store's clock. It may be early, never late, for what was
   * stored then. Now, if `timeout` or `maxRuns` has ended the call early; `null`: nothing.
   */
  nextDueAt: string | null;
}

/** What a {@linkcode Lifecycle} starts. */
interface LifecycleParts {
  jobs: JobCatalog;
  settings: WorkerSettings;
  watch: ChangeWatch;
  retention: Retention;
  schedules: Pick<ScheduleRegistry<unknown>, "declare">;
  scheduler: Scheduler;
  transactions: EngineTransactions;
  relay: Relay;
  monitor: Monitor;
  logger: Logger;
}

/** Starts and stops the parts of an engine: its worker, schedules, the deletion of old runs, event streams, background
 * work. */
export class Lifecycle {
  /** Publishes the events of all runs, no matter which process executes them. */
  readonly reader: JournalReader;
  /** Reads streams of items. */
  readonly streams: StreamReader;
  /** Notices writes of other processes. */
  readonly changes: ChangePoller;
  readonly #parts: LifecycleParts;
  readonly #deps: ExecutionDeps;
  readonly #pending = new Set<Promise<unknown>>();
  readonly #stopListeners: (() => void)[] = [];
  /** How many stops are under way. */
  #stopsUnderWay = 0;
  #worker: Worker;
  /** Stops what `start()` has started; `null` while the engine is not started. */
  #stopStarted: (() => Promise<void>) | null = null;
  #stopping: Promise<unknown> = Promise.resolve();
  #isStopped = false;
  /** The number of stops: a `start()` that was pending during a stop starts nothing. */
  #stopCount = 0;

  constructor(parts: LifecycleParts, deps: ExecutionDeps) {
    this.#parts = parts;
    this.#deps = deps;
    const { settings, watch } = parts;
    const { polls } = deps.surroundings;
    this.changes = new ChangePoller(deps.store, settings.pollingInterval, { ...deps, watch, polls });
    this.#worker = this.#newWorker();
    this.reader = new JournalReader({ ...deps, watch });
    this.streams = new StreamReader({ ...deps, journal: this.reader });
  }

  /** The current worker: each stop ends one, and another takes its place. */
  get worker(): Worker {
    return this.#worker;
  }

  /** Whether event streams have ended, and new ones end at once. */
  get isStopped(): boolean {
    return this.#isStopped;
  }

  /** What decides about the health of the process. */
  get condition(): EngineCondition {
    return {
      worker: this.#worker.condition,
      failedClaims: this.#worker.failedClaims,
      isStopping: this.#stopsUnderWay > 0 || this.#isStopped,
      keepsRuns: shortestOf({ ...this.#parts.retention, streams: Infinity }) === Infinity,
      stuckRows: this.#parts.relay.stuck,
    };
  }

  /** Calls back each time the engine has stopped. */
  onStop(listener: () => void): void {
    this.#stopListeners.push(listener);
  }

  /** Does `Engine.migrate()`. */
  async migrate(): Promise<void> {
    await this.#deps.store.migrate();
    await this.#parts.transactions.migrate();
  }

  /** Does `Engine.start()`. */
  async start(): Promise<void> {
    const stopCount = this.#stopCount;
    await this.#stopping;
    await this.#prepare();
    if (this.#stopStarted !== null || this.#stopCount !== stopCount) return;
    this.#isStopped = false;
    const worker = this.#worker;
    const noteChange = () => worker.noteChange();
    const upkeep = new AbortController();
    const { store, hub, surroundings: { polls } } = this.#deps;
    const { retention, scheduler, relay, monitor, logger } = this.#parts;
    const keeping = Promise.all([
      runPurgeLoop(store, retention, this.#deps, upkeep.signal),
      scheduler.run(upkeep.signal),
      polls ? watchStrandedJobs(this.#deps, logger, upkeep.signal) : undefined,
      polls ? runSweeps(this.#sweepDeps, upkeep.signal) : undefined,
      polls ? relay.run(upkeep.signal) : undefined,
    ]);
    const stops = [hub.on("run:trigger", noteChange), this.changes.on(noteChange), () => upkeep.abort()];
    this.#stopStarted = async () => {
      for (const stop of stops) stop();
      await keeping;
    };
    worker.start();
    if (polls) monitor.start();
  }

  /** Does `Engine.stop()`. */
  async stop(options: { timeout?: Duration }): Promise<void> {
    checkOptionNames(options, { timeout: true }, "stop()");
    const timeout = readDuration(options.timeout ?? DEFAULT_STOP_TIMEOUT_MS, "The timeout of stop()");
    this.#stopCount += 1;
    this.#stopsUnderWay += 1;
    try {
      await this.#stop(timeout);
    } finally {
      this.#stopsUnderWay -= 1;
    }
  }

  async #stop(timeout: number): Promise<void> {
    const stopStarted = this.#stopStarted ?? (() => Promise.resolve());
    this.#stopStarted = null;
    const worker = this.#worker;
    const { host } = this.#deps;
    this.#stopping = Promise.all([this.#stopping, worker.stop(timeout), within(host, timeout, stopStarted())]);
    await this.#stopping;
    if (this.#worker === worker) this.#worker = this.#newWorker();
    this.#isStopped = this.#stopStarted === null; // unless it was started again
    await within(host, LAST_EVENTS_MS, this.reader.publishAll());
    this.reader.endAll();
    this.streams.endAll();
    for (const listener of this.#stopListeners) listener();
    await within(host, LAST_LINES_MS, Promise.all(this.#pending));
    await within(host, LAST_STATISTICS_MS, this.#parts.monitor.stop());
    // Node 22 never frees an AsyncLocalStorage that was used, and each one slows down all promises. After disable() it
    // can be used again.
    this.#deps.currentStep.disable();
  }

  /** Gives the engine up as the death of its process does: nothing of it goes on, and it cannot be used any more. */
  discard(): void {
    this.#stopCount += 1;
    this.#worker.discard();
    this.#deps.currentStep.disable(); // as in a stop
  }

  /** Does `Engine.runUntilIdle()`. */
  async runUntilIdle(options: IdleOptions): Promise<IdleResult> {
    checkOptionNames(options, IDLE_OPTIONS, "runUntilIdle()");
    const { maxRuns } = options;
    if (maxRuns !== undefined && !(Number.isInteger(maxRuns) && maxRuns >= 1)) {
      throw new RangeError(`maxRuns of runUntilIdle() must be a positive integer, not ${maxRuns}`);
    }
    const timeout = options.timeout === undefined
      ? undefined
      : readDuration(options.timeout, "The timeout of runUntilIdle()");
    await this.#prepare();
    const enough = new AbortController();
    const cancel = timeout === undefined ? () => {} : this.#deps.host.schedule(timeout, () => enough.abort());
    try {
      const stopCount = this.#stopCount;
      await this.#parts.relay.relayDue(enough.signal);
      const nextSlotAt = await this.#parts.scheduler.fireDue(enough.signal);
      const { executed, nextTimerAt } = await this.#worker.drain(maxRuns, enough.signal);
      // What the runs have left there.
      const left = executed === 0 ? 0 : await this.#parts.relay.relayDue(enough.signal);
      const mayGoOn = () => !enough.signal.aborted && this.#stopCount === stopCount;
      await sweepAll(this.#sweepDeps, enough.signal); // before the runs that the effects belong to are deleted
      await purgeInSlices(this.#deps.store, this.#parts.retention, this.#deps, { mayGoOn });
      await this.#parts.monitor.reportIdle();
      const isEarly = nextTimerAt === "now" || left > 0 || enough.signal.aborted;
      return { executed, nextDueAt: isEarly ? isoTime(this.#deps.host.now()) : earliest(nextTimerAt, nextSlotAt) };
    } finally {
      cancel();
    }
  }

  /** Creates tables and schedules. A data source that does not answer holds nothing up. */
  async #prepare(): Promise<void> {
    await this.#deps.store.migrate();
    await this.#parts.transactions.migrateReachable();
    await this.#parts.schedules.declare();
  }

  get #sweepDeps(): SweepDeps {
    const { transactions, retention } = this.#parts;
    return {
      ...this.#deps,
      sources: transactions.unjoined,
      storeId: () => transactions.storeId(),
      shortestRetentionMs: shortestOf(retention),
    };
  }

  /** Registers work that only `stop()` waits for; publishes its error. */
  inBackground(work: Promise<unknown>): void {
    const settled = work
      .catch((error) => this.#deps.hub.publishError(error))
      .finally(() => this.#pending.delete(settled));
    this.#pending.add(settled);
  }

  #newWorker(): Worker {
    return new Worker(this.#parts.jobs, this.#parts.settings, this.#deps, this.changes);
  }
}

/** The earlier of two instants, which may have fractions of a millisecond. */
function earliest(...instants: readonly (number | null)[]): string | null {
  const known = instants.filter((at) => at !== null);
  return known.length === 0 ? null : isoTime(Math.ceil(Math.min(...known)));
}
