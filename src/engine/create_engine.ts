import { AsyncLocalStorage } from "node:async_hooks";
import { checkDuration } from "../check_duration.ts";
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
import type { Job, StepTriggerResult } from "../job.ts";
import { decode } from "../json.ts";
import type { LogEntry } from "../log.ts";
import {
  type BulkOperation,
  isTerminal,
  type Labels,
  type RetriggerFrom,
  type Run,
  type RunFilter,
  type RunPage,
} from "../run.ts";
import type { Schema } from "../schema.ts";
import type { Step } from "../step.ts";
import type { Enqueued, NewRun, Store } from "../store.ts";
import { checkOptionNames } from "../option_names.ts";
import { checkSignal, type Signal, type SignalReceipt, type Wait } from "../wait.ts";
import { type BulkOptions, type BulkSelection, checkBulk } from "./bulk/bulk_selection.ts";
import { type BulkGuard, type BulkResult, performBulk } from "./bulk/perform_bulk.ts";
import type {
  BulkRetriggerOptions,
  Engine,
  EngineOptions,
  IdleOptions,
  JobHandle,
  JobHandles,
  Jobs,
  RetriggerOptions,
  WaitOptions,
} from "./engine.ts";
import { checkEngineOptions, checkSchedules } from "./check_engine_options.ts";
import { derivedRunId } from "../execution/derived_run_id.ts";
import type { ExecutionDeps } from "../execution/execution.ts";
import { Hub } from "../events/hub.ts";
import { type EngineInternals, INTERNALS } from "./engine_internals.ts";
import { Lifecycle } from "./lifecycle.ts";
import { logFailures } from "./log_failures.ts";
import { toLogger } from "../logger.ts";
import type { Plugin } from "./plugin.ts";
import { type JobInfo, JobPauses, type PauseJobOptions } from "./job_pauses.ts";
import { checkRunFilter } from "./run_filter.ts";
import { endedStream, subscribe } from "../events/run_event_stream.ts";
import {
  newRun,
  parseLabels,
  type RetryParts,
  type SchemaLabels,
  type TriggerGuard,
  type TriggerOptions,
  type TriggerResult,
} from "./new_run.ts";
import { Scheduler } from "./schedules/scheduler.ts";
import { ScheduleRegistry, type Schedules } from "./schedules/schedule_registry.ts";
import { retryFlow } from "./trigger_flow.ts";
import { UnknownJobError } from "./unknown_job_error.ts";
import { checkPurge, purgeInSlices, type PurgeOptions } from "./purge_loop.ts";
import { workerSettings } from "../execution/worker_settings.ts";

const DEFAULT_MAX_VALUE_BYTES = 1_048_576;

/**
 * Creates an engine.
 *
 * @throws {TypeError} An option is unknown, the store is not a store, a job is not a job, two jobs have the same
 * name, or the logger lacks a function.
 * @throws {RangeError} A setting of the worker, a retention or `maxValueBytes` is out of range.
 */
export function createEngine<const J extends Jobs, L = Labels>(options: EngineOptions<J, L>): Engine<J, L> {
  return new JobEngine(options);
}

const TRIGGER_OPTIONS: Record<keyof TriggerOptions, true> = {
  idempotencyKey: true,
  concurrencyKey: true,
  coalesce: true,
  labels: true,
  startAt: true,
  delay: true,
  priority: true,
  fairnessKey: true,
  startWithin: true,
  finishWithin: true,
};
const RETRIGGER_OPTIONS: Record<keyof RetriggerOptions, true> = { from: true };
const WAIT_OPTIONS: Record<keyof WaitOptions, true> = { timeout: true };
const FILTER_FIELDS: Record<keyof RunFilter, true> = {
  jobName: true,
  status: true,
  labels: true,
  parentRunId: true,
  failureKind: true,
  completedAfter: true,
  completedBefore: true,
  createdAfter: true,
  createdBefore: true,
  limit: true,
  offset: true,
};

