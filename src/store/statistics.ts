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
