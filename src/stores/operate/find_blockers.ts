import { isTerminal } from "../../model/run.ts";
import type { Blocker, BlockingWorker, RunBlockers } from "../../store/blockers.ts";
import { isAloneQueue, jobNameOf } from "../queue_name.ts";
import {
  type BlockerFacts,
  type FirstInQueue,
  hasQueue,
  type KeyFacts,
  type LimitFacts,
  liveWorkers,
  MAX_AHEAD,
  type RunsAhead,
  versionQueue,
  type WorkerFacts,
} from "./blocker_facts.ts";

/** Says what holds up a run, in the order in which a claim checks it. See `Store.getBlockers()`. */
export function findBlockers(facts: BlockerFacts): RunBlockers {
  const { run, now } = facts;
  return { run, blockers: stateOf(facts) ?? gatesOf(facts), now };
}

/** What the state of a run says, whatever the gates are; `null`: it is pending, or waits. */
function stateOf(facts: BlockerFacts): Blocker[] | null {
  const { run: { status, completedAt, leaseExpiresAt, leaseOwner }, now, workers, leasedAt, unread } = facts;
  if (isTerminal(status)) {
    const ended: Blocker = { kind: "ended", endedAt: Date.parse(completedAt!) }; // an ended run has it
    return unread.length === 0 ? [ended] : [ended, { kind: "unread", messages: unread }];
  }
  if (leaseOwner === null || leaseExpiresAt === null) return null;
  const [worker, expiresAt] = [workerOf(workers, leaseOwner), Date.parse(leaseExpiresAt)];
  if (expiresAt > now) return [{ kind: "executing", worker, since: leasedAt ?? now, leaseExpiresAt: expiresAt }];
  const lost: Blocker = { kind: "worker_lost", worker, leaseExpiresAt: expiresAt };
  const others = jobBlockers(facts);
  // Nobody takes it over before somebody acts on these.
  return [...others, lost];
}

function workerOf(workers: readonly WorkerFacts[], id: string): BlockingWorker {
  return toWorker(workers.find((worker) => worker.id === id)) ??
    { id, name: null, hostname: null, deployment: null, lastSeenAt: null };
}

function toWorker(worker: WorkerFacts | undefined): BlockingWorker | null {
  if (worker === undefined) return null;
  const { id, name, hostname, deployment, lastSeenAt } = worker;
  return { id, name, hostname, deployment, lastSeenAt };
}

function gatesOf(facts: BlockerFacts): Blocker[] {
  const { run, now, endedParentId, isDue, dueSince, awaited, delayedUntil, abandonments } = facts;
  const isAlone = isAloneQueue(facts.queue);
  if (endedParentId !== null) return [{ kind: "parent_ended", runId: endedParentId }];
  const late = missedDeadline(facts);
  if (late !== null) return [late];
  if (run.held !== null) {
    const { code, message, since } = run.held;
    return [{ kind: "held", code, message, since: Date.parse(since) }, ...pauseOf(facts)];
  }
  if (!isDue) {
    if (run.status === "waiting") return [...awaited, ...jobBlockers(facts)];
    const until = delayedUntil ?? now;
    const delay: Blocker = isAlone ? { kind: "alone", abandonments, until } : { kind: "delayed", until };
    return [delay, ...jobBlockers(facts)];
  }
  const alone: Blocker[] = isAlone ? [{ kind: "alone", abandonments, until: null }] : [];
  const blockers = [...jobBlockers(facts), ...alone, ...queueBlockers(facts)];
  return blockers.length > 0 ? blockers : slotsOf(facts) ?? [{ kind: "due", since: Math.min(dueSince, now) }];
}

function missedDeadline({ run: { startedAt, startBy, finishBy }, now }: BlockerFacts): Blocker | null {
  const deadline = startedAt === null ? "startBy" : "finishBy";
  const at = startedAt === null ? startBy : finishBy;
  return at !== null && Date.parse(at) <= now ? { kind: "late", deadline, at: Date.parse(at) } : null;
}

/** What concerns all runs of the job: its pause, and that no live worker has it. */
function jobBlockers(facts: BlockerFacts): Blocker[] {
  const { run, workers, now, queue } = facts;
  const live = liveWorkers(workers, now);
  if (knowing(live, queue).length > 0) return pauseOf(facts);
  const byNewest = [...workers].sort((one, other) => other.lastSeenAt - one.lastSeenAt);
  if (live.length === 0) {
    return [...pauseOf(facts), { kind: "no_worker", lastSeenAt: byNewest[0]?.lastSeenAt ?? null }];
  }
  return [...pauseOf(facts), {
    kind: "unknown_job",
    hasOtherVersion: live.some(({ queues }) => queues.some((other) => jobNameOf(other) === run.jobName)),
    lastKnownBy: toWorker(byNewest.find((worker) => hasQueue(worker, queue))),
  }];
}