class JobEngine<J extends Jobs, L> implements Engine<J, L> {
  readonly jobs: JobHandles<J, L>;
  readonly schedules: Schedules<L>;
  readonly on: Hub["on"];
  readonly #store: Store;
  readonly #jobs: ReadonlyMap<string, Job>;
  readonly #labels: Schema<unknown, SchemaLabels> | undefined;
  readonly #fairnessLabel: string | null;
  readonly #pauses: JobPauses;
  readonly #deps: ExecutionDeps;
  readonly #lifecycle: Lifecycle;
  readonly #plugins = new Set<string>();
  /** The retries that bulk operations have published, while any of them goes on. */
  readonly #bulkRetries = new Set<string>();
  #bulkCalls = 0;
  readonly [INTERNALS]: EngineInternals;

  constructor(options: EngineOptions<J, L>) {
    checkEngineOptions(options);
    const host = options.host ?? systemHost;
    const logger = toLogger(options.logger);
    const hub = new Hub(host, logger);
    logFailures(hub, logger);
    this.#store = options.store;
    this.#jobs = new Map(Object.values(options.jobs).map((job) => [job.name, job]));
    this.#labels = options.labels as Schema<unknown, SchemaLabels> | undefined; // receives unchecked labels
    this.#fairnessLabel = options.fairnessLabel ?? null;
    const settings = workerSettings(options.worker);
    this.#deps = {
      store: options.store,
      hub,
      host,
      currentStep: new AsyncLocalStorage(),
      maxValueBytes: options.maxValueBytes ?? DEFAULT_MAX_VALUE_BYTES,
      runs: {
        // Inherited labels were checked by the first trigger.
        create: (job, input, options) => this.#newRun(this.#findJob(job), input, options),
        add: (run) => this.#addTriggered(run),
      },
    };
    const declared = checkSchedules(options.schedules ?? {}, this.#jobs, this.#deps.maxValueBytes);
    const scheduler = new Scheduler({
      ...this.#deps,
      jobs: this.#jobs,
      declared: new Set(declared.map(({ name }) => name)),
      requestRun: (job, input, options) => this.#requestedRun(job, input, options),
      publishTrigger: (enqueued, asked) => void this.#publishTrigger(enqueued, asked),
    });
    const schedules = new ScheduleRegistry<L>({
      store: options.store,
      host,
      migrate: () => this.migrate(),
      declared,
      maxValueBytes: this.#deps.maxValueBytes,
      findJob: (name) => this.#findJob(name),
      requestRun: (job, input, options) => this.#requestedRun(job, input, options),
      addRun: async (run) => this.#publishTrigger(await this.#enqueue(run), run),
      onChange: () => scheduler.wake(),
    });
    this.schedules = schedules;
    const lifecycle = new Lifecycle({
      jobs: this.#jobs,
      settings,
      retention: options.retention ?? {},
      declareSchedules: () => schedules.declare(),
      scheduler,
    }, this.#deps);
    this.#lifecycle = lifecycle;
    const onResume = () => lifecycle.worker.wake();
    this.#pauses = new JobPauses({ jobs: this.#jobs, store: options.store, hub, onResume });
    this[INTERNALS] = {
      reader: lifecycle.reader,
      store: () => lifecycle.migrate().then(() => options.store),
      isStopped: () => lifecycle.isStopped,
      onStop: (listener) => lifecycle.onStop(listener),
      trigger: (jobName, input, options, guard) => this.#trigger(jobName, input, options, guard),
      performBulk: (operation, selection, options, guard) => this.#performBulk(operation, selection, options, guard),
    };
    this.on = hub.on.bind(hub);
    // Each handle passes its arguments on, so it has the types of its job.
    this.jobs = Object.freeze(
      Object.fromEntries(Object.entries(options.jobs).map(([key, job]) => [key, this.#handle(job)])),
    ) as JobHandles<J, L>;
  }

  migrate(): Promise<void> {
    return this.#lifecycle.migrate();
  }

  start(): Promise<void> {
    return this.#lifecycle.start();
  }

  stop(options: { timeout?: number } = {}): Promise<void> {
    return this.#lifecycle.stop(options);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  trigger(job: string | Job, input: unknown, options: TriggerOptions<unknown> = {}): Promise<TriggerResult> {
    return this.#trigger(job, input, options, null);
  }

  async getRun(runId: string): Promise<Run | null> {
    await this.migrate();
    return await this.#store.getRun(runId);
  }

  async getRuns(filter: RunFilter = {}): Promise<RunPage> {
    checkOptionNames(filter, FILTER_FIELDS, "getRuns()");
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
    const { run, ...receipt } = await surely(() => this.#store.signal(waitId, checked))
      .catch((error) => this.#explainUnknownWait(waitId, error));
    this.#lifecycle.worker.nudge(run.id);
    this.#lifecycle.worker.wake();
    return receipt;
  }

  /** Explains an id that is not a wait's, if it is a run's. Otherwise throws the error. */
  async #explainUnknownWait(id: string, error: unknown): Promise<never> {
    if (!(error instanceof NotFoundError) || await this.#store.getRun(id) === null) throw error;
    throw new NotFoundError(`"${id}" is the id of a run: signal one of its waits, which engine.getWaits() lists`);
  }

  getLogs(runId: string): Promise<LogEntry[]> {
    return this.#listOf(runId, () => this.#store.getLogs(runId));
  }

  async retrigger(runId: string, options: RetriggerOptions = {}): Promise<TriggerResult> {
    checkOptionNames(options, RETRIGGER_OPTIONS, "retrigger()");
    const from = checkFrom(options);
    await this.migrate();
    const { request, old } = await this.#retryOf(runId, from);
    return await this.#addRetry(request, old);
  }

  /** The request for the retry of a run that has ended, and that run. */
  async #retryOf(runId: string, from: RetriggerFrom): Promise<{ request: NewRun; old: Run }> {
    const state = await this.#store.getRunState(runId);
    if (state === null) throw new NotFoundError(`There is no run "${runId}"`);
    const old = state.run;
    if (!isTerminal(old.status)) {
      throw new ConflictError(`Cannot retrigger run "${runId}": it is ${old.status}`);
    }
    const job = this.#findJob(old.jobName);
    const run = await this.#newRun(job, decode(state.payload), { labels: old.labels }, {
      retriggerOf: { runId, from },
      flow: retryFlow(old, { job: job.flow, hasKey: old.concurrencyKey !== null }),
    });
    // A stored key was checked by the first trigger, and may be longer now: it has the tenant as its prefix.
    const schedule = old.scheduleName === null ? null : { name: old.scheduleName, slotAt: old.slotAt };
    return { request: { ...run, concurrencyKey: old.concurrencyKey, schedule }, old };
  }

  async #addRetry(request: NewRun, old: Run): Promise<TriggerResult> {
    return this.#publishRetry(await this.#enqueue(request), request, old);
  }

  #publishRetry(enqueued: Enqueued, request: NewRun, old: Run): TriggerResult {
    const result = this.#publishTrigger(enqueued, request);
    if (result.disposition === "created") this.#deps.hub.publish(old, { type: "run:retry", newRunId: result.id });
    return result;
  }

  async cancel(runId: string): Promise<Run> {
    await this.migrate();
    const execution = this.#lifecycle.worker.executionOf(runId);
    const requestId = this.#deps.host.newId();
    const run = await surely(() => this.#store.cancel(runId, requestId, execution));
    if (run === null) {
      const { status } = await this.#runOf(runId);
      throw new ConflictError(`Cannot cancel run "${runId}": it is already ${status}`);
    }
    this.#lifecycle.worker.cancel(runId);
    this.#lifecycle.worker.wake(); // a run that waits for this one is due now
    if (execution !== null) await this.#publishCancelledSteps(run, execution.steps);
    this.#deps.hub.publish(run, { type: "run:cancel" });
    return run;
  }

  /** Publishes the steps that the cancel recorded as cancelled; a step may have been recorded before it. */
  async #publishCancelledSteps(run: Run, executing: readonly { name: string }[]): Promise<void> {
    if (executing.length === 0) return;
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

  cancelRuns(selection: BulkSelection, options: BulkOptions = {}): Promise<BulkResult> {
    return this.#performBulk("cancel", selection, options, null);
  }

  retriggerRuns(selection: BulkSelection, options: BulkRetriggerOptions = {}): Promise<BulkResult> {
    return this.#performBulk("retrigger", selection, options, null);
  }

  deleteRuns(selection: BulkSelection, options: BulkOptions = {}): Promise<BulkResult> {
    return this.#performBulk("delete", selection, options, null);
  }

  async #performBulk(
    operation: BulkOperation,
    selection: BulkSelection,
    options: BulkRetriggerOptions,
    guard: BulkGuard | null,
  ): Promise<BulkResult> {
    const { from, ...others } = options;
    const bulk = checkBulk(selection, operation === "retrigger" ? others : options, `${operation}Runs()`);
    const checkedFrom = checkFrom({ from });
    await this.migrate();
    this.#bulkCalls += 1;
    try {
      return await performBulk(operation, bulk, {
        store: this.#store,
        host: this.#deps.host,
        guard,
        prepare: (runId) => this.#prepare(operation, runId, checkedFrom),
      });
    } finally {
      this.#bulkCalls -= 1;
      if (this.#bulkCalls === 0) this.#bulkRetries.clear();
    }
  }

  /** Prepares an operation on one of many runs. */
  async #prepare(operation: BulkOperation, runId: string, from: RetriggerFrom): Promise<() => Promise<unknown>> {
    if (operation === "cancel") return () => this.cancel(runId);
    if (operation === "delete") return () => this.deleteRun(runId);
    const { request, old } = await this.#retryOf(runId, from);
    if (old.retriggeredAs !== null) throw new ConflictError(`Run "${runId}" was retriggered before`);
    // The same id each time: of calls at the same time, all find the one run that the first has made.
    return () => this.#addBulkRetry({ ...request, id: derivedRunId(runId, `bulk retrigger of ${runId}`) }, old);
  }

  /** Adds a retry, and publishes it unless another bulk operation has done so a moment ago. */
  async #addBulkRetry(request: NewRun, old: Run): Promise<void> {
    const enqueued = await this.#enqueue(request);
    if (this.#bulkRetries.has(request.id)) return;
    this.#bulkRetries.add(request.id);
    this.#publishRetry(enqueued, request, old);
  }

  async waitForRun(runId: string, options: WaitOptions = {}): Promise<Run> {
    this.#checkOutsideStep("waitForRun()");
    checkOptionNames(options, WAIT_OPTIONS, "waitForRun()");
    const { timeout } = options;
    if (timeout !== undefined) checkDuration(timeout, "The timeout of waitForRun()");
    const { hub, host } = this.#deps;
    let look: () => void = () => {};
    const limit = timeout === undefined ? null : { ms: timeout, isOver: false };
    const stops = [
      hub.onRun(runId, () => look()),
      this.#lifecycle.changes.onThrottled(() => look()),
    ];
    if (limit !== null) {
      stops.push(host.schedule(limit.ms, () => {
        limit.isOver = true;
        look();
      }));
    }
    try {
      while (true) {
        // Subscribe before reading the run: an event between the two would otherwise be missed.
        const changed = new Promise<void>((resolve) => look = resolve);
        const run = await this.#runOf(runId);
        if (run.status === "completed") return run;
        if (run.status === "failed") {
          const { jobName, failedStepName: stepName, failure } = run;
          throw new RunFailedError({ runId, jobName, stepName, failure: failure! }); // a failed run has one
        }
        if (run.status === "cancelled") throw new RunCancelledError(runId);
        if (limit?.isOver) throw new TimeoutError(await this.#explainTimeout(run, limit.ms));
        await changed;
      }
    } finally {
      for (const stop of stops) stop();
    }
  }

  /** Refuses to wait for a run inside the function of a step: the step would hold a slot of the worker meanwhile. */
  #checkOutsideStep(call: string): void {
    const step = this.#deps.currentStep.getStore();
    if (step === undefined) return;
    throw new TypeError(
      `${call} cannot wait for a run inside the function of step "${step}": call step.invoke() outside of it`,
    );
  }

  /** Explains why a run has not completed in time; often no worker can execute it. */
  async #explainTimeout({ id, jobName, status }: Run, timeout: number): Promise<string> {
    const hasWorker = await this.#store.hasWorker(jobName);
    return `Run "${id}" has not completed within ${timeout} ms: it is ${status}` +
      (hasWorker ? "" : `, and no live worker has job "${jobName}"; call start() on an engine that has this job`);
  }

