import { AsyncLocalStorage } from "node:async_hooks";
import { AroundHooks, runAround, type SignalInfo, type SignalResult } from "../around.ts";
import { checkDuration } from "../values/check_duration.ts";
import { ConflictError, NotFoundError } from "../error.ts";
import type { RunEvent } from "../event.ts";
import type { ExportedHistory } from "../exported_history.ts";
import { systemHost } from "../host.ts";
import type { Job } from "../job.ts";
import { JobCatalog } from "../job/job_catalog.ts";
import type { LogEntry } from "../log.ts";
import type { BulkOperation, Labels, RetriggerFrom, Run, RunFilter, RunPage } from "../run.ts";
import type { Schema } from "../schema.ts";
import type { Step } from "../step.ts";
import type { NewRun } from "../store/new_run.ts";
import type { Store } from "../store.ts";
import type { StrandedJob } from "../store/hold_record.ts";
import type { StoreInfo } from "../store/store_info.ts";
import { measuredStore } from "../statistics/measured_store.ts";
import { Recorder } from "../statistics/recorder.ts";
import { checkOptionNames } from "../values/option_names.ts";
import { encodeTrace, type TraceText } from "../trace_context.ts";
import { checkSignal, type Signal, type SignalOutcome, type SignalReceipt, type Wait } from "../wait.ts";
import { BULK_OPTIONS, type BulkOptions, type BulkSelection, checkBulk } from "./bulk/bulk_selection.ts";
import { type BulkGuard, type BulkResult, performBulk } from "./bulk/perform_bulk.ts";
import type {
  BulkRetriggerOptions,
  Engine,
  EngineOptions,
  IdleOptions,
  JobHandle,
  JobHandles,
  Jobs,
  ResumeAllOptions,
  ResumeOptions,
  RetriggerOptions,
  WaitOptions,
} from "./engine.ts";
import { checkEngineOptions, checkSchedules } from "./check_engine_options.ts";
import { derivedRunId } from "../execution/calls/derived_run_id.ts";
import type { ExecutionDeps } from "../execution/execution.ts";
import { exportHistory, type ExportHistoryOptions } from "./export_history.ts";
import { ChangeWatch } from "../events/change_watch.ts";
import { Hub } from "../events/hub.ts";
import { type EngineInternals, INTERNALS } from "./engine_internals.ts";
import { HeldRuns } from "./held_runs.ts";
import { Lifecycle } from "./lifecycle.ts";
import { logFailures } from "./log_failures.ts";
import { type Logger, toLogger } from "../logger.ts";
import { type Explanation, toExplanation } from "./operate/explain/explanation.ts";
import { ALL } from "./operate/explain/sight.ts";
import { failedRunsFilter, readFailedRuns } from "./operate/failed_runs.ts";
import { type FailureGroups, type FailuresQuery, groupFailures } from "./operate/failure_groups.ts";
import { checkSearch, findRuns, type FoundRun, MAX_FOUND } from "./operate/found_runs.ts";
import { listOpenWaits, type OpenWaitsPage, type OpenWaitsQuery } from "./operate/open_waits.ts";
import { readTimeline, type Timeline, type TimelineOptions } from "./operate/timeline.ts";
import { checkPlugin, type Plugin } from "./plugin.ts";
import { JobPauses, type PauseJobOptions } from "./job_pauses.ts";
import type { Health } from "./operate/health.ts";
import type { JobInfo } from "./operate/job_info.ts";
import { Monitor } from "./operate/statistics/monitor.ts";
import { Operator, type Stats } from "./operate/operator.ts";
import type { Series, SeriesQuery } from "./operate/statistics/series.ts";
import type { WorkerInfo } from "./operate/worker_info.ts";
import { checkRunFilter, FILTER_FIELDS } from "./run_filter.ts";
import { endedStream, subscribe } from "../events/run_event_stream.ts";
import type { SchemaLabels, TriggerOptions, TriggerResult } from "./triggers/new_run.ts";
import { Scheduler } from "./schedules/scheduler.ts";
import { ScheduleRegistry, type Schedules } from "./schedules/schedule_registry.ts";
import { watchStrandedJobs } from "./stranded_jobs.ts";
import { checkFrom, TRIGGER_OPTIONS, Triggers } from "./triggers/triggers.ts";
import { untilKnown } from "./triggers/until_known.ts";
import { waitForRun } from "./wait_for_run.ts";
import { checkPurge, purgeInSlices, type PurgeOptions } from "./purge_loop.ts";
import { PRODUCTION, type Surroundings } from "../execution/surroundings.ts";
import { workerSettings } from "../execution/worker_settings.ts";

