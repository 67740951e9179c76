import { ValidationError } from "../error.ts";
import type { Hub } from "../events/hub.ts";
import type { Rate } from "../flow.ts";
import type { Job } from "../job.ts";
import { checkName } from "../name.ts";
import { checkOptionNames } from "../option_names.ts";
import type { Store } from "../store.ts";
import type { JobPause } from "../store/job_pause.ts";
import { UnknownJobError } from "./unknown_job_error.ts";

/** Who pauses a job, and why. */
export interface PauseJobOptions {
  /** Who: 1 to 255 characters. */
  by?: string;
  /** Why: up to 1,000 characters. */
  note?: string;
}

/** The state of a job. */
export interface JobInfo {
  /** Its name. */
  jobName: string;
  /** Whether the engine that was asked has it. */
  isKnownHere: boolean;
  /** Its pause; `null` while it is not paused. */
  paused: Omit<JobPause, "jobName"> | null;
  /** Its limits in the code of the engine that was asked; `null` if that does not know the job. */
  limits: { concurrency: number | null; rate: Rate | null } | null;
}

/** The dependencies of {@linkcode JobPauses}. */
export interface JobPausesDeps {
  /** The jobs of the engine, by name. */
  jobs: ReadonlyMap<string, Job>;
  /** Keeps the pauses. */
  store: Store;
  /** Publishes the events. */
  hub: Hub;
  /** Called after a job was resumed. */
  onResume: () => void;
}

const OPTIONS: Record<keyof PauseJobOptions, true> = { by: true, note: true };
const MAX_NOTE_LENGTH = 1_000;

/** Pauses and resumes jobs, in all processes that share the store. */
export class JobPauses {
  readonly #deps: JobPausesDeps;

  constructor(deps: JobPausesDeps) {
    this.#deps = deps;
  }

  /** Does `Engine.pauseJob()`. */
  async pause(jobName: string, options: PauseJobOptions): Promise<JobInfo> {
    const { store, hub } = this.#deps;
    const { by, note } = checkOptions(options);
    const earlier = await this.#findPause(jobName);
    if (earlier === null) await this.#checkExists(jobName);
    const pause = await store.pauseJob(jobName, { by, note });
    if (earlier === null) hub.publishJob({ type: "job:pause", jobName, by: pause.by, note: pause.note });
    return this.#infoOf(jobName, pause);
  }

  /** Does `Engine.resumeJob()`. */
  async resume(jobName: string): Promise<JobInfo> {
    const { store, hub, onResume } = this.#deps;
    checkName(jobName, "The name of a job");
    if (await store.resumeJob(jobName)) {
      hub.publishJob({ type: "job:resume", jobName });
      onResume();
    } else await this.#checkExists(jobName);
    return this.#infoOf(jobName, null);
  }

  async #findPause(jobName: string): Promise<JobPause | null> {
    checkName(jobName, "The name of a job");
    const pauses = await this.#deps.store.getPausedJobs();
    return pauses.find((pause) => pause.jobName === jobName) ?? null;
  }

  /** Refuses a name that neither this engine, nor a live worker, nor a stored run has: it would be a mistake. */
  async #checkExists(jobName: string): Promise<void> {
    const { jobs, store } = this.#deps;
    if (jobs.has(jobName) || await store.hasWorker(jobName)) return;
    const { ids } = await store.findRuns({ jobName, limit: 1 });
    if (ids.length === 0) throw new UnknownJobError(jobName, jobs.keys());
  }

  #infoOf(jobName: string, pause: JobPause | null): JobInfo {
    const job = this.#deps.jobs.get(jobName);
    return {
      jobName,
      isKnownHere: job !== undefined,
      paused: pause === null ? null : { since: pause.since, by: pause.by, note: pause.note },
      limits: job === undefined ? null : { concurrency: job.flow.concurrency, rate: job.flow.rate },
    };
  }
}

function checkOptions(options: PauseJobOptions): { by: string | null; note: string | null } {
  checkOptionNames(options, OPTIONS, "pauseJob()");
  const { by = null, note = null } = options;
  if (by !== null) checkName(by, "by");
  if (note !== null && !isNote(note)) {
    throw new ValidationError(`note must be a well-formed string of up to ${MAX_NOTE_LENGTH} characters`);
  }
  return { by, note };
}

function isNote(note: unknown): boolean {
  return typeof note === "string" && note.length <= MAX_NOTE_LENGTH && note.isWellFormed() && !note.includes("\0");
}
