import type { RunEvent } from "../event.ts";
import type { Host } from "../host.ts";
import type { Job } from "../job.ts";
import type { LogEntry } from "../log.ts";
import type { Labels, RetriggerFrom, Run, RunFilter, RunPage } from "../run.ts";
import type { Schema } from "../schema.ts";
import type { Step } from "../step.ts";
import type { Retention, Store } from "../store.ts";
import type { Signal, SignalReceipt, Wait } from "../wait.ts";
import type { Listen } from "../events/hub.ts";
import type { Logger } from "../logger.ts";
import type { Plugin } from "./plugin.ts";
import type { SchemaLabels, TriggerOptions, TriggerResult } from "./trigger.ts";
import type { PurgeOptions } from "./purge_loop.ts";
import type { WorkerOptions } from "../execution/worker.ts";

/** The jobs of an engine, by the names that its handles get. */
export type Jobs = { readonly [key: string]: Job };

/** What {@linkcode createEngine} takes. */
export interface EngineOptions<J extends Jobs, L = Labels> {
  /** Keeps everything. It stays yours: the engine does not close it. */
  store: Store;
  /** The jobs that this engine knows. */
  jobs: J;
  /** How the worker works. */
  worker?: WorkerOptions;
  /** How long finished runs are kept, in milliseconds since they ended. Default: for ever. */
  retention?: Retention;
  /**
   * A Standard Schema that types and checks the labels of every trigger; one without labels is checked as `{}`. What it
   * answers is stored, and must be labels. Default: any labels.
   */
  labels?: Schema<L, SchemaLabels>;
  /** The most bytes of JSON that an input, a step's result, an output or a payload may take. Default 1 MiB. */
  maxValueBytes?: number;
  /**
   * Gets runs that failed in this process, with their stack, errors of listeners and plugins, and `worker:error`.
   * Default: the console, warnings and errors only. `null`: nothing is written.
   */
  logger?: Logger | null;
  /** Time, timers, chance and ids. Default: the real ones. */
  host?: Host;
}

/** A completed run whose output has the type of its job. */
export type CompletedRun<Output> = Omit<Run, "output"> & {
  /** What the job's function returned. */
  output: Output;
};

/** How long to wait for a run. */
export interface WaitOptions {
  /** In milliseconds. Default: as long as it takes. */
  timeout?: number;
}

/** How much {@linkcode Engine.runUntilIdle} does at most. */
export interface IdleOptions {
  /** How many runs it claims at most; one that paused and is claimed again counts again. Default: all that are due. */
  maxRuns?: number;
  /**
   * After how many milliseconds it claims and deletes nothing more. What is being executed then is waited for. Default:
   * never.
   */
  timeout?: number;
}

/** A run to trigger, among others. */
export type BatchItem<Input, L = Labels> = TriggerOptions<L> & {
  /** The input. */
  input: Input;
};

/** What an engine can do with the runs of one of its jobs. */
export interface JobHandle<Input, Output, L = Labels> {
  /** Asks for a run. See {@linkcode Engine.trigger}. */
  trigger(input: Input, options?: TriggerOptions<L>): Promise<TriggerResult>;
  /**
   * Asks for a run and waits until it has completed. See {@linkcode Engine.waitForRun}.
   *
   * @returns The completed run, and whether it is new (`disposition`).
   */
  triggerAndWait(
    input: Input,
    options?: TriggerOptions<L> & WaitOptions,
  ): Promise<CompletedRun<Output> & Pick<TriggerResult, "disposition">>;
  /** Asks for several runs: all of them or none. */
  batchTrigger(items: readonly BatchItem<Input, L>[]): Promise<TriggerResult[]>;
  /** A run of this job, or `null`. */
  getRun(runId: string): Promise<Run | null>;
  /** Runs of this job, newest first. */
  getRuns(filter?: Omit<RunFilter, "jobName">): Promise<RunPage>;
}

/** The handles of an engine's jobs, by the names that they were given. */
export type JobHandles<J extends Jobs, L = Labels> = {
  readonly [K in keyof J]: J[K] extends Job<infer Input, infer Output> ? JobHandle<Input, Output, L> : never;
};

/** How a run is triggered again. */
export interface RetriggerOptions {
  /**
   * `start` (default): with nothing done. `failure`: with the completed steps, finished sleeps and resolved waits of the
   * old run; a wait that timed out is asked for again if nothing was recorded after it. The steps keep their
   * `idempotencyKey`.
   */
  from?: RetriggerFrom;
}

/**
 * Triggers runs, executes them and tells of them. {@linkcode createEngine} makes one.
 *
 * Whatever concerns one run throws {@linkcode NotFoundError} if there is no such run, and anything may throw
 * {@linkcode StoreError} when the store cannot answer.
 *
 * `J` are its jobs, and `L` is what its `labels` schema takes.
 */
