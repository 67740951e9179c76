import { ConflictError, NotFoundError } from "../../../error.ts";
import { coalescedFacts } from "../../../fact.ts";
import type { Enqueued, NewRun } from "../../../store/new_run.ts";
import { toRunText } from "../copies.ts";
import type { KeptRun } from "../records.ts";
import type { MemoryRuns } from "../runs.ts";

/** Adds runs, or finds the existing ones that the requests lead to. See `Store.enqueue()`. */
export function enqueueRuns(runs: MemoryRuns, requests: readonly NewRun[], now: number): Enqueued[] {
  for (const { id, retriggerOf } of requests) {
    if (runs.wasDeleted(id)) throw new ConflictError(`Cannot add run "${id}" again: it was deleted`);
    // When the call is repeated, the old run may have been deleted.
    if (retriggerOf === null || runs.has(retriggerOf.runId) || runs.has(id)) continue;
    throw new NotFoundError(`There is no run "${retriggerOf.runId}"`);
  }
  return requests.map((request) => enqueueRun(runs, request, now));
}

/** Adds a run, or finds the existing one that the request leads to. */
export function enqueueRun(runs: MemoryRuns, request: NewRun, now: number): Enqueued {
  const known = runs.get(request.id);
  if (known !== undefined) return { run: toRunText(known), disposition: "created" };
  const same = runs.findOpenRetry(request) ?? runs.findIdempotent(request);
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
