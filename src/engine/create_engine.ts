import { AsyncLocalStorage } from "node:async_hooks";
import {
  ConflictError,
  NotFoundError,
  RunCancelledError,
  RunFailedError,
  StoreError,
  TimeoutError,
  ValidationError,
} from "../error.ts";
import type { RunEvent } from "../event.ts";
import { systemHost } from "../host.ts";
import type { Job } from "../job.ts";
import { decode } from "../json.ts";
import type { LogEntry } from "../log.ts";
import { isTerminal, type Run, type RunFilter, type RunPage } from "../run.ts";
import type { Step } from "../step.ts";
import type { Enqueued, NewRun, Retention, Store } from "../store.ts";
import { checkSignal, type Signal, type SignalReceipt, type Wait } from "../wait.ts";
import type { Engine, EngineOptions, JobHandle, JobHandles, Jobs, RetriggerOptions, WaitOptions } from "./engine.ts";
import type { ExecutionDeps } from "./execution.ts";
import { followRun } from "./follow.ts";
import { Hub } from "./hub.ts";
import { type EngineInternals, INTERNALS } from "./internals.ts";
import type { Plugin } from "./plugin.ts";
import { Pulse } from "./pulse.ts";
import { RunFeed } from "./run_feed.ts";
import { checkRunFilter } from "./run_filter.ts";
import { RunWatches } from "./run_watches.ts";
import { newRun, type TriggerGuard, type TriggerOptions, type TriggerResult } from "./trigger.ts";
import { keepUp } from "./upkeep.ts";
import { Worker, type WorkerOptions, workerSettings } from "./worker.ts";

const DEFAULT_MAX_VALUE_BYTES = 1_048_576;
const DEFAULT_STOP_TIMEOUT_MS = 30_000;

/**
 * Makes an engine.
 *
 * @throws {TypeError} Two jobs have the same name.
 * @throws {RangeError} A setting of the worker, a retention or `maxValueBytes` is out of range.
 */
export function createEngine<const J extends Jobs>(options: EngineOptions<J>): Engine<J> {
  return new JobEngine(options);
}

class JobEngine<J extends Jobs> implements Engine<J> {
  readonly jobs: JobHandles<J>;
  readonly on: Hub["on"];
  readonly #store: Store;
  readonly #jobs: ReadonlyMap<string, Job>;
  readonly #retention: Retention;
  readonly #settings: Required<WorkerOptions>;
  readonly #deps: ExecutionDeps;
  readonly #pulse: Pulse;
  readonly #plugins = new Set<string>();
  readonly [INTERNALS]: EngineInternals;
  readonly #pending = new Set<Promise<unknown>>();
  #migration: Promise<void> | null = null;
  #worker: Worker;
  /** Ends what `start()` began; `null` while the engine is not started. */
  #stopStarted: (() => Promise<void>) | null = null;
  #stopping: Promise<unknown> = Promise.resolve();
  /** How often it was stopped: a `start()` that is under way then starts nothing. */
  #stopCount = 0;

  constructor(options: EngineOptions<J>) {
    const host = options.host ?? systemHost;
    const hub = new Hub(host);
    this.#store = options.store;
    this.#jobs = byName(options.jobs);
    this.#retention = checkRetention(options.retention ?? {});
    this.#settings = workerSettings(options.worker);
    this.#deps = {
      store: options.store,
      hub,
      host,
      currentStep: new AsyncLocalStorage(),
      maxValueBytes: checkMaxValueBytes(options.maxValueBytes ?? DEFAULT_MAX_VALUE_BYTES),
    };
    this.#pulse = new Pulse(options.store, this.#settings.pollingInterval, this.#deps);
    this.#worker = this.#newWorker();
    const watching = {
      migrate: () => this.migrate(),
      store: options.store,
      hub,
      pulse: this.#pulse,
      host,
      claimHere: (runId: string) => this.#worker.claimOf(runId),
    };
    this[INTERNALS] = {
      watches: new RunWatches(watching),
      feed: new RunFeed(watching),
      store: () => this.migrate().then(() => options.store),
      trigger: (jobName, input, options, guard) => this.#trigger(jobName, input, options, guard),
    };
    this.on = hub.on.bind(hub);
    // Each handle passes on what it is given, so it has the types of its job.
    this.jobs = Object.freeze(
      Object.fromEntries(Object.entries(options.jobs).map(([key, job]) => [key, this.#handle(job)])),
    ) as JobHandles<J>;
  }

  migrate(): Promise<void> {
    this.#migration ??= this.#store.migrate().catch((error) => {
      this.#migration = null;
      throw error;
    });
    return this.#migration;
  }

