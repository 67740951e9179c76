import type { KnownJob } from "../../../model/flow.ts";
import type { Claim, ClaimRequest, ClaimResult } from "../../../store/claim.ts";
import type { JobPause, WorkerDetails } from "../../../store/operate.ts";
import { LISTED_LEASES } from "../../rules.ts";
import { isOrphan } from "../children.ts";
import { type MemoryTurns, orderByPosition, orderByTurn } from "../flow/fairness_turns.ts";
import { DueRuns } from "../flow/due_runs.ts";
import { Gates, queuesOf } from "../flow/gates.ts";
import { offerHeldRuns } from "../holds.ts";
import { jobScope, keyScope, type MemoryRates } from "../flow/rates.ts";
import { earliest, type KeptRun } from "../records.ts";
import { toClaim } from "../copies.ts";
import type { MemoryRuns } from "../runs.ts";
import { findNextTimer, processTimers } from "./timers.ts";

/** What a worker sent with its last claim. */
export interface KnownWorker extends Pick<ClaimRequest, "claimId" | "leaseMs"> {
  /** The jobs that it knows, with their limits. */
  jobs: readonly KnownJob[];
  /** When it claimed. */
  seenAt: number;
  /** The runs that it took, in their order. */
  runIds: readonly string[];
  /** What it says of itself. */
  details: WorkerDetails;
  /** The last claim by which it took a run, if that was the only run that it held then. */
  soleClaimId: string | null;
  /** When it claimed first. */
  startedAt: number;
  /** Whether it claims nothing more. */
  isStopping: boolean;
}

/** What claims read and change. */
export interface ClaimState {
  /** The runs of the store. */
  runs: MemoryRuns;
  /** The workers that have claimed. */
  workers: Map<string, KnownWorker>;
  /** The paused jobs. */
  paused: Map<string, JobPause>;
  /** The starts under rates. */
  rates: MemoryRates;
  /** The turns of fairness keys. */
  turns: MemoryTurns;
}

/** Claims due runs. See `Store.claim()`. */
export function claimRuns(state: ClaimState, request: ClaimRequest, now: number): ClaimResult {
  const { runs, workers } = state;
  const { workerId, claimId, leaseMs } = request;
  const last = workers.get(workerId);
  if (last?.claimId === claimId) {
    const claims = last.runIds.flatMap((runId) => runs.get(runId) ?? [])
      .filter((run) => run.claimId === claimId && run.lease?.owner === workerId)
      .map((run) => toClaim(run, now));
    // The next call checks for more: this one is a repetition and does nothing.
    return {
      claims,
      failed: [],
      cancelled: [],
      nextTimerAt: findNextTimer(runs),
      hasMore: true,
      aloneSince: null,
      hasHeld: true,
      now,
    };
  }
  const copy = (job: KnownJob): KnownJob => ({ ...job, names: [...job.names], rate: job.rate && { ...job.rate } });
  const { startedAt = now, isStopping = false, soleClaimId = null } = last ?? {};
  const worker: KnownWorker = {
    runIds: [],
    claimId,
    jobs: request.jobs.map(copy),
    leaseMs,
    seenAt: now,
    details: { ...request.worker },
    startedAt,
    isStopping,
    soleClaimId,
  };
  workers.set(workerId, worker);
  state.rates.update(now);
  extendLeases(runs, request, now);
  const { failed, cancelled, hasMoreTimers } = processTimers(state, request.maxAbandonments, now);
  let found = claimDueRuns(state, request, now);
  const mayOffer = request.triesHeld && request.limit > 0 && found.claims.length === 0;
  if (mayOffer && offerHeldRuns(runs, request.jobs, findLiveQueues(workers, now), now)) {
    found = claimDueRuns(state, request, now);
  }
  const { claims, opensAt, hasMoreRuns } = found;
  worker.runIds = claims.map(({ run }) => run.id);
  if (claims.length > 0) worker.soleClaimId = claims.length + request.holding.length === 1 ? claimId : null;
  if (claims.length === 0) forgetDeadWorkers(workers, now);
  return {
    claims,
    failed,
    cancelled,
    nextTimerAt: earliest([findNextTimer(runs), opensAt]),
    // A limit that is used up now may let others pass a run that is claimed alone.
    hasMore: hasMoreTimers || hasMoreRuns || runs.open.some(isOrphan) ||
      (claims.length > 0 && runs.open.some(({ isClaimedAlone, dueAt }) => isClaimedAlone && dueAt === null)),
    aloneSince: findAloneSince(state, request, now),
    hasHeld: runs.open.some(({ hold }) => hold !== null),
    now,
  };
}

/**
 * Extends the leases of runs that the claiming worker still executes, if they have expired but nobody else has claimed
 * the runs.
 */
