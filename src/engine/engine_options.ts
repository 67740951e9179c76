import { type Duration, readDuration } from "../values/duration.ts";
import type { Host } from "../model/host.ts";
import type { DataSource } from "../model/data_source.ts";
import type { OnDivergence } from "../model/hold.ts";
import type { Job } from "../model/job.ts";
import type { Logger } from "../model/logger.ts";
import type { Store } from "../store/store.ts";
import type { WorkerOptions } from "../execution/worker_settings.ts";
import type { SchemaLabels } from "./triggers/new_run.ts";
import { type CheckedSchedule, checkSchedule, type DeclaredScheduleOptions } from "./schedules/schedule_options.ts";
import type { JobCatalog } from "../model/job/job_catalog.ts";
import { isObject, kindOf, propertyOf } from "../values/unknown_values.ts";
import { withoutUndefined } from "../values/without_undefined.ts";
import { checkName, isLabelKey } from "../values/name.ts";
import { checkOnDivergence } from "../model/job/job_changes.ts";
import { checkOptionNames, namesOf } from "../values/option_names.ts";
import { checkSchema, type Schema } from "../model/schema.ts";
import type { Labels, Retention } from "../model/run.ts";
import type { Jobs } from "./job_handle.ts";

/** A schedule of one of an engine's jobs, or of a job that is given by its name. */
export type DeclaredSchedule<J extends Jobs, L = Labels> =
  | {
    [K in keyof J]: J[K] extends Job<infer Input, infer Output>
      ? DeclaredScheduleOptions<Input, L> & { job: Job<Input, Output> }
      : never;
  }[keyof J]
  | DeclaredScheduleOptions<unknown, L> & { job: string };

/** How long runs are kept after they ended; those left out are kept permanently. */
export type RetentionOptions = { readonly [Status in keyof Retention]?: Duration };

/** Options of {@linkcode createEngine}. */
export interface EngineOptions<J extends Jobs, L = Labels> {
  /** Where all state is stored. You own it: the engine does not close it. */
  store: Store;
  /** The jobs of this engine. */
  jobs: J;
  /**
   * Your databases, by names of your choice, in which `step.transaction()` and `engine.transaction()` make
   * transactions: `store.dataSource()`. Default: none.
   */
  dataSources?: { readonly [name: string]: DataSource };
  /** Settings of the worker. */
  worker?: WorkerOptions;
  /**
   * How long finished runs are kept since they ended. A run from whose failure an open run was retried is kept until that
   * has ended. Default: permanently.
   */
  retention?: RetentionOptions;
  /**
   * A Standard Schema that types and checks the labels of every trigger; one without labels is checked as `{}`. Its
   * output is stored, and must be labels. Default: any labels.
   */
  labels?: Schema<L, SchemaLabels>;
  /**
   * When jobs are triggered without a call, by the names of the schedules. Each start writes those whose options differ
   * from the ones that were declared last. They fire while an engine is started that declares them. Default: none.
   */
  schedules?: { readonly [name: string]: DeclaredSchedule<NoInfer<J>, NoInfer<L>> };
  /**
   * The label by whose values runs take turns: a run that was triggered without a `fairnessKey` has the value of this
   * label as its key. Default: none; over HTTP, the caller's tenant (`auth.tenant`). A client that can choose the value
   * of this label chooses its key: let `auth.onTrigger` refuse any other than its own.
   */
  fairnessLabel?: string;
  /** The maximum size of an input, a step's result, an output or a signal's payload, in bytes of JSON. Default 1 MiB. */
  maxValueBytes?: number;
  /** The maximum size of a stream of a run, in bytes of the JSON of its items. Default 16 MiB. */
  maxStreamBytes?: number;
  /** What is stored of errors. `stack: false`: no stacks, neither of failed runs nor of failed steps. Default `true`. */
  errors?: { stack?: boolean };
  /**
   * What is done with a run whose job does not ask for what the run has recorded, if the job does not say it. `hold`
   * (default): no worker executes it until one has code that fits. `continue`: what is new is executed. `fail`: the run
   * fails.
   */
  onDivergence?: OnDivergence;
  /**
   * Identifies the code of the jobs, such as a commit: 1 to 255 characters. A held run is tried again by code with
   * another one. Default: the text of each job's function, which does not include the functions that it calls.
   */
  build?: string;
  /**
   * Receives the failures of runs in this process, with their stack, the holds of runs, errors of listeners and
   * plugins, and `worker:error`. Default: the console, for warnings and errors only. `null`: no output.
   */
  logger?: Logger | null;
  /** Time, timers, randomness and ids. Default: those of the system. */
  host?: Host;
}

const ENGINE_OPTIONS = namesOf<keyof EngineOptions<Jobs>>()(
  "store jobs dataSources worker retention labels schedules fairnessLabel maxValueBytes maxStreamBytes errors",
  "onDivergence build logger host",
);
const RETENTION: Record<keyof Retention, true> = { completed: true, failed: true, cancelled: true, streams: true };

/**
 * Checks the options of an engine; the worker checks its own.
 *
 * @throws {TypeError} An option is unknown, the store is not a store, or a job is not a job.
 * @throws {RangeError} A retention or `maxValueBytes` is out of range.
 */