  async start(): Promise<void> {
    const stopCount = this.#stopCount;
    await this.#stopping;
    await this.migrate();
    if (this.#stopStarted !== null || this.#stopCount !== stopCount) return;
    const worker = this.#worker;
    const wake = () => worker.wake();
    const upkeep = new AbortController();
    const keeping = keepUp(this.#store, this.#retention, this.#deps, upkeep.signal);
    const { hub } = this.#deps;
    const stops = [hub.on("run:trigger", wake), this.#pulse.on(wake), () => upkeep.abort()];
    this.#stopStarted = async () => {
      for (const stop of stops) stop();
      await keeping;
    };
    worker.start();
  }

  async stop({ timeout = DEFAULT_STOP_TIMEOUT_MS }: { timeout?: number } = {}): Promise<void> {
    this.#stopCount += 1;
    const stopStarted = this.#stopStarted ?? (() => Promise.resolve());
    this.#stopStarted = null;
    const worker = this.#worker;
    this.#stopping = Promise.all([this.#stopping, worker.stop(timeout), stopStarted()]);
    await this.#stopping;
    if (this.#worker === worker) this.#worker = this.#newWorker();
    this[INTERNALS].watches.endAll();
    this[INTERNALS].feed.endAll();
    await Promise.all(this.#pending);
    // Node 22 keeps a storage that was used for ever, and is slower with each. It works again when it is needed.
    this.#deps.currentStep.disable();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  trigger(job: string | Job, input: unknown, options: TriggerOptions = {}): Promise<TriggerResult> {
    return this.#trigger(job, input, options, null);
  }

  async getRun(runId: string): Promise<Run | null> {
    await this.migrate();
    return await this.#store.getRun(runId);
  }

  async getRuns(filter: RunFilter = {}): Promise<RunPage> {
    const checked = checkRunFilter(filter);
    await this.migrate();
    return await this.#store.getRuns(checked);
  }

  getSteps(runId: string): Promise<Step[]> {
    return this.#listOf(runId, () => this.#store.getSteps(runId));
  }

  getWaits(runId: string): Promise<Wait[]> {
    return this.#listOf(runId, () => this.#store.getWaits(runId));
  }

  async getWait(waitId: string): Promise<Wait | null> {
    await this.migrate();
    return await this.#store.getWait(waitId);
  }

  async signal(waitId: string, signal: Signal): Promise<SignalReceipt> {
    const checked = checkSignal(signal, this.#deps.maxValueBytes);
    await this.migrate();
    const { run, ...receipt } = await surely(() => this.#store.signal(waitId, checked));
    this.#worker.nudge(run.id);
    this.#worker.wake();
    return receipt;
  }

  getLogs(runId: string): Promise<LogEntry[]> {
    return this.#listOf(runId, () => this.#store.getLogs(runId));
  }

  async retrigger(runId: string, { from = "start" }: RetriggerOptions = {}): Promise<TriggerResult> {
    if (from !== "start" && from !== "failure") throw new ValidationError('from must be "start" or "failure"');
    await this.migrate();
    const state = await this.#store.getRunState(runId);
    if (state === null) throw new NotFoundError(`There is no run "${runId}"`);
    const old = state.run;
    if (!isTerminal(old.status)) {
      throw new ConflictError(`Cannot retrigger run "${runId}": it is ${old.status}`);
    }
    const run = await this.#newRun(this.#findJob(old.jobName), decode(state.payload), {
      labels: old.labels,
      ...(old.concurrencyKey === null ? {} : { concurrencyKey: old.concurrencyKey }),
      copyStepsOf: from === "failure" ? runId : null,
    });
    const [result] = await this.#enqueue([run]);
    this.#deps.hub.publish(old, { type: "run:retry", newRunId: result!.id });
    return result!;
  }

  async cancel(runId: string): Promise<Run> {
    await this.migrate();
    const executing = this.#worker.executingSteps(runId);
    const requestId = this.#deps.host.newId();
    const run = await surely(() => this.#store.cancel(runId, requestId, executing));
    if (run === null) {
      const { status } = await this.#runOf(runId);
      throw new ConflictError(`Cannot cancel run "${runId}": it is already ${status}`);
    }
    this.#worker.cancel(runId);
    if (executing.length > 0) await this.#tellCancelledSteps(run, executing);
    this.#deps.hub.publish(run, { type: "run:cancel" });
    return run;
  }

  /** A step may have been recorded just before the cancel: only what was recorded with it is told. */
  async #tellCancelledSteps(run: Run, executing: readonly { name: string }[]): Promise<void> {
    const names = new Set(executing.map(({ name }) => name));
    const steps = await this.#store.getSteps(run.id).catch(() => []);
    for (const { name, index, status } of steps) {
      if (status !== "cancelled" || !names.has(name)) continue;
      this.#deps.hub.publish(run, { type: "step:cancel", stepName: name, stepIndex: index });
    }
  }

  async deleteRun(runId: string): Promise<void> {
    await this.migrate();
    const run = await this.#store.delete(runId);
    if (run === null) {
      const { status } = await this.#runOf(runId);
      throw new ConflictError(`Cannot delete run "${runId}": it is ${status}`);
    }
    this.#deps.hub.publish(run, { type: "run:delete" });
  }

  async waitForRun(runId: string, { timeout }: WaitOptions = {}): Promise<Run> {
    const { hub, host } = this.#deps;
    let look: () => void = () => {};
    let isTimedOut = false;
    const stops = [
      hub.onRun(runId, () => look()),
      this.#pulse.onThrottled(() => look()),
    ];
    if (timeout !== undefined) {
      stops.push(host.schedule(timeout, () => {
        isTimedOut = true;
        look();
      }));
    }
    try {
      while (true) {
        // Made before the run is read: what happens between the two would otherwise be missed.
        const changed = new Promise<void>((resolve) => look = resolve);
        const run = await this.#runOf(runId);
        if (run.status === "completed") return run;
        if (run.status === "failed") throw new RunFailedError(runId, run.error ?? "The run failed");
        if (run.status === "cancelled") throw new RunCancelledError(runId);
        if (isTimedOut) throw new TimeoutError(`Run "${runId}" has not completed within ${timeout} ms`);
        await changed;
      }
    } finally {
      for (const stop of stops) stop();
    }
  }

  subscribe(runId: string): ReadableStream<RunEvent> {
    return followRun(runId, this[INTERNALS].watches);
  }

  use(plugin: Plugin): this {
    if (this.#plugins.has(plugin.name)) return this;
    this.#plugins.add(plugin.name);
    plugin.install({
      on: this.on,
      appendLogs: (entries) => this.#inBackground(this.#store.appendLogs(entries)),
      newId: () => this.#deps.host.newId(),
    });
    return this;
  }

  async runUntilIdle(): Promise<{ executed: number }> {
    await this.migrate();
    return { executed: await this.#worker.drain() };
  }

  #newWorker(): Worker {
    return new Worker(this.#jobs, this.#settings, this.#deps);
  }

  #handle(job: Job): JobHandle<unknown, unknown> {
    return {
      trigger: (input, options) => this.trigger(job, input, options),
      triggerAndWait: async (input, { timeout, ...options } = {}) => {
        const { id } = await this.trigger(job, input, options);
        return await this.waitForRun(id, timeout === undefined ? {} : { timeout });
      },
      batchTrigger: async (items) =>
        await this.#enqueue(
          await Promise.all(items.map(({ input, ...options }) => this.#newRun(job, input, options))),
        ),
      getRun: async (runId) => {
        const run = await this.getRun(runId);
        return run?.jobName === job.name ? run : null;
      },
      getRuns: (filter) => this.getRuns({ ...filter, jobName: job.name }),
    };
  }

  #findJob(job: string | Job): Job {
    const name = typeof job === "string" ? job : job.name;
    const found = this.#jobs.get(name);
    if (found === undefined) throw new NotFoundError(`There is no job "${name}"`);
    return found;
  }

  async #newRun(job: Job, input: unknown, options: TriggerOptions & { copyStepsOf?: string | null }): Promise<NewRun> {
    const { host, maxValueBytes } = this.#deps;
    return await newRun(job, input, options, { newId: () => host.newId(), maxValueBytes });
  }

  async #trigger(
    job: string | Job,
    input: unknown,
    options: TriggerOptions,
    guard: TriggerGuard | null,
  ): Promise<TriggerResult> {
    const asked = await this.#newRun(this.#findJob(job), input, options);
    await guard?.beforeAdding(asked);
    await this.migrate();
    let joinable: string | null = null;
    while (true) {
      const [enqueued] = await surely(() => this.#store.enqueue([asked]));
      const { run, disposition } = enqueued!;
      const mayBeGone = disposition !== "created" && run.id !== joinable && await guard?.beforeJoining(run, asked);
      if (!mayBeGone) return this.#tellTrigger(enqueued!, asked);
      joinable = run.id; // it joins this run if it is still there
    }
  }

  async #enqueue(runs: readonly NewRun[]): Promise<TriggerResult[]> {
    await this.migrate();
    const enqueued = await surely(() => this.#store.enqueue(runs));
    return enqueued.map((one, position) => this.#tellTrigger(one, runs[position]!));
  }

  #tellTrigger({ run, disposition }: Enqueued, asked: NewRun): TriggerResult {
    const input = decode(asked.payload) ?? null;
    if (disposition === "created") this.#deps.hub.publish(run, { type: "run:trigger", input });
    if (disposition === "coalesced") {
      this.#deps.hub.publish(run, {
        type: "run:coalesced",
        status: run.status,
        skippedInput: input,
        skippedLabels: asked.labels,
      });
    }
    return { ...run, disposition };
  }

  /** What belongs to a run. If that is nothing, the run itself is looked for afterwards: it may be gone by then. */
  async #listOf<T>(runId: string, read: () => Promise<T[]>): Promise<T[]> {
    await this.migrate();
    const list = await read();
    if (list.length === 0) await this.#runOf(runId);
    return list;
  }

  async #runOf(runId: string): Promise<Run> {
    const run = await this.getRun(runId);
    if (run === null) throw new NotFoundError(`There is no run "${runId}"`);
    return run;
  }

