import type { SqlPart } from "../statement.ts";
import type { RunWith } from "../rows.ts";

/** A run that has passed the gates of its key and of its job. */
export type Candidate = RunWith<"seq queue status position concurrency_key fairness_key"> & {
  /** 1 if it was claimed before. */
  begun: number;
};

/** The columns of a candidate. */
export const CANDIDATE = `seq, queue, status, position, concurrency_key, fairness_key, started_at IS NOT NULL AS begun`;

/** Leaves out the runs that have missed a deadline: the timers fail them, a bounded number in each claim. */
export const IN_TIME = "(deadline_at IS NULL OR deadline_at > ?)";

/**
 * The ready runs of a queue, and of a fairness key or of none, by position. The planner would take the index of all runs
 * of a job, most of which have ended.
 *
 * @param isBegunOnly Only those that were claimed before.
 */
export function readyRuns(columns: string, isBegunOnly: boolean): string {
  const [index, begun] = isBegunOnly
    ? ["holdfast_runs_ready_begun", "AND started_at IS NOT NULL"]
    : ["holdfast_runs_ready", ""];
  return `SELECT ${columns} FROM holdfast_runs INDEXED BY ${index} WHERE queue_state = 'R' ${begun} AND queue = ?`;
}

/** The same as part of a statement. */
export function readyRunsOf(queue: string, columns: string, isBegunOnly = false): SqlPart {
  return { text: readyRuns(columns, isBegunOnly), parameters: [queue] };
}
