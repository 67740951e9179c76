import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { Job } from "../../model/job.ts";
import { JobCatalog } from "../../model/job/job_catalog.ts";
import { propertyOf } from "../../values/unknown_values.ts";
import { toFailure } from "../../model/to_failure.ts";
import { type CommandOptions, UsageError } from "./command_options.ts";

/**
 * Loads the jobs that a module exports: one in each export, or in objects such as `export const jobs = { checkout }`.
 *
 * @throws {UsageError} The module cannot be loaded, has no jobs, or lacks one that was named.
 */
export async function readJobs({ jobs: path, job: names }: Pick<CommandOptions, "jobs" | "job">): Promise<JobCatalog> {
  const jobs = findJobs(await load(path));
  if (jobs.length === 0) throw new UsageError(`${path} exports no jobs`);
  for (const name of names) {
    if (!jobs.some((job) => job.name === name)) throw new UsageError(`${path} exports no job "${name}"`);
  }
  const twice = jobs.find(({ name }, at) => jobs.findIndex((job) => job.name === name) < at);
  if (twice !== undefined) {
    throw new UsageError(
      `The jobs of ${path} do not fit together: Two jobs have the name "${twice.name}". Name the earlier one in previous`,
    );
  }
  try {
    return new JobCatalog(names.length === 0 ? jobs : jobs.filter(({ name }) => names.includes(name)));
  } catch (error) {
    throw new UsageError(`The jobs of ${path} do not fit together: ${toFailure(error).message}`, { cause: error });
  }
}

async function load(path: string): Promise<object> {
  const url = path.startsWith("file:") ? path : pathToFileURL(resolve(path)).href;
  try {
    return await import(url);
  } catch (error) {
    const { name, message } = toFailure(error);
    throw new UsageError(`Cannot load ${path}: ${name}: ${message}`, { cause: error });
  }
}

function findJobs(module: object): Job[] {
  const exported: unknown[] = Object.values(module);
  const inside = exported.flatMap((value) => isPlain(value) && !isJob(value) ? Object.values(value) : []);
  const jobs = new Set([...exported, ...inside].filter(isJob));
  // An earlier version may be exported, too: the newest one has it.
  const previous = new Set([...jobs].flatMap((job) => job.previous));
  return [...jobs].filter((job) => !previous.has(job));
}

function isPlain(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}

/** Whether a value was made by `defineJob()`, perhaps that of another copy of this package. */
function isJob(value: unknown): value is Job {
  return isPlain(value) && typeof propertyOf(value, "name") === "string" &&
    typeof propertyOf(value, "run") === "function" &&
    isPlain(propertyOf(value, "changes")) && propertyOf(propertyOf(value, "input"), "~standard") !== undefined;
}