  #inBackground(work: Promise<unknown>): void {
    const settled = work
      .catch((error) => this.#deps.hub.publishError(error))
      .finally(() => this.#pending.delete(settled));
    this.#pending.add(settled);
  }
}

const MAX_REPEATS = 3;

/** Repeats a call whose outcome is unknown: a store recognises it, and its own success is not taken for a conflict. */
async function surely<T>(call: () => Promise<T>): Promise<T> {
  for (let repeats = 0;; repeats++) {
    try {
      return await call();
    } catch (error) {
      if (!(error instanceof StoreError && error.outcomeUnknown) || repeats === MAX_REPEATS) throw error;
    }
  }
}

function checkRetention(retention: Retention): Retention {
  for (const [status, ms] of Object.entries(retention)) {
    if (ms !== undefined && !(ms >= 0)) throw new RangeError(`retention.${status} must be 0 or more ms, not ${ms}`);
  }
  return retention;
}

function checkMaxValueBytes(bytes: number): number {
  if (!Number.isInteger(bytes) || bytes < 1) {
    throw new RangeError(`maxValueBytes must be a positive integer, not ${bytes}`);
  }
  return bytes;
}

function byName(jobs: Jobs): Map<string, Job> {
  const byName = new Map<string, Job>();
  for (const job of Object.values(jobs)) {
    if (byName.has(job.name)) throw new TypeError(`Two jobs have the name "${job.name}"`);
    byName.set(job.name, job);
  }
  return byName;
}
