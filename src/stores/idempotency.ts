import { isTerminal, type RunStatus } from "../model/run.ts";
import type { NewRun } from "../store/new_run.ts";

/** Whether the newest retry of a run that has the key of a request counts in its place. */
export function countsByNewestRetry({ idempotencyUntil: until }: Pick<NewRun, "idempotencyUntil">): boolean {
  return until === "ended" || until === "failed";
}

/**
 * Whether a run that has the idempotency key of a request counts: then the request leads to it.
 *
 * @param run The run, or its newest retry; `hasCompleted` is said of the run that has the key.
 */
export function countsForKey(
  { status, createdAt, hasCompleted, hasClosedInbox }: {
    status: RunStatus;
    createdAt: number;
    /** Whether it has completed, or a retry of it has. */
    hasCompleted: boolean;
    /** Whether it accepts no more messages. */
    hasClosedInbox: () => boolean;
  },
  { idempotencyUntil: until }: Pick<NewRun, "idempotencyUntil">,
  now: number,
): boolean {
  switch (until) {
    case undefined:
      return true;
    case "ended":
      return !isTerminal(status) && !hasClosedInbox();
    case "failed":
      return hasCompleted || (status !== "failed" && status !== "cancelled");
    default:
      return now - createdAt < until;
  }
}
