import type { Duration } from "../values/duration.ts";
import type { Children, ChildrenQuery } from "../model/children.ts";
import type { RunEvent } from "../model/event.ts";
import type { Job } from "../model/job.ts";
import type { LogEntry } from "../model/log.ts";
import type { ActorOptions } from "../model/origin.ts";
import type { KeyedRun } from "../model/job/job_messages.ts";
import type { Message, SendResult } from "../model/message.ts";
import type { Labels, Run, RunFilter, RunPage, UncountedPage } from "../model/run.ts";
import type { Step } from "../model/step.ts";
import type { ReadStreamOptions, Stream, StreamInfo, StreamPart } from "../model/stream.ts";
import type { Json, Jsonify } from "../values/json.ts";
import type { StrandedJob } from "../model/hold.ts";
import type { StoreInfo } from "../store/operate.ts";
import type { Signal, SignalReceipt, Wait } from "../model/wait.ts";
import type { Listen } from "../events/hub.ts";
import type { ExportedHistory } from "../model/exported_history.ts";
import type { ExportHistoryOptions } from "./runs/export_history.ts";
import type { ResumeAllOptions } from "./bulk/bulk_operations.ts";
import type { BulkOptions, BulkResumeOptions, BulkRetriggerOptions, BulkSelection } from "./bulk/bulk_selection.ts";
import type { BulkResult } from "./bulk/perform_bulk.ts";
import type { ResumeOptions } from "./runs/run_changes.ts";
import type { JobHandles, Jobs } from "./job_handle.ts";
import type { PauseJobOptions } from "./job_pauses.ts";
import type { AskOptions, SendOptions } from "./messages.ts";
import type { IdleOptions, IdleResult } from "./lifecycle.ts";
import type { Explanation } from "./operate/explanation.ts";
import type { FailureGroups, FailuresQuery, HeldGroups, HeldRunsQuery } from "./operate/run_groups.ts";
import type { FoundRun } from "./operate/found_runs.ts";
import type { OpenWaitsPage, OpenWaitsQuery } from "./operate/open_waits.ts";
import type { Timeline, TimelineOptions } from "./operate/timeline.ts";
import type { Health } from "./operate/health.ts";
import type { JobInfo } from "./operate/job_info.ts";
import type { Stats } from "./operate/operator.ts";
import type { Series, SeriesQuery } from "./operate/statistics/series.ts";
import type { WorkerInfo } from "./operate/worker_info.ts";
import type { Plugin } from "./plugin.ts";
import type { TriggerOptions, TriggerResult } from "./triggers/new_run.ts";
import type { RetriggerOptions } from "./triggers/triggers.ts";
import type { DataSource, TransactionOptions } from "../model/data_source.ts";
import type { AsyncTransactionCalls } from "../model/transaction.ts";
import type { TransactionResult } from "./transactions/transactions.ts";
import type { PurgeOptions } from "./runs/purge_loop.ts";
import type { Schedules } from "./schedules/schedule_registry.ts";
import type { WaitOptions } from "./runs/wait_for_run.ts";

/**
 * Triggers runs, executes them and publishes their events. {@linkcode createEngine} makes one.
 *
 * Methods for one run throw {@linkcode NotFoundError} if there is no such run. Every method may throw {@linkcode
 * StoreError} when the store cannot answer.
 *
 * `J` is the type of its jobs, `L` the input type of its `labels` schema.
 */