const DEFAULT_MAX_VALUE_BYTES = 1_048_576;

/**
 * Creates an engine: it triggers runs, and executes them once it is started.
 *
 * @example
 * ```ts
 * import { createEngine, defineJob, MemoryStore } from "@holdfast/jobs";
 * import { z } from "zod";
 *
 * const greet = defineJob({
 *   name: "greet",
 *   input: z.object({ name: z.string() }),
 *   run: (step, { name }) => step.run("compose", () => `Hello, ${name}!`),
 * });
 *
 * await using store = new MemoryStore();
 * await using engine = createEngine({ store, jobs: { greet } });
 * await engine.start();
 * const run = await engine.jobs.greet.triggerAndWait({ name: "Ada" });
 * console.log(run.output); // Hello, Ada!
 * ```
 *
 * @throws {TypeError} An option is unknown, the store is not a store, a job is not a job, two jobs have the same
 * name, or the logger lacks a function.
 * @throws {RangeError} A setting of the worker, a retention or `maxValueBytes` is out of range.
 */
export function createEngine<const J extends Jobs, L = Labels>(options: EngineOptions<J, L>): Engine<J, L> {
  return new JobEngine(options, PRODUCTION);
}

/** Creates an engine in other surroundings than those of production. See {@linkcode createEngine}. */
export function createEngineIn<const J extends Jobs, L = Labels>(
  surroundings: Surroundings,
  options: EngineOptions<J, L>,
): Engine<J, L> {
  return new JobEngine(options, surroundings);
}

const RETRIGGER_OPTIONS: Record<keyof RetriggerOptions, true> = { from: true };
const LIST_FIELDS: Record<keyof RunFilter, true> = { ...FILTER_FIELDS, limit: true, offset: true };

class JobEngine<J extends Jobs, L> implements Engine<J, L> {
  readonly jobs: JobHandles<J, L>;
  readonly schedules: Schedules<L>;
  readonly on: Hub["on"];
  readonly #store: Store;
  readonly #triggers: Triggers;
  readonly #pauses: JobPauses;
  readonly #heldRuns: HeldRuns;
  readonly #operator: Operator;
  readonly #monitor: Monitor;
  readonly #deps: ExecutionDeps;
  readonly #lifecycle: Lifecycle;
  readonly #plugins = new Set<string>();
  /** The retries that bulk operations have published, while any of them goes on. */
  readonly #bulkRetries = new Set<string>();
  #bulkCalls = 0;
  readonly [INTERNALS]: EngineInternals;

