import { deadlineFailure } from "../../../model/failure/deadline_failure.ts";
import type { Failure } from "../../../model/failure.ts";
import { earliest, finishBy, type KeptRun, startBy } from "../records.ts";

/** Why a run that is not under a lease fails now: it missed the deadline for its start or for its end, or `null`. */
export function missedDeadline(run: KeptRun, now: number): Failure | null {
  const { startWithin, finishWithin } = run.flow;
  if (startWithin !== null && (openStartBy(run) ?? Infinity) <= now) return deadlineFailure("expired", startWithin);
  if (finishWithin !== null && (finishBy(run) ?? Infinity) <= now) return deadlineFailure("timeout", finishWithin);
  return null;
}

/** When a run that is not under a lease fails, unless it starts or ends before; `null`: it has no deadline. */
export function nextDeadline(run: KeptRun): number | null {
  return earliest([openStartBy(run), finishBy(run)]);
}

function openStartBy(run: KeptRun): number | null {
  return run.startedAt === null ? startBy(run) : null;
}