function pauseOf({ run: { jobName }, paused }: BlockerFacts): Blocker[] {
  const pause = paused.find((pause) => pause.jobName === jobName);
  if (pause === undefined) return [];
  const { by, since, note } = pause;
  return [{ kind: "job_paused", by, since: Date.parse(since), note }];
}

function knowing(workers: readonly WorkerFacts[], queue: string): WorkerFacts[] {
  return workers.filter((worker) => hasQueue(worker, queue));
}

/**
 * The key and the limits of the job. Workers may differ in what they know: the run is claimed by the first that
 * nothing holds up, so the reasons are those of the worker with the fewest.
 */
function queueBlockers(facts: BlockerFacts): Blocker[] {
  const { workers, now, queue } = facts;
  const able = knowing(liveWorkers(workers, now), queue);
  const reasons = able.map((worker) => blockersFor(facts, worker));
  return reasons.sort((one, other) => one.length - other.length)[0] ?? keyBlocker(facts, null);
}

function blockersFor(facts: BlockerFacts, worker: WorkerFacts): Blocker[] {
  return [...keyBlocker(facts, worker), ...limitBlockers(facts, worker)];
}

function keyBlocker(facts: BlockerFacts, worker: WorkerFacts | null): Blocker[] {
  const { key, workers, now } = facts;
  if (key === null || passesKey(key, facts, worker)) return [];
  const { holders, holderCount, concurrency, rate } = key;
  const before = key.firsts.filter(({ queue }) => queue === key.queue || counts(facts, queue));
  const ahead = Math.min(MAX_AHEAD, before.reduce((sum, first) => sum + first.before, 0));
  const isFull = holderCount >= concurrency;
  const [first] = holders;
  if (isFull && first !== undefined) {
    const { workerId, ...holder } = first;
    return [{
      kind: "key",
      holder: { ...holder, worker: workerId === null ? null : workerOf(workers, workerId) },
      ahead,
    }];
  }
  const isSecond = isBehind(key, facts, worker) || countBefore(key, facts, worker) >= concurrency - holderCount;
  if (isFull || isSecond) return [{ kind: "key", holder: null, ahead }];
  return rate === null || rate.opensAt <= now
    ? []
    : [{ kind: "limit", of: "key", inUse: rate.limit, max: rate.limit, ahead, rate }];
}

/**
 * How many runs come before a run for its key, are taken by the same claim and do not hold the key yet. `Infinity`: one of
 * them is left.
 */
function countBefore(key: KeyFacts, facts: BlockerFacts, worker: WorkerFacts | null): number {
  return countOwn(key, worker) + countRivals(key, facts, worker);
}

/**
 * The same for the runs of its own queue. Those behind the first one are taken to be like it, and a rate of the key to have
 * room for one.
 */
function countOwn({ queue, position, holderCount, rate, firsts }: KeyFacts, worker: WorkerFacts | null): number {
  const first = firsts.find((first) => first.queue === queue && first.position < position);
  if (first === undefined) return 0;
  const taking = first.before - first.kept;
  const hasRoom = taking === 0 || (rate === null && holderCount + taking <= first.concurrency);
  return worker !== null && first.isReady && hasRoom ? taking : Infinity;
}

function passesKey(key: KeyFacts, facts: BlockerFacts, worker: WorkerFacts | null): boolean {
  if (key.isHolder) return true;
  const { holderCount, concurrency, rate } = key;
  return !isBehind(key, facts, worker) && countBefore(key, facts, worker) < concurrency - holderCount &&
    (rate === null || rate.opensAt <= facts.now);
}

/**
 * How many runs of other queues come before a run, and are taken by the same claim: then they hold the key. `Infinity` if
 * one of those before it is left: it holds up the run.
 */
function countRivals(
  { queue, position, holderCount, firsts }: KeyFacts,
  facts: BlockerFacts,
  worker: WorkerFacts | null,
) {
  if (worker === null) return 0;
  const rivals = firsts.filter((first) =>
    first.queue !== queue && first.position < position && first.isReady && counts(facts, first.queue) &&
    worker.queues.includes(first.queue) && limitsOf(facts, worker, { ...first, isFirst: true }).length === 0
  );
  const inOrder = rivals.toSorted((one, other) => one.position - other.position);
  let taken = 0;
  for (const { concurrency, before, kept } of inOrder) {
    if (before - kept > 1 || (before > kept && holderCount + taken >= concurrency)) return Infinity;
    taken += before - kept;
  }
  return taken;
}

