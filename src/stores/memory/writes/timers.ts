import type { Failure } from "../../../model/failure.ts";
import type { RunIdentity } from "../../../model/run.ts";
import type { ClaimResult } from "../../../store/claim.ts";
import { abandonedFailure, MAX_TIMERS } from "../../rules.ts";
import { isOrphan } from "../children.ts";
import { earliest, type KeptRun, missedDeadline, nextDeadline } from "../records.ts";
import { wakesAt } from "../pauses.ts";
import { toIdentity } from "../copies.ts";
import type { LostWorker, MemoryRuns } from "../runs.ts";
import { cancelSteps } from "./steps.ts";

/** When the next timer of a run or of a cancelled run expires. */
export function findNextTimer(runs: MemoryRuns): number | null {
  const ghostsEndAt = runs.keys.ghosts.map(({ expiresAt }) => expiresAt);
  return earliest([...runs.open.filter(hasTimer).map(nextTimerOf), ...ghostsEndAt]);
}

function hasTimer({ lease, parking, dueAt, flow }: KeptRun): boolean {
  return lease !== null || parking !== null || dueAt !== null || flow.startWithin !== null ||
    flow.finishWithin !== null;
}

function nextTimerOf(run: KeptRun): number | null {
  if (run.lease !== null) return run.lease.expiresAt;
  return earliest([wakesAt(run), run.dueAt, nextDeadline(run)]);
}

/** Processes expired timers, a bounded number of each kind. */
export function processTimers(
  { runs, workers }: { runs: MemoryRuns; workers: ReadonlyMap<string, LostWorker> },
  maxAbandonments: number,
  now: number,
): Pick<ClaimResult, "failed" | "cancelled"> & { hasMoreTimers: boolean } {
  let hasMoreTimers = false;
  const take = <T>(expired: T[]): T[] => {
    hasMoreTimers ||= expired.length > MAX_TIMERS;
    return expired.slice(0, MAX_TIMERS);
  };
  const cancelled = take(runs.open.filter(isOrphan)).map((run) => cancelOrphan(runs, run, now));
  const failed: ClaimResult["failed"] = [];
  const open = runs.open.filter(hasTimer);
  for (const run of take(open.filter(({ lease }) => lease !== null && lease.expiresAt <= now))) {
    runs.abandon(run, workers.get(run.lease!.owner), now); // it is under a lease
    if (run.abandonmentsAlone >= maxAbandonments) failed.push(fail(runs, run, abandonedFailure(run.abandonments), now));
  }
  for (const ghost of take(runs.keys.ghosts.filter(({ expiresAt }) => expiresAt <= now))) runs.releaseGhost(ghost);
  const late = open.flatMap((run) => {
    const missed = isFree(run) ? missedDeadline(run, now) : null;
    return missed === null ? [] : [{ run, missed }];
  });
  for (const { run, missed } of take(late)) failed.push(fail(runs, run, missed, now));
  for (const run of take(open.filter((run) => isFree(run) && (wakesAt(run) ?? Infinity) <= now))) runs.wake(run, now);
  for (const run of take(open.filter((run) => isFree(run) && run.dueAt !== null && run.dueAt <= now))) {
    runs.endDelay(run, now);
  }
  return { failed, cancelled, hasMoreTimers };
}

/** Cancels a child whose parent has ended. */
export function cancelOrphan(runs: MemoryRuns, run: KeptRun, now: number): RunIdentity {
  cancelSteps(run, [], runs.journal, now);
  runs.end(run, { status: "cancelled" }, now);
  return toIdentity(run);
}

/** Whether a run has not ended, and is under no lease. */
function isFree({ lease, completedAt }: KeptRun): boolean {
  return lease === null && completedAt === null;
}

/** Fails a run that is not under a lease. */
function fail(runs: MemoryRuns, run: KeptRun, failure: Failure, now: number): ClaimResult["failed"][number] {
  runs.end(run, { status: "failed", failure, failedStepName: null }, now);
  return { run: toIdentity(run), error: failure.message, failureKind: failure.kind };
}
