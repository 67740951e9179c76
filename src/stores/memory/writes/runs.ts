import { ConflictError, NotFoundError } from "../../../model/error.ts";
import type { Report } from "../../../model/execution_report.ts";
import { coalescedFacts } from "../../../model/fact.ts";
import type { Lease } from "../../../model/lease.ts";
import { isTerminal, type Retention, type RunIdentity, type StoredRun } from "../../../model/run.ts";
import type { CancelledExecution, Ending } from "../../../store/claim.ts";
import type { Enqueued, NewRun } from "../../../store/new_run.ts";
import { cleaningMessage, orphanMessage, retriedMessage } from "../../end_runs.ts";
import { toRunText } from "../copies.ts";
import { purgeStreams } from "../streams.ts";
import { hadLease, type KeptRun } from "../records.ts";
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
  if (isTerminal(run.status)) return run.cancelRequest === requestId ? toRunText(run) : null;
  run.cancelRequest = requestId;
  const current = execution !== null && runs.findUnder(execution.lease) === run ? execution : null;
  runs.noteReports(run, current?.reports ?? []);
  cancelSteps(run, current?.steps ?? [], runs.journal, now);
  runs.end(run, { status: "cancelled" }, now);
  return toRunText(run);
}

/** Deletes a run that has ended. See `Store.delete()`. */
export function deleteRun(runs: MemoryRuns, runId: string, by: string | null, now: number): RunIdentity | null {
  const run = runs.get(runId);
  return run === undefined || !isTerminal(run.status) || runs.findOpenEnd(run) !== undefined
    ? null
    : runs.remove(run, by, now);
}

/** Deletes the oldest of the runs that ended long enough ago. See `Store.purge()`. */
export function purgeRuns(runs: MemoryRuns, retention: Retention, limit: number, now: number): RunIdentity[] {
  purgeStreams(runs.all, retention, now);
  const continued = new Set(runs.open.filter(({ id, originId }) => originId !== id).map(({ originId }) => originId));
  return runs.all
    .filter(({ status, completedAt }) =>
      isTerminal(status) && completedAt !== null && completedAt <= now - (retention[status] ?? Infinity)
    )
    .filter(({ retriggeredAs, originId }) => retriggeredAs === null || !continued.has(originId))
    .filter((run) => runs.findOpenEnd(run) === undefined)
    .sort((left, right) => left.completedAt! - right.completedAt!) // those that ended have one
    .slice(0, limit)
    .map((run) => runs.remove(run, null, now));
}

/** Adds runs, or finds the existing ones that the requests lead to. See `Store.enqueue()`. */
export function enqueueRuns(runs: MemoryRuns, requests: readonly NewRun[], now: number): Enqueued[] {
  for (const { id, retriggerOf } of requests) {
    if (runs.wasDeleted(id)) throw new ConflictError(`Cannot add run "${id}" again: it was deleted`);
    // When the call is repeated, the old run may have been deleted.
    if (retriggerOf === null || runs.has(retriggerOf.runId) || runs.has(id)) continue;
    throw new NotFoundError(`There is no run "${retriggerOf.runId}"`);
  }
  for (const { id, retriggerOf } of requests) {
    const old = retriggerOf === null || runs.has(id) ? undefined : runs.get(retriggerOf.runId);
    if (old === undefined) continue;
    const open = runs.findOpenEnd(old);
    if (open !== undefined) throw new ConflictError(cleaningMessage(old.id, open));
    if (retriggerOf!.from === "failure") checkOpenEnds(runs, old);
    const ended = old.endOf === null ? null : runs.get(old.endOf);
    if (ended === undefined || ended && (ended.retriggeredAs !== null || runs.findContinuing(ended).length > 1)) {
      throw new ConflictError(retriedMessage(old));
    }
  }
  return requests.map((request) => enqueueRun(runs, request, now));
}

/**
 * Refuses a retry from the failure while a later run with the same steps is cleaned up after, or one that would retry a
 * child, or a child of one, which is still to be cleaned up after.
 */
function checkOpenEnds(runs: MemoryRuns, old: KeptRun): void {
  for (const run of runs.findContinuing(old)) {
    const open = runs.findOpenEnd(run);
    if (open !== undefined) throw new ConflictError(cleaningMessage(run.id, open));
  }
  for (const { child } of old.pauses.flatMap(({ children }) => children?.members ?? [])) {
    if (child.status === "completed" || runs.get(child.id) === undefined) continue;
    if (child.onEnd !== undefined && !isTerminal(child.status)) throw new ConflictError(orphanMessage(child.id));
    checkOpenEnds(runs, child);
  }
  // What a retry has not started is taken over from the run before it.
  const before = old.originId === old.id ? undefined : runs.get(old.retriggerOf!);
  if (before !== undefined) checkOpenEnds(runs, before);
}

/** Adds a run, or finds the existing one that the request leads to. */
export function enqueueRun(runs: MemoryRuns, request: NewRun, now: number): Enqueued {
  const known = runs.get(request.id);
  if (known !== undefined) return { run: toRunText(known), disposition: "created" };
  const same = runs.findOpenRetry(request) ?? runs.findIdempotent(request, now);
  if (same !== undefined) return { run: toRunText(same), disposition: "idempotent" };
  const joined = findCoalescable(runs, request, now);
  if (joined !== undefined) {
    const run = toRunText(joined);
    runs.journal.note(...coalescedFacts(joined.seq, run, request));
    return { run, disposition: "coalesced" };
  }
  return { run: toRunText(runs.add(request, now)), disposition: "created" };
}

function findCoalescable(
  runs: MemoryRuns,
  { jobName, aliases, concurrencyKey, coalesce }: NewRun,
  now: number,
): KeptRun | undefined {
  if (coalesce === null || concurrencyKey === null) return undefined;
  const names = [jobName, ...aliases];
  const rivals = runs.open.filter((run) =>
    names.includes(run.jobName) && run.concurrencyKey === concurrencyKey && run.hold === null
  );
  // One that is claimed alone waits for that, but not for its start.
  const pending = rivals.find((run) => run.status === "pending" && (run.isClaimedAlone || (run.dueAt ?? 0) <= now));
  if (pending !== undefined || coalesce !== "active") return pending;
  return rivals.find(({ lease }) => lease !== null && lease.expiresAt > now) ??
    rivals.find((run) => run.status === "waiting");
}
