import type { Rate } from "../model/flow.ts";
import type { RunStatus } from "../model/run.ts";
import type { JobPause } from "./job_pause.ts";

/** How many runs have each status. */
export type Counts = Record<RunStatus, number>;

/** The numbers of one job, by the name that its runs have. */
export interface JobNumbers {
  /** The name. */
  jobName: string;
  /** How many of its runs have each status. */
  byStatus: Counts;
  /** How many of its cancelled runs may still be executed. */
  ghosts: number;
  /**
   * The first of its runs that are due and have passed their concurrency keys, and since when it is due, by the store's
   * clock: since its trigger or its start, or since it last became due again. `null`: there is none.
   */
  oldestDue: { runId: string; dueSince: number } | null;
  /** How many of its runs are held, of the first 10,000 held runs of the store, and since when the first of these is; `null`: none. */
  held: { runs: number; since: number } | null;
  /** How many messages its runs that have not ended have not received, of the newest 10,000 of the store that nobody has. */
  unread: number;
}

/** The rate of a job, to ask when it opens. */
export interface RatedJob {
  /** The first of the names of the job. */
  jobName: string;
  /** The rate. */
  rate: Rate;
}

/** The jobs of a store. */
export interface JobList {
  /** The jobs that have or had runs, by their names. */
  jobs: JobNumbers[];
  /** When each of the rates opens, in the order of the request; `null`: it is open. */
  openings: (number | null)[];
  /** The pauses of jobs, by their names. */
  paused: JobPause[];
  /** When the next sleep, wait, retry delay, delayed start or deadline of a run ends; `null`: there is none. */
  nextTimerAt: number | null;
  /** The current instant of the store's clock. */
  now: number;
}
