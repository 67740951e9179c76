import { type Duration, readDuration } from "../values/duration.ts";
import type { Children, ChildrenQuery } from "../model/children.ts";
import { NotFoundError } from "../model/error.ts";
import type { RunEvent } from "../model/event.ts";
import type { ExportedHistory } from "../model/exported_history.ts";
import type { Job } from "../model/job.ts";
import type { LogEntry } from "../model/log.ts";
import { type ActorOptions, checkActor, readActor } from "../model/origin.ts";
import { type Labels, parseRun, type Run, type RunFilter, type RunPage, type UncountedPage } from "../model/run.ts";
import type { Step } from "../model/step.ts";
import {
  parsePlace,
  type ReadStreamOptions,
  type Stream,
  type StreamInfo,
  streamName,
  type StreamPart,
} from "../model/stream.ts";
import type { Json, Jsonify } from "../values/json.ts";
import { tidyText } from "../values/text.ts";
import type { Store } from "../store/store.ts";
import type { StrandedJob } from "../model/hold.ts";
import type { StoreInfo } from "../store/operate.ts";
import { checkOptionNames } from "../values/option_names.ts";
import type { KeyedRun, MessageSchemas } from "../model/job/job_messages.ts";
import type { Message, SendResult } from "../model/message.ts";
import { type AskOptions, SEND_OPTIONS, type SendOptions } from "./messages.ts";
import { type Signal, type SignalReceipt, type Wait } from "../model/wait.ts";
import { assembleEngine, type EngineParts } from "./assemble_engine.ts";
import type { BulkOptions, BulkResumeOptions, BulkRetriggerOptions, BulkSelection } from "./bulk/bulk_selection.ts";
import type { ResumeAllOptions } from "./bulk/bulk_operations.ts";
import type { BulkResult } from "./bulk/perform_bulk.ts";
import type { Engine } from "./engine.ts";
import type { EngineOptions } from "./engine_options.ts";
import type { IdleOptions, IdleResult } from "./lifecycle.ts";
import type { JobHandle, JobHandles, Jobs } from "./job_handle.ts";
import type { ResumeOptions } from "./runs/held_runs.ts";
import { checkFrom, RETRIGGER_OPTIONS, type RetriggerOptions } from "./triggers/retrigger_options.ts";
import { waitForAnswer } from "./runs/wait_for_answer.ts";
import { readTimeout, waitForRun, type WaitForRunDeps, type WaitOptions } from "./runs/wait_for_run.ts";
import { readRun, refuseUnknownRun } from "./runs/read_run.ts";
import { exportHistory, type ExportHistoryOptions } from "./runs/export_history.ts";
import type { Hub } from "../events/hub.ts";
import { type EngineInternals, INTERNALS } from "./engine_internals.ts";
import { type Explanation, toExplanation } from "./operate/explain/explanation.ts";
import { readCauses } from "./operate/explain/held_child.ts";
import { ALL_VISIBLE } from "./operate/explain/visibility.ts";
import { readNewestRuns } from "./operate/newest_runs.ts";
import { listChildren } from "./operate/children.ts";
import { failedRunsFilter, type FailureGroups, type FailuresQuery, groupFailures } from "./operate/failure_groups.ts";
import { checkSearch, findRuns, type FoundRun, MAX_FOUND } from "./operate/found_runs.ts";
import { groupHeld, type HeldGroups, heldRunsFilter, type HeldRunsQuery } from "./operate/held_groups.ts";
import { listOpenWaits, type OpenWaitsPage, type OpenWaitsQuery } from "./operate/open_waits.ts";
import { readTimeline, type Timeline, type TimelineOptions } from "./operate/timeline.ts";
import { checkPlugin, type Plugin } from "./plugin.ts";
import type { PauseJobOptions } from "./job_pauses.ts";
import type { Health } from "./operate/health.ts";
import type { JobInfo } from "./operate/job_info.ts";
import type { Stats } from "./operate/operator.ts";
import type { Series, SeriesQuery } from "./operate/statistics/series.ts";
import type { WorkerInfo } from "./operate/worker_info.ts";
import { checkRunFilter, FILTER_FIELDS } from "./runs/run_filter.ts";
import { endedStream, subscribe } from "../events/run_event_stream.ts";
import { toTriggerResult, type TriggerOptions, type TriggerResult } from "./triggers/new_run.ts";
import type { DataSource, TransactionOptions } from "../model/data_source.ts";
import type { AsyncTransactionCalls } from "../model/transaction.ts";
import type { TransactionResult } from "./transactions/transactions.ts";
import type { Schedules } from "./schedules/schedule_registry.ts";
import { TRIGGER_OPTIONS } from "./triggers/triggers.ts";
import { checkPurge, purgeInSlices, type PurgeOptions } from "./runs/purge_loop.ts";
import { PRODUCTION, type Surroundings } from "../execution/surroundings.ts";
import { kindOf } from "../values/kind_of.ts";
import { getLogs, getMessages, getRun, getRuns, getSteps, getWaits } from "../store/reads.ts";

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