/**
 * Whether a run of another queue comes first for the key: one that the key has no room for yet, or one that only other
 * workers can claim, unless its job holds it back.
 */
function isBehind({ queue, position, isHolder, firsts }: KeyFacts, facts: BlockerFacts, worker: WorkerFacts | null) {
  if (isHolder) return false;
  return firsts.some((first) =>
    first.queue !== queue && first.position < position && counts(facts, first.queue) &&
    (!first.isReady || ((worker === null || !worker.queues.includes(first.queue)) && !isHeldBack(facts, first)))
  );
}

/** Whether the runs of a queue hold up others: a live worker claims from it, and its job is not paused. */
function counts({ workers, now, paused }: BlockerFacts, queue: string): boolean {
  return knowing(liveWorkers(workers, now), queue).length > 0 &&
    !paused.some(({ jobName }) => jobName === jobNameOf(queue));
}

/** Whether the limits of its job hold back the first run of a queue in each live worker that knows it. */
function isHeldBack(facts: BlockerFacts, { queue, hasBegun }: FirstInQueue): boolean {
  const able = knowing(liveWorkers(facts.workers, facts.now), queue);
  return able.every((worker) => limitsOf(facts, worker, { queue, hasBegun, isFirst: true }).length > 0);
}

function limitBlockers(facts: BlockerFacts, worker: WorkerFacts): Blocker[] {
  return limitsOf(facts, worker, { queue: facts.queue, hasBegun: facts.run.startedAt !== null, isFirst: false });
}

/**
 * The limits of the job of a queue that hold up a run, with those before it that can be claimed; `isFirst`: no run of its
 * job comes before it.
 */
function limitsOf(
  { limits }: BlockerFacts,
  { id }: WorkerFacts,
  { queue, hasBegun, isFirst }: { queue: string; hasBegun: boolean; isFirst: boolean },
): Blocker[] {
  const limitOf = (queue: string) =>
    limits.find((limit) => limit.workerId === id && limit.queue === versionQueue(queue)) ?? null;
  const own = limitOf(queue);
  if (own === null) return [];
  const { inUse, concurrency: max, rate } = own;
  const runs = isFirst ? [] : own.ahead;
  const taken = takenBefore(runs, inUse, limitOf);
  const blockers: Blocker[] = [];
  if (max !== null && inUse + taken.executed >= max) {
    blockers.push({ kind: "limit", of: "job", inUse, max, ahead: sumOf(runs), rate: null });
  }
  if (rate !== null && !hasBegun && taken.started >= rate.allowed) {
    const { allowed, ...opening } = rate;
    blockers.push({
      kind: "limit",
      of: "job",
      inUse: rate.limit - allowed,
      max: rate.limit,
      ahead: sumOf(runs.filter(({ hasBegun }) => !hasBegun)),
      rate: opening,
    });
  }
  return blockers;
}

/**
 * How many runs a claim executes before it comes to a run of the same job, and how many of them start. Each version has
 * limits of its own, so one can be left that comes before another.
 */
function takenBefore(
  ahead: readonly RunsAhead[],
  inUse: number,
  limitOf: (queue: string) => LimitFacts | null,
): { executed: number; started: number } {
  let [executed, started] = [0, 0];
  for (const { queue, hasBegun, count } of ahead) {
    const { concurrency = null, rate = null } = limitOf(queue) ?? {};
    const isStart = rate !== null && !hasBegun;
    const room = concurrency === null ? Infinity : concurrency - inUse - executed;
    const starts = isStart ? rate.allowed - started : Infinity;
    const taken = Math.max(0, Math.min(count, room, starts));
    executed += taken;
    if (isStart) started += taken;
  }
  return { executed, started };
}

function sumOf(runs: readonly RunsAhead[]): number {
  return runs.reduce((sum, { count }) => sum + count, 0);
}

/** The slots of the workers that have the job; `null`: one is free for the run, or it is not known how many there are. */
function slotsOf({ workers, now, queue, readyBefore }: BlockerFacts): Blocker[] | null {
  const able = knowing(liveWorkers(workers, now), queue);
  if (able.some(({ concurrency }) => concurrency === null)) return null;
  const total = able.reduce((sum, { concurrency }) => sum + concurrency!, 0); // none is unknown
  const busy = able.reduce((sum, { leases }) => sum + leases, 0);
  return busy + readyBefore < total ? null : [{ kind: "slots", busy, total, ahead: readyBefore }];
}
