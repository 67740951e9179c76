import type { JobNumbers } from "../../store/job_numbers.ts";
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
