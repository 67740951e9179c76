import type { Report } from "../../../execution_report.ts";
import type { Lease } from "../../../lease.ts";
import { isTerminal, type Retention, type RunIdentity, type StoredRun } from "../../../run.ts";
import type { CancelledExecution, Ending } from "../../../store/claim.ts";
import { toRunText } from "../copies.ts";
import { hadLease } from "../records.ts";
import type { MemoryRuns } from "../runs.ts";
import { cancelSteps } from "./steps.ts";

/** Ends a run. See `Store.finish()`. */
export function finishRun(
  runs: MemoryRuns,
  lease: Lease,
  ending: Ending,
  reports: readonly Report[],
  now: number,
): void {
  const ended = runs.get(lease.runId);
  // Only this same call can have ended the run with this status under this lease.
  if (ended?.status === ending.status && hadLease(ended, lease)) return;
  const run = runs.getUnder(lease);
  runs.noteReports(run, reports);
  runs.end(run, ending, now);
}

/** Cancels a run that has not ended, and records the steps that are being executed as cancelled. See `Store.cancel()`. */
export function cancelRun(
  runs: MemoryRuns,
  runId: string,
  { requestId, execution }: { requestId: string; execution: CancelledExecution | null },
  now: number,
): StoredRun | null {
  const run = runs.get(runId);
  if (run === undefined) return null;
  if (isTerminal(run.status)) return run.cancelledBy === requestId ? toRunText(run) : null;
  run.cancelledBy = requestId;
  const current = execution !== null && runs.findUnder(execution.lease) === run ? execution : null;
  runs.noteReports(run, current?.reports ?? []);
  cancelSteps(run, current?.steps ?? [], runs.journal, now);
  runs.end(run, { status: "cancelled" }, now);
  return toRunText(run);
}

/** Deletes a run that has ended. See `Store.delete()`. */
export function deleteRun(runs: MemoryRuns, runId: string, now: number): RunIdentity | null {
  const run = runs.get(runId);
  return run === undefined || !isTerminal(run.status) ? null : runs.remove(run, now);
}

/** Deletes the oldest of the runs that ended long enough ago. See `Store.purge()`. */
export function purgeRuns(runs: MemoryRuns, retention: Retention, limit: number, now: number): RunIdentity[] {
  return runs.all
    .filter(({ status, completedAt }) =>
      isTerminal(status) && completedAt !== null && completedAt <= now - (retention[status] ?? Infinity)
    )
    .sort((left, right) => left.completedAt! - right.completedAt!) // those that ended have one
    .slice(0, limit)
    .map((run) => runs.remove(run, now));
}
