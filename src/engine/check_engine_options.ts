import { checkDuration } from "../values/check_duration.ts";
import type { Job } from "../job.ts";
import type { JobCatalog } from "../job/job_catalog.ts";
import { kindOf } from "../values/kind_of.ts";
import { checkName, isLabelKey } from "../values/name.ts";
import { checkOnDivergence } from "../job/job_changes.ts";
import { propertyOf } from "../values/property_of.ts";
import { checkOptionNames } from "../values/option_names.ts";
import { checkSchema } from "../schema.ts";
import type { Retention } from "../run.ts";
import type { EngineOptions, Jobs } from "./engine.ts";
import { type CheckedSchedule, checkSchedule } from "./schedules/schedule_options.ts";

// Typed so that an option cannot be added without its name.
const ENGINE_OPTIONS: Record<keyof EngineOptions<Jobs>, true> = {
  store: true,
  jobs: true,
  worker: true,
  retention: true,
  labels: true,
  schedules: true,
  fairnessLabel: true,
  maxValueBytes: true,
  errors: true,
  onDivergence: true,
  build: true,
  logger: true,
  host: true,
};
const STATUSES: Record<keyof Retention, true> = { completed: true, failed: true, cancelled: true };

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
  checkRetention(options.retention ?? {});
  if (options.labels !== undefined) checkSchema(options.labels, "labels of createEngine()");
  checkFairnessLabel(options.fairnessLabel);
  checkMaxValueBytes(options.maxValueBytes);
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
  if (typeof schedules !== "object" || schedules === null || Array.isArray(schedules)) {
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
  if (hasMethods(store, "claim", "enqueue", "getRun")) return;
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
  if (typeof jobs !== "object" || jobs === null) {
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
  if (typeof value !== "object" || value === null) return false;
  return typeof propertyOf(value, "name") === "string" && typeof propertyOf(value, "run") === "function" &&
    propertyOf(value, "input") !== undefined;
}

function checkRetention(retention: Retention): void {
  checkOptionNames(retention, STATUSES, "retention");
  for (const [status, ms] of Object.entries(retention)) {
    if (ms !== undefined) checkDuration(ms, `retention.${status}`);
  }
}

function checkMaxValueBytes(bytes: number | undefined): void {
  if (bytes !== undefined && (!Number.isInteger(bytes) || bytes < 1)) {
    throw new RangeError(`maxValueBytes must be a positive integer, not ${bytes}`);
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