const LIST_FIELDS = { ...FILTER_FIELDS, limit: true, offset: true, total: true } satisfies Record<
  keyof RunFilter | "total",
  unknown
>;

const READ_STREAM_OPTIONS: Record<keyof ReadStreamOptions, true> = { after: true, follow: true };

class JobEngine<J extends Jobs, L> implements Engine<J, L> {
  readonly jobs: JobHandles<J, L>;
  readonly schedules: Schedules<L>;
  readonly on: Hub["on"];
  readonly #parts: EngineParts<L>;
  readonly #store: Store;
  readonly [INTERNALS]: EngineInternals;

  constructor(options: EngineOptions<J, L>, surroundings: Surroundings) {
    const parts = assembleEngine(options, surroundings);
    const { deps: { store, hub }, schedules, internals } = parts;
    this.#parts = parts;
    this.#store = store;
    this.schedules = schedules;
    this[INTERNALS] = internals;
    this.on = hub.on.bind(hub);
    // Each handle passes its arguments on, so it has the types of its job.
    this.jobs = Object.freeze(
      Object.fromEntries(Object.entries(options.jobs).map(([key, job]) => [key, this.#handle(job)])),
    ) as JobHandles<J, L>;
  }

  migrate(): Promise<void> {
    return this.#parts.lifecycle.migrate();
  }

  start(): Promise<void> {
    return this.#parts.lifecycle.start();
  }

  stop(options: { timeout?: Duration } = {}): Promise<void> {
    return this.#parts.lifecycle.stop(options);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async trigger(job: string | Job, input: unknown, options: TriggerOptions<unknown> = {}): Promise<TriggerResult> {
    return toTriggerResult(await this.#parts.triggers.trigger(job, input, options, null));
  }

  transaction<Tx, T>(
    source: DataSource<Tx>,
    work: (tx: Tx) => T | Promise<T>,
    options: TransactionOptions = {},
  ): Promise<TransactionResult<T>> {
    // The source gives the function what it says.
    return this.#parts.transactions.transact(source, work as (tx: object) => unknown, options) as Promise<
      TransactionResult<T>
    >;
  }

  inTransaction(source: DataSource, client: unknown): AsyncTransactionCalls {
    return this.#parts.transactions.inTransaction(source, client);
  }

  async getRun(runId: string): Promise<Run | null> {
    return await getRun(this.#store, runId);
  }

  getRuns(filter: RunFilter & { total: false }): Promise<UncountedPage>;
  getRuns(filter?: RunFilter): Promise<RunPage>;
  async getRuns(given: RunFilter & { total?: boolean } = {}): Promise<UncountedPage> {
    checkOptionNames(given, LIST_FIELDS, "getRuns()");
    const { total: isCounted = true, ...filter } = given;
    if (typeof isCounted !== "boolean") throw new TypeError(`total must be a boolean, not ${kindOf(isCounted)}`);
    const checked = checkRunFilter(filter);
    if (isCounted) return await getRuns(this.#store, checked);
    const { runs, hasMore } = await getRuns(this.#store, { ...checked, countUpTo: 0 });
    return { runs, hasMore };
  }

  getSteps(runId: string): Promise<Step[]> {
    return this.#listOf(runId, () => getSteps(this.#store, runId));
  }

  getWaits(runId: string): Promise<Wait[]> {
    return this.#listOf(runId, () => getWaits(this.#store, runId));
  }

  async getWait(waitId: string): Promise<Wait | null> {
    return await this.#store.getWait(waitId);
  }

  async signal(waitId: string, signal: Signal, options: ActorOptions = {}): Promise<SignalReceipt> {
    return await this.#parts.signal(waitId, signal, checkActor(options, "signal()"));
  }

  async send(
    to: string | KeyedRun,
    name: string,
    payload: unknown,
    options: SendOptions<unknown> = {},
  ): Promise<SendResult> {
    return await this.#parts.messages.send(to, name, payload, options);
  }

  async ask<Answer = Json>(
    to: string | KeyedRun,
    name: string,
    payload: unknown,
    options: AskOptions<unknown> = {},
  ): Promise<Answer> {
    return await this.#ask(to, name, payload, options) as Answer; // the caller knows the job
  }

  async #ask(
    to: string | KeyedRun,
    name: string,
    payload: unknown,
    given: AskOptions<unknown>,
    jobNames?: readonly string[],
  ): Promise<Json> {
    this.#checkOutsideStep("ask()", "use step.send(), and step.receive() for what comes back,");
    checkOptionNames(given, { ...SEND_OPTIONS, timeout: true }, "ask()");
    const timeout = readTimeout(given, "ask()");
    const { timeout: _, ...options } = given;
    const sent = await this.#parts.messages.send(to, name, payload, options, null, jobNames);
    return await waitForAnswer(sent, timeout, this.#waiting);
  }

  getMessages(runId: string): Promise<Message[]> {
    return this.#listOf(runId, () => getMessages(this.#store, runId));
  }

  getLogs(runId: string): Promise<LogEntry[]> {
    return this.#listOf(runId, () => getLogs(this.#store, runId));
  }

  async retrigger(runId: string, options: RetriggerOptions = {}): Promise<TriggerResult> {
    checkOptionNames(options, RETRIGGER_OPTIONS, "retrigger()");
    const from = checkFrom(options);
    const { request, old } = await this.#parts.triggers.requestRetry(runId, from, readActor(options));
    return toTriggerResult(await this.#parts.triggers.addRetry(request, old));
  }

  async cancel(runId: string, options: ActorOptions = {}): Promise<Run> {
    return parseRun(await this.#parts.runs.cancel(runId, checkActor(options, "cancel()")));
  }

  async deleteRun(runId: string, options: ActorOptions = {}): Promise<void> {
    await this.#parts.runs.delete(runId, checkActor(options, "deleteRun()"));
  }

  cancelRuns(selection: BulkSelection, options: BulkOptions = {}): Promise<BulkResult> {
    return this.#parts.bulk.perform("cancel", selection, options, null);
  }

  retriggerRuns(selection: BulkSelection, options: BulkRetriggerOptions = {}): Promise<BulkResult> {
    return this.#parts.bulk.perform("retrigger", selection, options, null);
  }

  resumeRuns(selection: BulkSelection, options: BulkResumeOptions = {}): Promise<BulkResult> {
    return this.#parts.bulk.perform("resume", selection, options, null);
  }

  deleteRuns(selection: BulkSelection, options: BulkOptions = {}): Promise<BulkResult> {
    return this.#parts.bulk.perform("delete", selection, options, null);
  }

  async waitForRun(runId: string, options: WaitOptions = {}): Promise<Run> {
    this.#checkOutsideStep("waitForRun()");
    return await waitForRun(runId, options, this.#waiting);
  }

  get #waiting(): WaitForRunDeps {
    const { deps, lifecycle, reader } = this.#parts;
    return { ...deps, changes: lifecycle.changes, reader };
  }

  /** Refuses to wait for a run inside the function of a step: the step would hold a slot of the worker meanwhile. */
  #checkOutsideStep(call: string, instead = "call step.invoke()"): void {
    const step = this.#parts.deps.currentStep.getStore();
    if (step === undefined) return;
    throw new TypeError(
      `${call} cannot wait for a run inside the function of step "${step}": ${instead} outside of it`,
    );
  }

  subscribe(runId: string): ReadableStream<RunEvent> {
    return this.#parts.lifecycle.isStopped ? endedStream() : subscribe(runId, this[INTERNALS]);
  }

  readStream<T = Json>(
    runId: string,
    stream: Stream<T> | string,
    options: ReadStreamOptions = {},
  ): ReadableStream<StreamPart<Jsonify<T>>> {
    checkOptionNames(options, READ_STREAM_OPTIONS, "readStream()");
    const { after, follow = true } = options;
    const place = after === undefined ? null : parsePlace(after);
    if (after !== undefined && place === null) {
      throw new TypeError(`after of readStream() must be the position of a part, not ${tidyText(String(after), 64)}`);
    }
    const isFollowed = follow && !this.#parts.lifecycle.isStopped;
    const parts = this.#parts.lifecycle.streams.read(runId, streamName(stream), { after: place, follow: isFollowed });
    return parts as ReadableStream<StreamPart<Jsonify<T>>>; // the items have the type of the stream
  }

  getStreams(runId: string): Promise<StreamInfo[]> {
    return this.#listOf(runId, () => this.#store.getStreams(runId));
  }

  use(plugin: Plugin): this {
    checkPlugin(plugin);
    const { plugins } = this[INTERNALS];
    if (plugins.has(plugin.name)) return this;
    plugins.add(plugin.name);
    plugin.install({
      on: this.on,
      appendLogs: (entries) => this.#parts.lifecycle.inBackground(this.#store.appendLogs(entries)),
      newId: () => this.#parts.deps.host.newId(),
      around: (around) => this.#parts.deps.around.add(around),
    });
    return this;
  }

  runUntilIdle(options: IdleOptions = {}): Promise<IdleResult> {
    return this.#parts.lifecycle.runUntilIdle(options);
  }

  async getStats(): Promise<Stats> {
    return await this.#parts.operator.getStats();
  }

  async getSeries(query: SeriesQuery): Promise<Series> {
    return await this.#parts.operator.getSeries(query);
  }

  async getJobs(): Promise<JobInfo[]> {
    return await this.#parts.operator.getJobs();
  }

  async getWorkers(): Promise<WorkerInfo[]> {
    return await this.#parts.operator.getWorkers();
  }

  health(): Promise<Health> {
    return this.#parts.monitor.health();
  }

  async getStoreInfo(): Promise<StoreInfo> {
    return await this.#parts.operator.getStoreInfo();
  }

  async pauseJob(jobName: string, options: PauseJobOptions = {}): Promise<JobInfo> {
    return await this.#parts.pauses.pause(jobName, options);
  }

  async resumeJob(jobName: string): Promise<JobInfo> {
    return await this.#parts.pauses.resume(jobName);
  }

  async resume(runId: string, options: ResumeOptions = {}): Promise<Run> {
    return parseRun(await this.#parts.heldRuns.resume(runId, options));
  }

  async resumeAll(options: ResumeAllOptions = {}): Promise<{ resumed: number }> {
    return await this.#parts.bulk.resumeAll(options);
  }

  async exportHistory(runId: string, options: ExportHistoryOptions = {}): Promise<ExportedHistory> {
    const history = await exportHistory(this.#store, runId, options);
    if (history !== null) return history;
    await readRun(this.#store, runId);
    throw new NotFoundError(`There was no run "${runId}" when its history was read`);
  }

  async explain(runId: string): Promise<Explanation> {
    const causes = await readCauses(this.#store, runId);
    return causes === null ? await refuseUnknownRun(this.#store, runId) : toExplanation(causes, ALL_VISIBLE);
  }

  async getTimeline(runId: string, options: TimelineOptions = {}): Promise<Timeline> {
    return await readTimeline(this.#store, runId, options) ?? await refuseUnknownRun(this.#store, runId);
  }

  async getChildren(runId: string, query: ChildrenQuery = {}): Promise<Children> {
    return await listChildren(await readRun(this.#store, runId), query, {
      store: this.#store,
      host: this.#parts.deps.host,
    });
  }

  async getOpenWaits(query: OpenWaitsQuery = {}): Promise<OpenWaitsPage> {
    return await listOpenWaits(query, { store: this.#store, host: this.#parts.deps.host, access: null });
  }

  async getFailures(query: FailuresQuery = {}): Promise<FailureGroups> {
    const filter = failedRunsFilter(query);
    const { host } = this.#parts.deps;
    return groupFailures(await readNewestRuns(filter, { store: this.#store, host, mayShow: null }));
  }

  async getHeld(query: HeldRunsQuery = {}): Promise<HeldGroups> {
    const { host } = this.#parts.deps;
    return groupHeld(await readNewestRuns(heldRunsFilter(query), { store: this.#store, host, mayShow: null }));
  }

  async findRuns(query: string): Promise<FoundRun[]> {
    const text = checkSearch(query);
    return await findRuns(this.#store, await this.#store.searchRuns(text, MAX_FOUND), null);
  }

  async stranded(): Promise<StrandedJob[]> {
    return await this.#store.getStrandedJobs();
  }

  async purgeRuns(options: PurgeOptions): Promise<{ deleted: number }> {
    const { retention, limit } = checkPurge(options);
    return { deleted: await purgeInSlices(this.#store, retention, this.#parts.deps, { limit }) };
  }

  #handle(job: Job): JobHandle<unknown, unknown, unknown, MessageSchemas> {
    const names = [job.name, ...job.changes.aliases];
    return {
      trigger: (input, options) => this.trigger(job, input, options),
      triggerAndWait: async (input, given = {}) => {
        this.#checkOutsideStep("triggerAndWait()");
        checkOptionNames(given, { ...TRIGGER_OPTIONS, timeout: true }, "triggerAndWait()");
        const { timeout, ...options } = given;
        if (timeout !== undefined) readDuration(timeout, "The timeout of triggerAndWait()");
        const { id, disposition } = await this.trigger(job, input, options);
        return { ...await this.waitForRun(id, timeout === undefined ? {} : { timeout }), disposition };
      },
      send: (to, name, payload, options = {}) =>
        this.#parts.messages.send(typeof to === "string" ? to : { ...to, job }, name, payload, options, null, names),
      ask: async <Answer>(to: string | { key: string }, name: string, payload: unknown, options = {}) =>
        await this.#ask(typeof to === "string" ? to : { ...to, job }, name, payload, options, names) as Answer,
      batchTrigger: async (items) => (await this.#parts.triggers.triggerBatch(job, items)).map(toTriggerResult),
      getRun: async (runId) => {
        const run = await this.getRun(runId);
        return run !== null && names.includes(run.jobName) ? run : null;
      },
      getRuns: (filter: Omit<RunFilter, "jobName"> = {}) => this.getRuns({ ...filter, jobName: names }),
    };
  }

  /** Reads a list that belongs to a run. If it is empty, checks afterwards that the run exists. */
  async #listOf<T>(runId: string, read: () => Promise<T[]>): Promise<T[]> {
    const list = await read();
    if (list.length === 0) await readRun(this.#store, runId);
    return list;
  }
}
