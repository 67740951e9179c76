import { ValidationError } from "../model/error.ts";
import { type JobCatalog, UnknownJobError } from "../model/job/job_catalog.ts";
import { type ActorOptions, readActor } from "../model/origin.ts";
import { checkName } from "../values/name.ts";
import { checkOptionNames } from "../values/option_names.ts";
import type { JobPause } from "../store/operate.ts";
import type { JobInfo } from "./operate/job_info.ts";
import { getPausedJobs, hasWorker } from "../store/reads.ts";
import type { Worker } from "../execution/worker.ts";
import type { ExecutionDeps } from "../execution/execution.ts";
import type { Operator } from "./operate/operator.ts";

/** Who pauses a job, and why. */
export interface PauseJobOptions extends ActorOptions {
  /** Why: up to 1,000 characters. */
  note?: string;
}

type JobPausesDeps = Pick<ExecutionDeps, "store" | "hub"> & {
  jobs: JobCatalog;
  operator: Operator;
  /** The current worker. */
  worker: () => Pick<Worker, "wake">;
};

const OPTIONS: Record<keyof PauseJobOptions, true> = { by: true, note: true };
const MAX_NOTE_LENGTH = 1_000;

/** Pauses and resumes jobs, in all processes that share the store. */
export class JobPauses {
  readonly #deps: JobPausesDeps;

  constructor(deps: JobPausesDeps) {
    this.#deps = deps;
  }

  /** Does `Engine.pauseJob()`: under all names of the job, since workers may know it by any of them. */
  async pause(jobName: string, options: PauseJobOptions): Promise<JobInfo> {
    const { store, hub } = this.#deps;
    const { by, note } = checkOptions(options);
    const [name, ...aliases] = this.#namesOf(jobName);
    const earlier = await this.#findPause(name);
    if (earlier === null) await this.#checkExists(name);
    const pause = await store.pauseJob(name, { by, note });
    for (const alias of aliases) await store.pauseJob(alias, { by, note });
    if (earlier === null) hub.publishJob({ type: "job:pause", jobName: name, by: pause.by, note: pause.note });
    const { since, by: pausedBy, note: why } = pause;
    // Somebody may have resumed the job meanwhile: the answer is that of this call.
    return { ...await this.#deps.operator.getJob(name), paused: { since, by: pausedBy, note: why } };
  }

  /** Does `Engine.resumeJob()`. */
  async resume(jobName: string): Promise<JobInfo> {
    const { store, hub, worker } = this.#deps;
    const [name, ...aliases] = this.#namesOf(jobName);
    let wasPaused = await store.resumeJob(name);
    for (const alias of aliases) wasPaused = await store.resumeJob(alias) || wasPaused;
    if (wasPaused) {
      hub.publishJob({ type: "job:resume", jobName: name });
      worker().wake();
    } else await this.#checkExists(name);
    return { ...await this.#deps.operator.getJob(name), paused: null };
  }

  #namesOf(jobName: string): readonly [string, ...string[]] {
    checkName(jobName, "The name of a job");
    const found = this.#deps.jobs.find(jobName);
    return found === undefined ? [jobName] : [found.job.name, ...found.aliases];
  }

  async #findPause(jobName: string): Promise<JobPause | null> {
    const pauses = await getPausedJobs(this.#deps.store);
    return pauses.find((pause) => pause.jobName === jobName) ?? null;
  }

  /** Refuses a name that neither this engine, nor a live worker, nor a stored run has: it would be a mistake. */
  async #checkExists(jobName: string): Promise<void> {
    const { jobs, store } = this.#deps;
    if (jobs.find(jobName) !== undefined || await hasWorker(store, jobName)) return;
    const { ids } = await store.findRuns({ jobName, limit: 1 });
    if (ids.length === 0) throw new UnknownJobError(jobName, jobs.newest.keys());
  }
}

function checkOptions(options: PauseJobOptions): { by: string | null; note: string | null } {
  checkOptionNames(options, OPTIONS, "pauseJob()");
  const { note = null } = options;
  if (note !== null && !isNote(note)) {
    throw new ValidationError(`note must be a well-formed string of up to ${MAX_NOTE_LENGTH} characters`);
  }
  return { by: readActor(options), note };
}

function isNote(note: unknown): boolean {
  return typeof note === "string" && note.length <= MAX_NOTE_LENGTH && note.isWellFormed() && !note.includes("\0");
}