  constructor(options: EngineOptions<J, L>, surroundings: Surroundings) {
    checkEngineOptions(options);
    const host = options.host ?? systemHost;
    const logger = toLogger(options.logger);
    const hub = new Hub(host, logger);
    logFailures(hub, logger);
    const around = new AroundHooks((error) => hub.publishError(error));
    const recorder: Recorder = new Recorder(() => {
      if (surroundings.polls) monitor.noteRecord(); // else they are written by a stop
    });
    hub.observe((jobName, happening) => recorder.observe(jobName, happening));
    const { store, condition: storeCondition } = measuredStore(options.store, recorder.metrics, host);
    this.#store = store;
    const jobs = new JobCatalog(Object.values(options.jobs), options);
    const maxValueBytes = options.maxValueBytes ?? DEFAULT_MAX_VALUE_BYTES;
    const triggers = new Triggers({
      store,
      hub,
      host,
      migrate: () => this.migrate(),
      jobs,
      labels: options.labels as Schema<unknown, SchemaLabels> | undefined, // receives unchecked labels
      fairnessLabel: options.fairnessLabel ?? null,
      maxValueBytes,
      around,
      recorder,
    });
    this.#triggers = triggers;
    const settings = workerSettings(options.worker);
    this.#deps = {
      store,
      hub,
      host,
      currentStep: new AsyncLocalStorage(),
      maxValueBytes,
      storesStacks: options.errors?.stack ?? true,
      runs: {
        // Inherited labels were checked by the first trigger.
        create: (job, input, options) => triggers.requestChecked(job, input, options),
        add: (run) => triggers.addFromStep(run),
      },
      onDivergence: options.onDivergence ?? "hold",
      recorder,
      warn: warnOnce(logger),
      around,
      surroundings,
    };
    const declared = checkSchedules(options.schedules ?? {}, jobs, maxValueBytes);
    const watch = new ChangeWatch(options.store, this.#deps);
    const scheduler = new Scheduler({
      ...this.#deps,
      watch,
      findJob: (name) => jobs.find(name)?.job,
      declared: new Set(declared.map(({ name }) => name)),
      requestRun: (job, input, options) => triggers.request(job, input, options),
      publishTrigger: (enqueued, request) => void triggers.publish(enqueued, request),
    });
    const schedules = new ScheduleRegistry<L>({
      store,
      host,
      migrate: () => this.migrate(),
      declared,
      maxValueBytes,
      findJob: (name) => triggers.findJob(name),
      requestRun: (job, input, options) => triggers.request(job, input, options),
      addRun: (run) => triggers.add(run),
      onChange: () => scheduler.wake(),
    });
    this.schedules = schedules;
    this.#operator = new Operator({ catalog: jobs, store, host });
    const monitor: Monitor = new Monitor({
      operator: this.#operator,
      recorder,
      store,
      host,
      storeCondition,
      migrate: () => this.migrate(),
      lookAtEngine: () => lifecycle.condition,
      slots: () => lifecycle.worker.slots,
      inBackground: (work) => lifecycle.inBackground(work),
    });
    this.#monitor = monitor;
    const lifecycle: Lifecycle = new Lifecycle({
      jobs,
      settings,
      watch,
      retention: options.retention ?? {},
      declareSchedules: () => schedules.declare(),
      scheduler,
      watchStranded: (abortSignal) => watchStrandedJobs({ ...this.#deps, logger }, abortSignal),
      monitor,
    }, this.#deps);
    this.#lifecycle = lifecycle;
    const onResume = () => lifecycle.worker.wake();
    const readJob = (jobName: string) => this.#operator.getJob(jobName);
    this.#pauses = new JobPauses({ jobs, store, hub, onResume, readJob });
    this.#heldRuns = new HeldRuns({ store, hub, readRun: (runId) => this.#runOf(runId), onResume });
    this[INTERNALS] = {
      reader: lifecycle.reader,
      store: () => lifecycle.migrate().then(() => store),
      jobs: () => jobs.newest.values(),
      isStopped: () => lifecycle.isStopped,
      onStop: (listener) => lifecycle.onStop(listener),
      wake: () => {
        lifecycle.worker.wake();
        scheduler.wake();
      },
      runsInOwnCode: () => lifecycle.worker.runsInOwnCode(),
      discard: () => lifecycle.discard(),
      trigger: (jobName, input, options, guard) => this.#triggers.trigger(jobName, input, options, guard),
      performBulk: (operation, selection, options, guard) => this.#performBulk(operation, selection, options, guard),
      liveness: () => monitor.liveness(),
      metrics: () => monitor.metrics(),
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
    return this.#triggers.trigger(job, input, options, null);
  }

  async getRun(runId: string): Promise<Run | null> {
    await this.migrate();
    return await this.#store.getRun(runId);
  }

  async getRuns(filter: RunFilter = {}): Promise<RunPage> {
    checkOptionNames(filter, LIST_FIELDS, "getRuns()");
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
    const { run, ...receipt } = await this.#signalAround(waitId, checked)
      .catch((error) => this.#explainUnknownWait(waitId, error));
    if (receipt.disposition === "accepted") this.#deps.recorder.noteWait(run.jobName, "signal");
    this.#lifecycle.worker.nudge(run.id);
    this.#lifecycle.worker.wake();
    return receipt;
  }

  /** Ends a wait inside what plugins do around signals. */
  #signalAround(waitId: string, signal: Signal): Promise<SignalOutcome> {
    const { around } = this.#deps;
    const send = (trace: TraceText | null) => untilKnown(() => this.#store.signal(waitId, signal, trace));
    if (around.signal === null) return send(null);
    const info: SignalInfo = { waitId, signalId: signal.signalId, trace: null };
    return runAround<SignalInfo, SignalResult, SignalOutcome>(around.signal, info, async (end) => {
      const outcome = await send(encodeTrace(info.trace));
      const { run: { id: runId, jobName }, wait: { name: waitName }, disposition: kind } = outcome;
      end({ kind, runId, jobName, waitName });
      return outcome;
    }, (error) => ({ kind: "refused", error }));
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
    const { request, old } = await this.#triggers.requestRetry(runId, from);
    return await this.#triggers.addRetry(request, old);
  }

  async cancel(runId: string): Promise<Run> {
    await this.migrate();
    const execution = this.#lifecycle.worker.executionOf(runId);
    const requestId = this.#deps.host.newId();
    const run = await untilKnown(() => this.#store.cancel(runId, requestId, execution));
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
    checkOptionNames(options, BULK_OPTIONS[operation], `${operation}Runs()`);
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
    const { request, old } = await this.#triggers.requestRetry(runId, from);
    if (old.retriggeredAs !== null) throw new ConflictError(`Run "${runId}" was retriggered before`);
    // The same id each time: of calls at the same time, all find the one run that the first has made.
    return () => this.#addBulkRetry({ ...request, id: derivedRunId(runId, `bulk retrigger of ${runId}`) }, old);
  }

  /** Adds a retry, and publishes it unless another bulk operation has done so a moment ago. */
  async #addBulkRetry(request: NewRun, old: Run): Promise<void> {
    const enqueued = await this.#triggers.enqueue(request);
    if (this.#bulkRetries.has(request.id)) return;
    this.#bulkRetries.add(request.id);
    this.#triggers.publishRetry(enqueued, request, old);
  }

  async waitForRun(runId: string, options: WaitOptions = {}): Promise<Run> {
    this.#checkOutsideStep("waitForRun()");
    return await waitForRun(runId, options, {
      ...this.#deps,
      changes: this.#lifecycle.changes,
      readRun: (runId) => this.#runOf(runId),
    });
  }

  /** Refuses to wait for a run inside the function of a step: the step would hold a slot of the worker meanwhile. */
  #checkOutsideStep(call: string): void {
    const step = this.#deps.currentStep.getStore();
    if (step === undefined) return;
    throw new TypeError(
      `${call} cannot wait for a run inside the function of step "${step}": call step.invoke() outside of it`,
    );
  }

  subscribe(runId: string): ReadableStream<RunEvent> {
    return this.#lifecycle.isStopped ? endedStream() : subscribe(runId, this[INTERNALS].reader, this.#store);
  }

  use(plugin: Plugin): this {
    checkPlugin(plugin);
    if (this.#plugins.has(plugin.name)) return this;
    this.#plugins.add(plugin.name);
    plugin.install({
      on: this.on,
      appendLogs: (entries) => this.#lifecycle.inBackground(this.#store.appendLogs(entries)),
      newId: () => this.#deps.host.newId(),
      around: (around) => this.#deps.around.add(around),
    });
    return this;
  }

  runUntilIdle(options: IdleOptions = {}): Promise<{ executed: number }> {
    return this.#lifecycle.runUntilIdle(options);
  }

  async getStats(): Promise<Stats> {
    await this.migrate();
    return await this.#operator.getStats();
  }

  async getSeries(query: SeriesQuery): Promise<Series> {
    await this.migrate();
    return await this.#operator.getSeries(query);
  }

  async getJobs(): Promise<JobInfo[]> {
    await this.migrate();
    return await this.#operator.getJobs();
  }

  async getWorkers(): Promise<WorkerInfo[]> {
    await this.migrate();
    return await this.#operator.getWorkers();
  }

  health(): Promise<Health> {
    return this.#monitor.health();
  }

  async getStoreInfo(): Promise<StoreInfo> {
    await this.migrate();
    return await this.#operator.getStoreInfo();
  }

  async pauseJob(jobName: string, options: PauseJobOptions = {}): Promise<JobInfo> {
    await this.migrate();
    return await this.#pauses.pause(jobName, options);
  }

  async resumeJob(jobName: string): Promise<JobInfo> {
    await this.migrate();
    return await this.#pauses.resume(jobName);
  }

  async resume(runId: string, options: ResumeOptions = {}): Promise<Run> {
    await this.migrate();
    return await this.#heldRuns.resume(runId, options);
  }

  async resumeAll(options: ResumeAllOptions = {}): Promise<{ resumed: number }> {
    await this.migrate();
    return await this.#heldRuns.resumeAll(options);
  }

  async exportHistory(runId: string, options: ExportHistoryOptions = {}): Promise<ExportedHistory> {
    await this.migrate();
    const history = await exportHistory(this.#store, runId, options);
    if (history !== null) return history;
    await this.#runOf(runId);
    throw new NotFoundError(`There was no run "${runId}" when its history was read`);
  }

  async explain(runId: string): Promise<Explanation> {
    await this.migrate();
    const blockers = await this.#store.getBlockers(runId);
    return blockers === null ? await this.#noRun(runId) : toExplanation(blockers, ALL);
  }

  async getTimeline(runId: string, options: TimelineOptions = {}): Promise<Timeline> {
    await this.migrate();
    return await readTimeline(this.#store, runId, options) ?? await this.#noRun(runId);
  }

  async getOpenWaits(query: OpenWaitsQuery = {}): Promise<OpenWaitsPage> {
    await this.migrate();
    return await listOpenWaits(query, { store: this.#store, host: this.#deps.host, access: null });
  }

  async getFailures(query: FailuresQuery = {}): Promise<FailureGroups> {
    const filter = failedRunsFilter(query);
    await this.migrate();
    const { host } = this.#deps;
    return groupFailures(await readFailedRuns(filter, { store: this.#store, host, mayShow: null }));
  }

  async findRuns(query: string): Promise<FoundRun[]> {
    const text = checkSearch(query);
    await this.migrate();
    return await findRuns(this.#store, await this.#store.searchRuns(text, MAX_FOUND), null);
  }

  async stranded(): Promise<StrandedJob[]> {
    await this.migrate();
    return await this.#store.getStrandedJobs();
  }

  async purgeRuns(options: PurgeOptions): Promise<{ deleted: number }> {
    const { retention, limit } = checkPurge(options);
    await this.migrate();
    return { deleted: await purgeInSlices(this.#store, retention, this.#deps, { limit }) };
  }

  #handle(job: Job): JobHandle<unknown, unknown, unknown> {
    const names = [job.name, ...job.changes.aliases];
    return {
      trigger: (input, options) => this.trigger(job, input, options),
      triggerAndWait: async (input, given = {}) => {
        this.#checkOutsideStep("triggerAndWait()");
        checkOptionNames(given, { ...TRIGGER_OPTIONS, timeout: true }, "triggerAndWait()");
        const { timeout, ...options } = given;
        if (timeout !== undefined) checkDuration(timeout, "The timeout of triggerAndWait()");
        const { id, disposition } = await this.trigger(job, input, options);
        return { ...await this.waitForRun(id, timeout === undefined ? {} : { timeout }), disposition };
      },
      batchTrigger: (items) => this.#triggers.triggerBatch(job, items),
      getRun: async (runId) => {
        const run = await this.getRun(runId);
        return run !== null && names.includes(run.jobName) ? run : null;
      },
      getRuns: (filter) => this.getRuns({ ...filter, jobName: names }),
    };
  }

  /** Reads a list that belongs to a run. If it is empty, checks afterwards that the run exists. */
  async #listOf<T>(runId: string, read: () => Promise<T[]>): Promise<T[]> {
    await this.migrate();
    const list = await read();
    if (list.length === 0) await this.#runOf(runId);
    return list;
  }

  async #runOf(runId: string): Promise<Run> {
    return await this.getRun(runId) ?? await this.#noRun(runId);
  }

  async #noRun(runId: string): Promise<never> {
    const wait = await this.#store.getWait(runId);
    throw new NotFoundError(
      wait === null
        ? `There is no run "${runId}"`
        : `"${runId}" is the id of a wait, not of a run: it belongs to run "${wait.runId}"`,
    );
  }
}

// How many different warnings an engine gives at most.
const MAX_WARNINGS = 1_000;

/** Logs each warning once. */
function warnOnce(logger: Logger): (message: string) => void {
  const given = new Set<string>();
  return (message) => {
    if (given.has(message) || given.size >= MAX_WARNINGS) return;
    given.add(message);
    logger.warn(message);
  };
}