function extendLeases(runs: MemoryRuns, { holding, leaseMs }: ClaimRequest, now: number): void {
  for (const leased of holding) {
    const lease = runs.findUnder(leased)?.lease;
    if (!lease || lease.expiresAt > now) continue;
    lease.expiresAt = now + leaseMs;
    runs.countChange();
  }
}

/** Since when a run is due that is claimed alone, and that the worker is to claim as soon as it holds nothing. */
function findAloneSince(
  { runs, workers, paused, rates }: ClaimState,
  request: ClaimRequest,
  now: number,
): number | null {
  const alone = runs.open.filter((run) => run.isClaimedAlone && run.dueAt === null && !paused.has(run.jobName));
  if (alone.length === 0) return null;
  const due = new DueRuns(runs, rates);
  const earlier = [...workers].filter(([id, worker]) => id < request.workerId && isLive(worker, now));
  const jobsOfEarlier = request.holding.length === 0 ? [] : earlier.flatMap(([, { jobs }]) => jobs);
  const isMeant = (run: KeptRun): boolean => {
    const isOf = ({ name, version }: KnownJob) => name === run.jobName && version === run.version;
    const job = request.jobs.find(isOf);
    if (job === undefined || jobsOfEarlier.some(isOf)) return false;
    return job.concurrency !== null || due.keyOpensAt(run) < Infinity;
  };
  return earliest(alone.filter(isMeant).map(({ updatedAt }) => updatedAt));
}

/** Removes the workers that died long ago. */
export function forgetDeadWorkers(workers: Map<string, KnownWorker>, now: number): void {
  for (const [id, { seenAt, leaseMs }] of workers) if (seenAt + leaseMs * LISTED_LEASES < now) workers.delete(id);
}

/** The jobs of live workers: those that claimed within the length of their leases. */
function findLiveJobs(workers: ReadonlyMap<string, KnownWorker>, now: number): KnownWorker["jobs"] {
  // A worker last seen in the future shows that the clock was set back: it does not count as alive.
  return [...workers.values()].filter((worker) => isLive(worker, now)).flatMap(({ jobs }) => jobs);
}

/** Whether a worker claimed within the length of its lease. */
export function isLive({ seenAt, leaseMs }: Pick<KnownWorker, "seenAt" | "leaseMs">, now: number): boolean {
  return seenAt <= now && now - seenAt < leaseMs;
}

/** The queues from which live workers claim. */
export function findLiveQueues(workers: ReadonlyMap<string, KnownWorker>, now: number): Set<string> {
  return new Set(findLiveJobs(workers, now).flatMap(queuesOf));
}

interface ClaimedRuns {
  claims: Claim[];
  /** When the first of the rates opens that hold up a run; `null`: none does, or another run can be claimed at once. */
  opensAt: number | null;
  hasMoreRuns: boolean;
}

function claimDueRuns(state: ClaimState, request: ClaimRequest, now: number): ClaimedRuns {
  const { runs, rates, turns } = state;
  const due = new DueRuns(runs, rates);
  const gates = new Gates(request, due, { ...state, liveJobs: findLiveJobs(state.workers, now) }, now);
  const order = runs.hasFairnessKeys ? orderByTurn(due, gates, turns, now) : orderByPosition(due, gates, now);
  const claims: Claim[] = [];
  for (let run = order.next(); run !== undefined; run = order.next()) {
    if (claims.length >= request.limit) {
      return { claims, opensAt: null, hasMoreRuns: true };
    }
    due.remove(run); // before the run changes, since its queue may change, too
    order.take(run);
    gates.countTaken(run.jobName);
    countStart(rates, run, request, now);
    runs.take(run, request, now);
    claims.push(toClaim(run, now));
  }
  return { claims, opensAt: findOpening(due, gates, rates, now), hasMoreRuns: false };
}

function countStart(rates: MemoryRates, run: KeptRun, { jobs }: ClaimRequest, now: number): void {
  if (run.startedAt !== null) return;
  const { jobName, version, concurrencyKey, flow: { keyRate } } = run;
  const job = jobs.find((job) => job.name === jobName && job.version === version);
  if (job !== undefined && job.rate !== null) rates.count(jobScope(job.names[0]), job.rate, now);
  if (concurrencyKey !== null && keyRate !== null) rates.count(keyScope(concurrencyKey), keyRate, now);
}

function findOpening(due: DueRuns, gates: Gates, rates: MemoryRates, now: number): number | null {
  if (rates.isEmpty) return null;
  const left = due.inOrder.filter((run) => !due.isRemoved(run));
  const openings = left.map((run) => gates.opensAt(run)).filter((at) => at > now && at < Infinity);
  return earliest(openings);
}

/** Gives turns to the runs that have become due. Called after each write. */
export function updateTurns({ runs, rates, turns }: ClaimState, now: number): void {
  if (!runs.hasFairnessKeys) return turns.update([]);
  const due = new DueRuns(runs, rates);
  turns.update(due.inOrder.filter((run) => due.keyOpensAt(run) <= now));
}
