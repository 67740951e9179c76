import type { Rate } from "../model/flow.ts";
import type { RunStatus } from "../model/run.ts";

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

/** The pause of a job. */
export interface JobPause {
  /** The name of the job. */
  jobName: string;
  /** Since when it is paused: ISO 8601 in UTC. */
  since: string;
  /** Who has paused it; `null`: nobody said so. */
  by: string | null;
  /** Why; `null`: nobody said so. */
  note: string | null;
}

/** What a worker says of itself with each claim. */
export interface WorkerDetails {
  /** Its name in the options; `null`: it has none. */
  name: string | null;
  /** The name of its machine; `null`: the process may not read it. */
  hostname: string | null;
  /** The id of its process; `null`: the runtime does not say it. */
  pid: number | null;
  /** The runtime and its version, such as `deno 2.9.6`. */
  runtime: string;
  /** The version of this package. */
  version: string;
  /** What identifies the deployed code, such as a commit; `null`: the options do not say it. */
  deployment: string | null;
  /** How many runs it executes at the same time at most. */
  concurrency: number;
}

/** A worker as a store knows it. Instants are milliseconds by the store's clock. */
export interface WorkerRecord {
  /** Its id. */
  id: string;
  /** What it said of itself with its last claim. */
  details: WorkerDetails;
  /** The names of the jobs that it knows, aliases included, sorted. */
  jobNames: string[];
  /** When it claimed first. */
  startedAt: number;
  /** When it claimed last, as far as that was stored. */
  seenAt: number;
  /** Whether it has said that it claims nothing more. */
  isStopping: boolean;
  /** How many runs are under its leases. */
  leases: number;
  /** How long its leases last unless renewed, in milliseconds. */
  leaseMs: number;
}

/** The workers of a store. */
export interface WorkerList {
  /** The workers that claimed within the last 100 lengths of their leases, by their first claims. */
  workers: WorkerRecord[];
  /** The current instant of the store's clock. */
  now: number;
}

/** The length of a slot of the statistics, in milliseconds: a minute, kept for 2 hours, or 15 minutes, kept for 8 days. */
export type StatisticsSpan = 60_000 | 900_000;

/** How often something happened. */
export interface StatisticsCounts {
  /** Runs that were added. */
  triggered: number;
  /** Runs that were claimed for the first time. */
  started: number;
  /** Runs that completed. */
  completed: number;
  /** Runs that failed. */
  failed: number;
  /** Runs that were cancelled. */
  cancelled: number;
  /** Attempts at steps that ended. */
  steps: number;
  /** How many of these failed. */
  stepFailures: number;
}

/**
 * How many durations fell into each bucket, by the number of the bucket. Buckets without any are left out. The three
 * histograms follow each other: start delays, durations of runs, durations of attempts at steps.
 */
export type LatencyCounts = { readonly [bucket: string]: number };

/** What a process has counted since its last report. */
export interface JobStatistics extends StatisticsCounts {
  /** The name of the job; `""`: all jobs together. */
  jobName: string;
  /** The durations. */
  latencies: LatencyCounts;
}

/** What was counted in one slot. */
export interface StatisticsRow extends JobStatistics {
  /** When the slot began: a multiple of its length. */
  at: number;
  /** For all jobs together: how often the numbers of runs were sampled, and the sums of the samples. Otherwise zeros. */
  sampled: { samples: number; pending: number; running: number; waiting: number; busy: number };
}

/** Which statistics to read. */
export interface StatisticsQuery {
  /** The length of the slots. */
  span: StatisticsSpan;
  /** Slots that began then or later. */
  from: number;
  /** The job; `""`: all jobs together; left out: each job, and all together. */
  jobName?: string;
  /** Only rows after this one. */
  after?: Pick<StatisticsRow, "at" | "jobName">;
  /** The maximum number of rows. */
  limit: number;
}

/** What a store is, and how large. Sizes are in bytes; `null`: the store does not know it. */
export interface StoreInfo {
  /** Names the store: made with its tables, and copied with them. */
  id: string;
  /** Where it keeps its data. */
  kind: "memory" | "sqlite" | "postgres";
  /** The version of its tables. */
  schemaVersion: number;
  /** The size of its data, what is free in it included. */
  bytes: number | null;
  /** The size of the write-ahead log beside it. */
  walBytes: number | null;
  /** How much of `bytes` is free: deleting runs does not make a file smaller. */
  freeBytes: number | null;
  /** How many runs it has. */
  runs: number;
}
