import type { ClientRun } from "./client_run.ts";
import type { RunStatus } from "./run.ts";

/** Which children of a run to list. */
export interface ChildrenQuery {
  /** Children with this status, or with any of these. Default: with any. */
  status?: RunStatus | readonly RunStatus[];
  /** Children that are held; `false`: those that are not. */
  held?: boolean;
  /** The maximum number of children, 1 to 1,000. Default 50. */
  limit?: number;
  /** Where to continue: the `next` of an earlier call. */
  cursor?: string;
}

/** A child run, without its input and output. */
export type ChildRun = Omit<ClientRun, "input" | "output">;

/** The children of a run: how many there are, and a page of them. */
export interface Children extends ChildCounts {
  /** The run that waits for them, or waited for them. */
  runId: string;
  /**
   * The children: those that failed, are held, running, waiting, pending, cancelled, completed; in each group the newest
   * first. One that changes while pages are read may be missing, or be on two of them.
   */
  children: ChildRun[];
  /** Continues the list; `null`: this was the last page. */
  next: string | null;
}

/**
 * How many children a run has, whatever the query leaves out. A child that a retry of the run has taken over counts for the
 * earlier run. Over HTTP all are `null` for callers who may not count runs.
 */
export interface ChildCounts {
  /** How many there are. */
  total: number | null;
  /** How many have each status. They are counted one after another. */
  byStatus: Record<RunStatus, number> | null;
  /** How many of the pending ones are held. */
  held: number | null;
  /**
   * How many of them a retry of the run from its failure executes again: those that have not completed.
   * `null` until the run has ended, and if it has completed; over HTTP also for callers who may list only children in some
   * state.
   */
  executedAgain: number | null;
}