export function checkEngineOptions(options: Omit<EngineOptions<Jobs, unknown>, "schedules">): void {
  checkOptionNames(options, ENGINE_OPTIONS, "createEngine()");
  checkStore(options.store);
  checkJobs(options.jobs);
  readRetention(options.retention ?? {});
  if (options.labels !== undefined) checkSchema(options.labels, "labels of createEngine()");
  checkFairnessLabel(options.fairnessLabel);
  checkMaxBytes(options);
  checkErrors(options.errors ?? {});
  if (options.onDivergence !== undefined) checkOnDivergence(options.onDivergence, "createEngine()");
  if (options.build !== undefined) checkName(options.build, "build of createEngine()");
}

/**
 * Checks the declared schedules, but for their inputs and the options of their triggers.
 *
 * @throws {TypeError} An option is unknown, or the engine does not have the job.
 * @throws {RangeError} A pattern, a zone or a mode is not valid.
 * @throws {ValidationError} A name is not valid.
 * @throws {SerializationError} An input cannot be stored as JSON.
 */
export function checkSchedules(
  schedules: unknown,
  jobs: JobCatalog,
  maxValueBytes: number,
): CheckedSchedule[] {
  if (!isObject(schedules)) {
    throw new TypeError(`schedules of createEngine() must be an object of schedules, not ${kindOf(schedules)}`);
  }
  return Object.entries(schedules).map(([name, options]) => {
    const schedule = checkSchedule(name, options, maxValueBytes);
    const { jobName } = schedule.options;
    if (jobs.find(jobName) !== undefined) return schedule;
    throw new TypeError(`Schedule "${name}" is of job "${jobName}", which is not one of the jobs of the engine`);
  });
}

function checkStore(store: unknown): void {
  if (hasMethods(store, "claim", "enqueue", "readRuns")) return;
  if (store === undefined || store === null) {
    throw new TypeError('createEngine() needs a store: new MemoryStore() or await SqliteStore.open("jobs.db")');
  }
  if (hasMethods(store, "then")) {
    throw new TypeError("The store is a Promise: write `await` before SqliteStore.open() or SqliteStore.from()");
  }
  if (hasMethods(store, "prepare", "exec")) {
    throw new TypeError("The store is a database: give it to `await SqliteStore.from(database)` first");
  }
  throw new TypeError(
    `The store must be one such as new MemoryStore() or await SqliteStore.open("jobs.db"), not ${kindOf(store)}`,
  );
}

function hasMethods(value: unknown, ...names: string[]): boolean {
  if (typeof value !== "object" || value === null) return false;
  return names.every((name) => typeof propertyOf(value, name) === "function");
}

function checkJobs(jobs: unknown): void {
  // The keys of an array would be the names of its handles.
  if (!isObject(jobs)) {
    throw new TypeError(`createEngine() needs jobs: an object of what defineJob() makes, not ${kindOf(jobs)}`);
  }
  const keys = new Map<string, string>();
  for (const [key, job] of Object.entries(jobs)) {
    if (!isJob(job)) throw new TypeError(`jobs.${key} must be what defineJob() makes, not ${kindOf(job)}`);
    const other = keys.get(job.name);
    if (other !== undefined) {
      throw new TypeError(`Two jobs have the name "${job.name}": jobs.${other} and jobs.${key}`);
    }
    keys.set(job.name, key);
  }
}

function isJob(value: unknown): value is Job {
  return typeof propertyOf(value, "name") === "string" && typeof propertyOf(value, "run") === "function" &&
    propertyOf(value, "changes") !== undefined;
}

/** The retention in milliseconds. */
export function readRetention(retention: RetentionOptions): Retention {
  checkOptionNames(retention, RETENTION, "retention");
  const given = Object.entries<Duration>(withoutUndefined(retention));
  return Object.fromEntries(given.map(([status, kept]) => [status, readDuration(kept, `retention.${status}`)]));
}

/**
 * The data sources, with their names.
 *
 * @throws {TypeError} One is not a data source, or has two names.
 */
export function readDataSources(sources: NonNullable<EngineOptions<Jobs>["dataSources"]>): Map<DataSource, string> {
  if (!isObject(sources)) {
    throw new TypeError(`dataSources of createEngine() must be an object of data sources, not ${kindOf(sources)}`);
  }
  const names = new Map<DataSource, string>();
  for (const [name, source] of Object.entries(sources)) {
    checkName(name, "The name of a data source");
    if (propertyOf(source, "kind") !== "sqlite" && propertyOf(source, "kind") !== "postgres") {
      throw new TypeError(`dataSources.${name} must be what store.dataSource() returns, not ${kindOf(source)}`);
    }
    const other = names.get(source);
    if (other !== undefined) throw new TypeError(`dataSources.${name} is the same data source as dataSources.${other}`);
    names.set(source, name);
  }
  return names;
}

function checkMaxBytes(options: { maxValueBytes?: number; maxStreamBytes?: number }): void {
  for (const name of ["maxValueBytes", "maxStreamBytes"] as const) {
    const bytes = options[name];
    if (bytes === undefined || (Number.isInteger(bytes) && bytes >= 1)) continue;
    throw new RangeError(`${name} must be a positive integer, not ${bytes}`);
  }
}

function checkFairnessLabel(label: unknown): void {
  if (label === undefined || isLabelKey(label)) return;
  throw new TypeError("fairnessLabel must be the key of a label: 1 to 63 characters of A-Za-z0-9-_./");
}

function checkErrors(errors: NonNullable<EngineOptions<Jobs>["errors"]>): void {
  checkOptionNames(errors, { stack: true }, "errors");
  const { stack = true } = errors;
  if (typeof stack !== "boolean") throw new TypeError(`errors.stack must be a boolean, not ${kindOf(stack)}`);
}