  subscribe(runId: string): ReadableStream<RunEvent> {
    return this.#lifecycle.isStopped ? endedStream() : subscribe(runId, this[INTERNALS].reader, this.#store);
  }

  use(plugin: Plugin): this {
    if (this.#plugins.has(plugin.name)) return this;
    this.#plugins.add(plugin.name);
    plugin.install({
      on: this.on,
      appendLogs: (entries) => this.#lifecycle.inBackground(this.#store.appendLogs(entries)),
      newId: () => this.#deps.host.newId(),
    });
    return this;
  }

  runUntilIdle(options: IdleOptions = {}): Promise<{ executed: number }> {
    return this.#lifecycle.runUntilIdle(options);
  }

  async pauseJob(jobName: string, options: PauseJobOptions = {}): Promise<JobInfo> {
    await this.migrate();
    return await this.#pauses.pause(jobName, options);
  }

  async resumeJob(jobName: string): Promise<JobInfo> {
    await this.migrate();
    return await this.#pauses.resume(jobName);
  }

  async purgeRuns(options: PurgeOptions): Promise<{ deleted: number }> {
    const { retention, limit } = checkPurge(options);
    await this.migrate();
    return { deleted: await purgeInSlices(this.#store, retention, this.#deps, { limit }) };
  }

  #handle(job: Job): JobHandle<unknown, unknown, unknown> {
    return {
      trigger: (input, options) => this.trigger(job, input, options),
      triggerAndWait: async (input, { timeout, ...options } = {}) => {
        this.#checkOutsideStep("triggerAndWait()");
        if (timeout !== undefined) checkDuration(timeout, "The timeout of triggerAndWait()");
        const { id, disposition } = await this.trigger(job, input, options);
        return { ...await this.waitForRun(id, timeout === undefined ? {} : { timeout }), disposition };
      },
      batchTrigger: async (items) =>
        await this.#enqueueAll(
          await Promise.all(items.map(({ input, ...options }) => this.#requestedRun(job, input, options))),
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
    if (found === undefined) throw new UnknownJobError(name, this.#jobs.keys());
    return found;
  }

  /**
   * The run that a trigger asks for. Stored labels, as those of a retrigger, are not checked again.
   */
  async #requestedRun(job: Job, input: unknown, options: TriggerOptions<unknown>): Promise<NewRun> {
    checkOptionNames(options, TRIGGER_OPTIONS, "trigger()");
    const { labels = {}, ...rest } = options;
    const schema = this.#labels;
    // Without a schema, newRun() checks them.
    const checked = schema === undefined ? labels as Labels : await parseLabels(schema, labels, this.#deps.host);
    return await this.#newRun(job, input, { ...rest, labels: checked });
  }

  async #newRun(
    job: Job,
    input: unknown,
    options: TriggerOptions,
    retry?: RetryParts,
  ): Promise<NewRun> {
    const { host, maxValueBytes } = this.#deps;
    return await newRun(job, input, options, { host, maxValueBytes, fairnessLabel: this.#fairnessLabel, retry });
  }

  async #trigger(
    job: string | Job,
    input: unknown,
    options: TriggerOptions<unknown>,
    guard: TriggerGuard | null,
  ): Promise<TriggerResult> {
    const checked = await this.#requestedRun(this.#findJob(job), input, options);
    const asked = await guard?.beforeAdding(checked) ?? checked;
    await this.migrate();
    const check = guard?.beforeJoining ?? null;
    if (check === null) return this.#publishTrigger(await this.#enqueue(asked), asked);
    for (let joinOnly = "";;) { // none, until one was checked
      const enqueued = await this.#enqueue({ ...asked, joinOnly });
      const { run, disposition } = enqueued;
      if (disposition === "created" || run.id === joinOnly) return this.#publishTrigger(enqueued, asked);
      await check(run);
      joinOnly = run.id; // joins this run if it still exists
    }
  }

  async #enqueue(run: NewRun): Promise<Enqueued> {
    const [enqueued] = await surely(() => this.#store.enqueue([run]));
    return enqueued!; // one for each request
  }

  /** Adds the run that a step triggers. */
  async #addTriggered(run: NewRun): Promise<StepTriggerResult> {
    try {
      const { id: runId, disposition } = this.#publishTrigger(await this.#enqueue(run), run);
      return { runId, disposition };
    } catch (error) {
      if (!(error instanceof ConflictError)) throw error;
      return { runId: run.id, disposition: "created" }; // by an earlier attempt, and deleted since
    }
  }

  async #enqueueAll(runs: readonly NewRun[]): Promise<TriggerResult[]> {
    await this.migrate();
    const enqueued = await surely(() => this.#store.enqueue(runs));
    return enqueued.map((one, position) => this.#publishTrigger(one, runs[position]!)); // one for each request
  }

  #publishTrigger({ run, disposition }: Enqueued, asked: NewRun): TriggerResult {
    const input = decode(asked.payload) ?? null;
    if (disposition === "created") {
      const { startAt, parentRunId, scheduleName, slotAt } = run;
      this.#deps.hub.publish(run, { type: "run:trigger", input, startAt, parentRunId, scheduleName, slotAt });
    }
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

  /** Reads a list that belongs to a run. If it is empty, checks afterwards that the run exists. */
  async #listOf<T>(runId: string, read: () => Promise<T[]>): Promise<T[]> {
    await this.migrate();
    const list = await read();
    if (list.length === 0) await this.#runOf(runId);
    return list;
  }

  async #runOf(runId: string): Promise<Run> {
    const run = await this.getRun(runId);
    if (run !== null) return run;
    const wait = await this.#store.getWait(runId);
    throw new NotFoundError(
      wait === null
        ? `There is no run "${runId}"`
        : `"${runId}" is the id of a wait, not of a run: it belongs to run "${wait.runId}"`,
    );
  }
}

function checkFrom({ from = "start" }: RetriggerOptions): RetriggerFrom {
  if (from === "start" || from === "failure") return from;
  throw new ValidationError('from must be "start" or "failure"');
}

const MAX_REPEATS = 3;

/** Repeats a call whose outcome is unknown: the store recognises the repetition and does not report a conflict. */
async function surely<T>(call: () => Promise<T>): Promise<T> {
  for (let repeats = 0;; repeats++) {
    try {
      return await call();
    } catch (error) {
      if (!(error instanceof StoreError && error.outcomeUnknown) || repeats === MAX_REPEATS) throw error;
    }
  }
}