export interface Engine<J extends Jobs = Jobs, L = Labels> extends AsyncDisposable {
  /** What can be done with each job. */
  readonly jobs: JobHandles<J, L>;
  /** Migrates the store and starts the worker. */
  start(): Promise<void>;
  /** Migrates the store: enough for a process that only triggers, lists and shows runs. */
  migrate(): Promise<void>;
  /**
   * Claims nothing more, lets every running job come to its next checkpoint (a step, a pause or its end), then aborts
   * what still runs, releases the leases and ends every event stream, also those that are opened afterwards. Safe to
   * call twice, or before `start()`.
   *
   * @param options `timeout`: how long jobs may go on, in milliseconds. Default 8,000: less than the 10 seconds after
   * which a container is often killed.
   */
  stop(options?: { timeout?: number }): Promise<void>;
  /**
   * Asks for a run of a job.
   *
   * @returns The run, and whether it is new (`disposition`).
   * @throws {NotFoundError} This engine knows no job of that name.
   * @throws {ValidationError} The input does not fit, as the JSON that is stored, or an option is wrong.
   * @throws {TimeoutError} The job's schema has not settled after 30 seconds.
   */
  trigger<Input>(job: Job<Input>, input: NoInfer<Input>, options?: TriggerOptions<L>): Promise<TriggerResult>;
  /** Asks for a run of the job with this name. */
  trigger(jobName: string, input: unknown, options?: TriggerOptions<L>): Promise<TriggerResult>;
  /** A run, or `null` if there is none. */
  getRun(runId: string): Promise<Run | null>;
  /**
   * The runs that match a filter, newest first.
   *
   * @throws {ValidationError} The filter is wrong.
   */
  getRuns(filter?: RunFilter): Promise<RunPage>;
  /** The recorded steps of a run, in the order of their index. */
  getSteps(runId: string): Promise<Step[]>;
  /** The waits of a run, in the order in which they were prepared. */
  getWaits(runId: string): Promise<Wait[]>;
  /** A wait, or `null` if there is none. */
  getWait(waitId: string): Promise<Wait | null>;
  /**
   * Ends a wait by a signal. The same signal again (`signalId` and payload) gets the same receipt, at any time.
   *
   * @throws {ValidationError} There is no `signalId` of 1 to 255 characters, or the payload is not JSON.
   * @throws {NotFoundError} There is no such wait.
   * @throws {ConflictError} Another signal came first, or the run has ended.
   * @throws {WaitExpiredError} The deadline passed before any signal came.
   */
  signal(waitId: string, signal: Signal): Promise<SignalReceipt>;
  /** What a run has logged, in order; empty unless `persistLogs()` is in use. */
  getLogs(runId: string): Promise<LogEntry[]>;
  /**
   * Makes a new run with the job, input, labels and concurrency key of one that has ended, and links the two
   * (`retriggerOf`, `retriggeredAs`). While the newest retry of a run has not ended, that one is answered instead.
   *
   * @throws {ConflictError} The run has not ended.
   * @throws {NotFoundError} There is no such run, or this engine does not know its job any more.
   * @throws {ValidationError} The input does not fit the job any more.
   */
  retrigger(runId: string, options?: RetriggerOptions): Promise<TriggerResult>;
  /**
   * Cancels a run that has not ended. Whatever of it is being executed is told by its `abortSignal`, and nothing of
   * it is recorded any more.
   *
   * @throws {ConflictError} The run has ended.
   */
  cancel(runId: string): Promise<Run>;
  /**
   * Deletes a run that has ended, with everything that belongs to it.
   *
   * @throws {ConflictError} The run has not ended.
   */
  deleteRun(runId: string): Promise<void>;
  /**
   * Waits until a run has completed, whichever process executes it.
   *
   * @throws {RunFailedError} The run failed.
   * @throws {RunCancelledError} The run was cancelled.
   * @throws {TimeoutError} It took longer than `timeout`.
   */
  waitForRun(runId: string, options?: WaitOptions): Promise<Run>;
  /** Hears events of one type, or all (`"*"`), until the returned function is called. */
  readonly on: Listen;
  /**
   * Follows a run: first how it stands, then its events, until the last one. The stream fails with a
   * {@linkcode NotFoundError} if there is no such run.
   */
  subscribe(runId: string): ReadableStream<RunEvent>;
  /** Adds a plugin, such as `persistLogs()`. */
  use(plugin: Plugin): this;
  /**
   * Works off everything that is due now, but not what sleeps or waits, and then deletes what `retention` asks for: for
   * tests, cron and serverless.
   *
   * @returns `executed`: how many runs it executed. One that paused and was resumed meanwhile counts once.
   * @throws {RangeError} `maxRuns` is no positive integer, or `timeout` is negative.
   */
  runUntilIdle(options?: IdleOptions): Promise<{ executed: number }>;
  /**
   * Deletes runs that ended at least so long ago, of any job, the oldest first. It does so in small slices, as
   * `retention` does, and publishes `run:delete` for each of them.
   *
   * @returns `deleted`: how many runs it deleted.
   * @throws {TypeError} An option is unknown, or `olderThan` is no number.
   * @throws {RangeError} An option has no such value.
   */
  purgeRuns(options: PurgeOptions): Promise<{ deleted: number }>;
}
