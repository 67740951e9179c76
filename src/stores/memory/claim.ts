import type { Claim, ClaimRequest, ClaimResult } from "../../store.ts";
import type { RunIdentity } from "../../run.ts";
import { abandonedFailure } from "../abandoned_failure.ts";
import { isOrphan } from "./children.ts";
import { wakesAt } from "./pauses.ts";
import { earliest, type KeptRun, toClaim, toIdentity } from "./records.ts";
import type { MemoryRuns } from "./runs.ts";
import { cancelSteps } from "./steps.ts";

// The maximum number of leases, keys and waiting runs (each) that one claim processes, so that a claim is always short.
const MAX_TIMERS = 40;

/** The entry of a worker, from its last claim. */
export interface KnownWorker extends Pick<ClaimRequest, "claimId" | "leaseMs"> {
  /** The jobs that it knows. */
  jobNames: readonly string[];
  /** When that was. */
  seenAt: number;
}

/** Claims due runs. See `Store.claim()`. */
export function claimRuns(
  runs: MemoryRuns,
  workers: Map<string, KnownWorker>,
  request: ClaimRequest,
  now: number,
): ClaimResult {
  const { workerId, claimId, leaseMs } = request;
  const jobNames = request.jobs.map(({ name }) => name);
  if (workers.get(workerId)?.claimId === claimId) {
    const claims = runs.open
      .filter(({ lease }) => lease?.owner === workerId && lease.claimId === claimId)
      .map((run) => toClaim(run, now));
    // The next call checks for more: this one is a repetition and does nothing.
    return { claims, failed: [], cancelled: [], nextTimerAt: findNextTimer(runs), hasMore: true, now };
  }
  workers.set(workerId, { claimId, jobNames, leaseMs, seenAt: now });
  extendHeld(runs, request, now);
  const cancelled = cancelOrphans(runs, now);
  const { failed, hasMoreTimers } = processTimers(runs, request.maxAbandonments, now);
  const { claims, hasMoreRuns } = claimDueRuns(runs, findLiveJobNames(workers, now), request, now);
  const hasMore = hasMoreTimers || hasMoreRuns || runs.open.some(isOrphan);
  return { claims, failed, cancelled, nextTimerAt: findNextTimer(runs), hasMore, now };
}

/** Cancels children whose parents have ended, the oldest first. */
function cancelOrphans(runs: MemoryRuns, now: number): RunIdentity[] {
  const orphans = runs.open.filter(isOrphan).slice(0, MAX_TIMERS);
  for (const run of orphans) {
    cancelSteps(run, [], runs.journal, now);
    runs.end(run, { status: "cancelled" }, now);
  }
  return orphans.map(toIdentity);
}

/** Extends the expired leases that the claiming worker still holds. */
function extendHeld(runs: MemoryRuns, { holding, leaseMs }: ClaimRequest, now: number): void {
  for (const held of holding) {
    const lease = runs.findUnder(held)?.lease;
    if (!lease || lease.expiresAt > now) continue;
    lease.expiresAt = now + leaseMs;
    runs.countChange();
  }
}

function findNextTimer(runs: MemoryRuns): number | null {
  return earliest([
    ...runs.open.map((run) => run.lease?.expiresAt ?? wakesAt(run)),
    ...[...runs.keys.values()].map(({ keptUntil }) => keptUntil),
  ]);
}

function processTimers(
  runs: MemoryRuns,
  maxAbandonments: number,
  now: number,
): { failed: ClaimResult["failed"]; hasMoreTimers: boolean } {
  const expired = runs.open.filter(({ lease }) => lease !== null && lease.expiresAt <= now);
  const keys = [...runs.keys].filter(([, { keptUntil }]) => keptUntil !== null && keptUntil <= now);
  const sleepers = runs.open.filter((run) => (wakesAt(run) ?? Infinity) <= now);

  for (const run of expired.slice(0, MAX_TIMERS)) runs.abandon(run, now);
  for (const [key] of keys.slice(0, MAX_TIMERS)) runs.releaseKey(key);
  for (const run of sleepers.slice(0, MAX_TIMERS)) runs.wake(run, now);
  const failed = expired.slice(0, MAX_TIMERS)
    .filter((run) => run.abandonments >= maxAbandonments)
    .map((run) => failAbandoned(runs, run, now));
  return { failed, hasMoreTimers: Math.max(expired.length, keys.length, sleepers.length) > MAX_TIMERS };
}

function failAbandoned(runs: MemoryRuns, run: KeptRun, now: number): ClaimResult["failed"][number] {
  const failure = abandonedFailure(run.abandonments);
  runs.end(run, { status: "failed", failure, failedStepName: null }, now);
  return { run: toIdentity(run), error: failure.message, failureKind: failure.kind };
}

/** The jobs of live workers: those that claimed within the length of their leases. */
export function findLiveJobNames(workers: ReadonlyMap<string, KnownWorker>, now: number): Set<string> {
  // A worker last seen in the future shows that the clock was set back: it does not count as alive.
  const live = [...workers.values()].filter(({ seenAt, leaseMs }) => seenAt <= now && now - seenAt < leaseMs);
  return new Set(live.flatMap(({ jobNames }) => jobNames));
}

function claimDueRuns(
  runs: MemoryRuns,
  liveJobNames: ReadonlySet<string>,
  request: ClaimRequest,
  now: number,
): { claims: Claim[]; hasMoreRuns: boolean } {
  const jobNames = new Set(request.jobs.map(({ name }) => name));
  const reservedKeys = new Set<string>(); // keys with an older run that a live worker can claim
  const claims: Claim[] = [];
  for (const run of runs.open) {
    if (run.status !== "pending" && !run.parking?.isWoken) continue;
    if (isOrphan(run)) continue;
    const key = run.concurrencyKey;
    if (key !== null) {
      // While a key is held, only its holder can continue: after a retry delay it precedes older runs.
      const holder = runs.keys.get(key);
      if (holder !== undefined && holder.runId !== run.id) continue;
      if (reservedKeys.has(key)) continue;
      if (liveJobNames.has(run.jobName)) reservedKeys.add(key);
    }
    if (!jobNames.has(run.jobName)) continue;
    if (claims.length >= request.limit) return { claims, hasMoreRuns: true };
    runs.take(run, request, now);
    claims.push(toClaim(run, now));
  }
  return { claims, hasMoreRuns: false };
}