export interface Engine<J extends Jobs = Jobs, L = Labels> extends AsyncDisposable {
  /** A handle for each job. */
  readonly jobs: JobHandles<J, L>;
  /** The schedules of the store: those that engines declare, and those that {@linkcode Schedules.set} has made. */
  readonly schedules: Schedules<L>;
  /**
   * Migrates the store, writes the schedules that this engine declares, and starts the worker and the schedules.
   *
   * @throws {ValidationError} The input, or an option of the trigger, of a declared schedule is not valid.
   */
  start(): Promise<void>;
  /** Migrates the store: enough for a process that only triggers, lists and shows runs. */
  migrate(): Promise<void>;
  /**
   * Claims nothing more, lets every running job reach its next checkpoint (a step, a pause or its end), then aborts
   * what still runs, releases the leases and ends every event stream, also those that are opened afterwards. Safe to
   * call twice, or before `start()`.
   *
   * @param options `timeout`: how long jobs may continue. Default 8 seconds: less than the 10 seconds
   * after which a container is often killed.
   */
  stop(options?: { timeout?: Duration }): Promise<void>;
  /**
   * Asks for a run of a job.
   *
   * @returns The run, and whether it is new (`disposition`).
   * @throws {NotFoundError} This engine has no job of that name.
   * @throws {ValidationError} The input, as the JSON that is stored, does not fit the schema, or an option is not
   * valid.
   * @throws {TimeoutError} The job's schema has not settled after 30 seconds.
   */
  trigger<Input>(job: Job<Input>, input: NoInfer<Input>, options?: TriggerOptions<L>): Promise<TriggerResult>;
  /** Asks for a run of the job with this name. */
  trigger(jobName: string, input: unknown, options?: TriggerOptions<L>): Promise<TriggerResult>;
  /**
   * Executes a function in a transaction of your database: your rows, and the runs, signals and messages that the
   * function asks for, are one commit, and there together or not at all.
   *
   * The function is executed again while nothing was committed, so it must do nothing but SQL. On SQLite it is
   * synchronous. What it throws rolls everything back, and is thrown.
   *
   * @param source One of the `dataSources` of this engine.
   * @returns What the function returned, and the results of its triggers, signals and messages.
   * @throws {StoreError} With `outcomeUnknown`, it may have been committed: an idempotency key tells.
   * @throws {WaitExpiredError} The deadline of a wait that it signals has passed: everything is rolled back.
   */
  transaction<Tx, T>(
    source: DataSource<Tx>,
    work: (tx: Tx) => T | Promise<T>,
    options?: TransactionOptions,
  ): Promise<TransactionResult<T>>;
  /**
   * `trigger()`, `signal()` and `send()` in a transaction of a data source that somebody else has begun, such as an ORM.
   * They add rows to its outbox, which this or another engine relays to the store after the commit. `await` each:
   * if one is refused, it is your code that rolls the transaction back.
   *
   * @param client The client of the transaction: of npm:pg, npm:postgres, PGlite or a SQLite database, or a function
   * `(sql, parameters)`.
   * @throws {TypeError} It is none of these, or the source is not one of this engine.
   */
  inTransaction(source: DataSource, client: unknown): AsyncTransactionCalls;
  /** A run, or `null` if there is none. */
  getRun(runId: string): Promise<Run | null>;
  /**
   * The runs that match a filter, newest first. They are not counted.
   *
   * @throws {ValidationError} A field of the filter is not valid.
   * @throws {TypeError} The filter has an unknown field.
   */
  getRuns(filter: RunFilter & { total: false }): Promise<UncountedPage>;
  /** The runs that match a filter, newest first, and how many there are. */
  getRuns(filter?: RunFilter): Promise<RunPage>;
  /** The recorded steps of a run, in the order of their index. */
  getSteps(runId: string): Promise<Step[]>;
  /** The waits of a run, in the order in which they were prepared. */
  getWaits(runId: string): Promise<Wait[]>;
  /** A wait, or `null` if there is none. */
  getWait(waitId: string): Promise<Wait | null>;
  /**
   * Ends a wait by a signal. The same signal again (same `signalId` and payload) returns the same wait, at any time, with
   * the `signalledBy` of the first.
   *
   * @throws {ValidationError} `signalId` is not a string of 1 to 255 characters, the payload is missing, or it does not fit
   * the `payloadSchema` of the wait.
   * @throws {NotFoundError} There is no such wait.
   * @throws {ConflictError} Another signal was accepted first, or the run has ended.
   * @throws {WaitExpiredError} The deadline passed before any signal arrived.
   */
  signal(waitId: string, signal: Signal, options?: ActorOptions): Promise<SignalReceipt>;
  /**
   * Sends a message to a run, which receives it by `step.receive()`: now, or whenever it asks for it. It resolves when the
   * message is stored.
   *
   * @param to The id of the run; or its job and its idempotency key, which also leads to the newest retry of that run.
   * @throws {ValidationError} The job of the run has no message of this name, the payload does not fit its schema, or an
   * option is not valid.
   * @throws {NotFoundError} There is no such run, or this engine does not have its job.
   * @throws {ConflictError} The run has ended or has closed its inbox (code `run_ended`), or has another message with the id.
   */
  send(to: string | KeyedRun, name: string, payload: unknown, options?: SendOptions<L>): Promise<SendResult>;
  /**
   * Sends a message to a run as {@linkcode Engine.send} does, and waits until the run has answered it by `step.respond()`, in
   * any process. Repeated with its `id` it sends nothing, and finds the answer, also after the end of the run.
   *
   * @returns The answer.
   * @throws {TypeError} It was called in the function of a step, which would hold a slot of the worker meanwhile.
   * @throws {ConflictError} See {@linkcode Engine.send}; or the run has completed without an answer.
   * @throws {RunFailedError} The run failed without an answer.
   * @throws {RunCancelledError} The run was cancelled without an answer.
   * @throws {TimeoutError} It took longer than `timeout`. The message stays sent.
   */
  ask<Answer = Json>(
    to: string | KeyedRun,
    name: string,
    payload: unknown,
    options?: AskOptions<L>,
  ): Promise<Answer>;
  /** The messages of a run, in the order in which they were accepted. */
  getMessages(runId: string): Promise<Message[]>;
  /** What a run has logged, in order; empty unless `persistLogs()` is in use. */
  getLogs(runId: string): Promise<LogEntry[]>;
  /**
   * Makes a new run with the job, input, labels, concurrency key, priority, fairness key and deadlines (`startWithin`,
   * `finishWithin`) of one that has ended, and links the two (`retriggerOf`, `retriggeredAs`). It starts at once. While
   * the newest retry of a run, or of that, has not ended, that one is returned instead.
   *
   * @throws {ConflictError} The run has not ended.
   * @throws {NotFoundError} There is no such run, or this engine no longer has its job.
   * @throws {ValidationError} The input no longer fits the job's schema.
   */
  retrigger(runId: string, options?: RetriggerOptions): Promise<TriggerResult>;
  /**
   * Cancels a run that has not ended. The `abortSignal` of its current steps fires, and nothing more of it is
   * recorded.
   *
   * @throws {ConflictError} The run has ended.
   */
  cancel(runId: string, options?: ActorOptions): Promise<Run>;
  /**
   * Deletes a run that has ended, with everything that belongs to it.
   *
   * @throws {ConflictError} The run has not ended.
   */
  deleteRun(runId: string, options?: ActorOptions): Promise<void>;
  /**
   * Cancels many runs: those with these ids, or all that match a filter and have not ended, the newest first. Each is
   * cancelled, and published, as by {@linkcode Engine.cancel}.
   *
   * A call ends after `limit` runs or some 100 ms; `next` continues it. A repeated call changes nothing further.
   *
   * @throws {ValidationError} The filter is empty, or a field of the selection or an option is not valid.
   * @throws {TypeError} The selection or the options have an unknown field.
   * @throws {StoreError} The store could not answer. What was done stays done; the call can be repeated.
   */
  cancelRuns(selection: BulkSelection, options?: BulkOptions): Promise<BulkResult>;
  /**
   * Retriggers many runs that have ended, as {@linkcode Engine.cancelRuns} cancels them. Runs that were retriggered
   * before (`retriggeredAs`) are passed over, and no call meets the runs that it, or a call before it with the same
   * cursor, has made. Completed runs are retriggered, too, unless the filter excludes them.
   */
  retriggerRuns(selection: BulkSelection, options?: BulkRetriggerOptions): Promise<BulkResult>;
  /** Resumes many held runs, as {@linkcode Engine.cancelRuns} cancels runs, each as by {@linkcode Engine.resume}. */
  resumeRuns(selection: BulkSelection, options?: BulkResumeOptions): Promise<BulkResult>;
  /** Deletes many runs that have ended, as {@linkcode Engine.cancelRuns} cancels them. */
  deleteRuns(selection: BulkSelection, options?: BulkOptions): Promise<BulkResult>;
  /**
   * Waits until a run has completed, in any process.
   *
   * @throws {TypeError} It was called in the function of a step, which would hold a slot of the worker meanwhile.
   * @throws {RunFailedError} The run failed.
   * @throws {RunCancelledError} The run was cancelled.
   * @throws {TimeoutError} It took longer than `timeout`.
   * @throws {StoreError} The store is closed, or was out of reach for a minute or when the time was over.
   * @throws {TypeError} An option is unknown.
   */
  waitForRun(runId: string, options?: WaitOptions): Promise<Run>;
  /**
   * Subscribes to events of one type, or to all (`"*"`), until the returned function is called. It publishes what this
   * engine does, not what other processes do; {@linkcode Engine.subscribe} shows both. It throws a `TypeError` for
   * an event that does not exist, or a listener that is no function.
   */
  readonly on: Listen;
  /**
   * Follows a run, whichever process executes it: first its state, then its events, up to the last one. The stream
   * fails with a {@linkcode NotFoundError} if there is no such run.
   */
  subscribe(runId: string): ReadableStream<RunEvent>;
  /**
   * Reads a stream that the steps of a run write, in any process. A reader puts `items` at index `from`, and drops
   * what was there and after it: then the list never has items of two attempts at one step, and no gap. It ends when the
   * run has ended and everything was read, when the run is deleted, or when the engine stops.
   *
   * An unknown run makes it fail with a {@linkcode NotFoundError}.
   *
   * @example
   * ```ts
   * import { createEngine, defineStream, MemoryStore } from "@holdfast/jobs";
   *
   * const tokens = defineStream<string>("tokens");
   *
   * export async function collect(engine: ReturnType<typeof createEngine>, runId: string): Promise<string[]> {
   *   const all: string[] = [];
   *   for await (const { from, items } of engine.readStream(runId, tokens)) all.splice(from, Infinity, ...items);
   *   return all;
   * }
   * ```
   *
   * @param options.after A `position` of a part: only what comes after it. Default: from the beginning.
   * @param options.follow Whether to wait for what comes. Default: `true`.
   * @throws {TypeError} `after` is no position of a part.
   */
  readStream<T = Json>(
    runId: string,
    stream: Stream<T> | string,
    options?: ReadStreamOptions,
  ): ReadableStream<StreamPart<Jsonify<T>>>;
  /**
   * The streams of a run that have or had items, by name.
   *
   * @throws {NotFoundError} There is no such run.
   */
  getStreams(runId: string): Promise<StreamInfo[]>;
  /** Adds a plugin, such as `persistLogs()`. */
  use(plugin: Plugin): this;
  /**
   * Relays the outboxes of data sources, fires the slots that are due, executes everything that is due now, but not runs
   * that sleep or wait, and then deletes what `retention` no longer keeps: for tests, cron and serverless.
   *
   * @returns How many runs it executed, and `nextDueAt`: call it again then, and after each trigger and signal.
   * @throws {RangeError} `maxRuns` is not a positive integer, or `timeout` is negative.
   */
  runUntilIdle(options?: IdleOptions): Promise<IdleResult>;
  /**
   * The numbers of the store: how many runs have which status, and what happened in the last 5 minutes and the last hour.
   *
   * Like the other numbers, they are read at most once a second for all callers. What happened is written every ten
   * seconds by each process; a crash loses that much. The numbers of runs are exact.
   */
  getStats(): Promise<Stats>;
  /**
   * What happened lately, in slots of equal length.
   *
   * @throws {ValidationError} The window is none, or the name of the job is not valid.
   * @throws {TypeError} The query has an unknown field.
   */
  getSeries(query: SeriesQuery): Promise<Series>;
  /** The jobs that this engine, a live worker, a run or a pause knows, by name. */
  getJobs(): Promise<JobInfo[]>;
  /** The workers, by their first claims. A lost one is listed for 100 lengths of its leases. */
  getWorkers(): Promise<WorkerInfo[]>;
  /** Whether this process works, and what is wrong in it or in the store. It answers within about a second. */
  health(): Promise<Health>;
  /** What the store is, and how large. */
  getStoreInfo(): Promise<StoreInfo>;
  /**
   * Pauses a job, in all processes: from now on no run of it is claimed. Runs that are executed continue; triggers,
   * signals and deadlines apply; its pending runs block no concurrency key for runs of other jobs. A job that is paused already keeps its pause.
   *
   * @throws {NotFoundError} Neither this engine, nor a live worker, nor a stored run has a job of this name.
   * @returns The state of the job.
   * @throws {ValidationError} The name, `by` or `note` is not valid.
   */
  pauseJob(jobName: string, options?: PauseJobOptions): Promise<JobInfo>;
  /**
   * Ends the pause of a job; does nothing if it is not paused.
   *
   * @throws {NotFoundError} Neither this engine, nor a live worker, nor a stored run has a job of this name, and it is
   * not paused.
   */
  resumeJob(jobName: string): Promise<JobInfo>;
  /**
   * Lets a held run be tried again, by any worker that knows its job and version.
   *
   * @param options `onDivergence: "continue"`: what is new is executed in this run, now and later.
   * @throws {ConflictError} The run is not held.
   */
  resume(runId: string, options?: ResumeOptions): Promise<Run>;
  /**
   * Resumes all held runs, or those that match a filter: {@linkcode Engine.resumeRuns}, to the end.
   *
   * @returns `resumed`: how many runs it has resumed.
   */
  resumeAll(options?: ResumeAllOptions): Promise<{ resumed: number }>;
  /**
   * Exports the history of a run, for `replay()` of `@holdfast/jobs/replay`: all that a replay needs, as JSON.
   *
   * @throws {NotFoundError} There is no such run.
   * @throws {TypeError} An option is unknown, or `redact` has not returned a string where it must.
   * @throws {SerializationError} `redact` has returned something that is not JSON.
   */
  exportHistory(runId: string, options?: ExportHistoryOptions): Promise<ExportedHistory>;
  /**
   * Why a run is not executed, or that it is: what holds it up, in the order in which a claim checks it, and what to act on
   * first at the front.
   */
  explain(runId: string): Promise<Explanation>;
  /**
   * What has happened in a run: the time in its queue, its steps with their attempts and delays, its pauses, and executions
   * that were interrupted, by the times at which they began. A step that is executed is not among them: nothing is
   * recorded of it yet.
   *
   * @throws {ValidationError} `from` or `limit` is not valid.
   */
  getTimeline(runId: string, options?: TimelineOptions): Promise<Timeline>;
  /**
   * The children of a run: how many have each status, and a page of them, those to act on first.
   *
   * @throws {ValidationError} A field of the query is not valid.
   */
  getChildren(runId: string, query?: ChildrenQuery): Promise<Children>;
  /**
   * The waits of all runs that nobody has signalled yet, the soonest deadline first. With a filter, a call ends after some
   * 100 ms; `next` continues it.
   *
   * @throws {ValidationError} A field of the query is not valid.
   */
  getOpenWaits(query?: OpenWaitsQuery): Promise<OpenWaitsPage>;
  /**
   * What runs failed of lately: the newest 200 failed runs of which no retry has completed, by job, step and error, the
   * largest group first. Numbers and ids
   * in the errors are left out.
   *
   * @throws {ValidationError} A field of the query is not valid.
   */
  getFailures(query?: FailuresQuery): Promise<FailureGroups>;
  /**
   * Why runs are held: the newest 200 held runs by job, reason and message, the largest group first.
   *
   * @throws {ValidationError} A field of the query is not valid.
   */
  getHeld(query?: HeldRunsQuery): Promise<HeldGroups>;
  /**
   * Finds runs by an id, or its start, or its end (among the newest 5,000 runs), by the id of a wait, by an idempotency key,
   * by a concurrency key (runs that have not ended), or by a label, `key=value`: 20 at most.
   *
   * @throws {ValidationError} The query is not a string of 1 to 320 characters.
   */
  findRuns(query: string): Promise<FoundRun[]>;
  /** The jobs and versions of open runs that no live worker knows: these runs wait until a worker does. */
  stranded(): Promise<StrandedJob[]>;
  /**
   * Deletes runs that ended at least `olderThan` milliseconds ago, of any job, the oldest first. It works in small
   * slices, as `retention` does, and publishes `run:delete` for each of them. It keeps runs from whose failure an open
   * run was retried: links and ids that they have sent are for that run.
   *
   * @returns `deleted`: how many runs it deleted.
   * @throws {TypeError} An option is unknown, or `olderThan` is not a number.
   * @throws {RangeError} An option is out of range.
   */
  purgeRuns(options: PurgeOptions): Promise<{ deleted: number }>;
}
