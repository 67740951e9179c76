import type { RunStatus } from "../../model/run.ts";
import { noRuns } from "../../statistics/no_runs.ts";
import type { JobNumbers, LatencyCounts, StatisticsRow, StatisticsSpan } from "../../store/operate.ts";
import { jobNameOf } from "../queue_name.ts";

/** How many runs of a queue are held, and since when the first of them is. */
export interface HeldRow {
  /** The queue. */
  queue: string;
  /** How many. */
  runs: number;
  /** Since when. */
  since: number;
}

/** How many messages the runs of a queue have not received. */
export interface UnreadRow {
  /** The queue. */
  queue: string;
  /** How many. */
  messages: number;
}

/** What both SQL stores read of their queues. */
export interface QueueRows {
  /** How many runs have which status. */
  counts: readonly { queue: string; status: RunStatus; runs: number }[];
  /** How many cancelled runs of each job a worker may still execute. */
  ghosts: { readonly [jobName: string]: number };
  /** The held runs. */
  held: readonly HeldRow[];
  /** The messages that no receive has taken. */
  unread: readonly UnreadRow[];
  /** Among these are the first due runs of each job. */
  due: readonly { queue: string; runId: string; position: number; dueSince: number }[];
}

/** The numbers of jobs, whose queues are added up. */
export function toJobNumbers({ counts, ghosts, held, unread, due }: QueueRows): JobNumbers[] {
  const jobs = new Map<string, JobNumbers>();
  for (const { queue, status, runs } of counts) {
    const jobName = jobNameOf(queue);
    const job = jobs.get(jobName) ?? { jobName, byStatus: noRuns(), ghosts: 0, oldestDue: null, held: null, unread: 0 };
    jobs.set(jobName, job);
    job.byStatus[status] += runs;
    job.ghosts = Object.hasOwn(ghosts, jobName) ? ghosts[jobName]! : 0;
  }
  addHeld(jobs, held);
  addUnread(jobs, unread);
  for (const { queue, runId, dueSince } of due.toSorted((one, other) => one.position - other.position)) {
    const job = jobs.get(jobNameOf(queue))!; // it has runs
    job.oldestDue ??= { runId, dueSince };
  }
  return [...jobs.values()].sort((one, other) => one.jobName < other.jobName ? -1 : 1);
}

/** Adds the unread messages of queues to the numbers of their jobs. */
export function addUnread(jobs: ReadonlyMap<string, JobNumbers>, rows: readonly UnreadRow[]): void {
  for (const { queue, messages } of rows) {
    const job = jobs.get(jobNameOf(queue));
    if (job !== undefined) job.unread += messages;
  }
}

/** Adds the held runs of queues to the numbers of their jobs. */
export function addHeld(jobs: ReadonlyMap<string, JobNumbers>, rows: readonly HeldRow[]): void {
  for (const { queue, runs, since } of rows) {
    const job = jobs.get(jobNameOf(queue));
    if (job === undefined) continue;
    const { runs: others, since: first } = job.held ?? { runs: 0, since };
    job.held = { runs: runs + others, since: Math.min(since, first) };
  }
}

/** The sums of two lists of counts. */
export function addLatencies(one: LatencyCounts, other: LatencyCounts): LatencyCounts {
  const sum: Record<string, number> = { ...one };
  for (const [bucket, count] of Object.entries(other)) sum[bucket] = (sum[bucket] ?? 0) + count;
  return sum;
}

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;

/** The lengths of slots, each with how long its slots are kept, in milliseconds. */
export const STATISTICS_SPANS: readonly { span: StatisticsSpan; keptMs: number }[] = [
  { span: MINUTE_MS, keptMs: 2 * HOUR_MS },
  { span: 900_000, keptMs: 8 * 24 * HOUR_MS },
];

/** The numbers of runs in a slot in which nobody has counted them. */
export const NO_SAMPLE: StatisticsRow["sampled"] = { samples: 0, pending: 0, running: 0, waiting: 0, busy: 0 };

/** When the slot of an instant began. */
export function slotAt(now: number, span: StatisticsSpan): number {
  return Math.floor(now / span) * span;
}
