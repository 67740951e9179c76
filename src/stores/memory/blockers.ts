import { failureText } from "../../model/failure.ts";
import type { Rate } from "../../model/flow.ts";
import type { BlockingRun, UnreadName } from "../../store/blockers.ts";
import type { BlockerFacts, KeyFacts, LimitFacts, WorkerFacts } from "../operate/blocker_facts.ts";
import {
  countAhead,
  hasQueue,
  isLimitMeant,
  limitsOf,
  liveWorkers,
  MAX_AHEAD,
  versionQueue,
} from "../operate/blocker_facts.ts";
import { isAloneQueue } from "../queue_name.ts";
import { toNamedWorker } from "../record_rules.ts";
import { MAX_HOLDERS } from "../rules.ts";
import { isOrphan } from "./children.ts";
import type { ClaimState } from "./writes/claim.ts";
import { DueRuns } from "./flow/due_runs.ts";
import { queuesOf } from "./flow/gates.ts";
import { unreadOf, wakesAt } from "./pauses.ts";
import { jobScope, keyScope } from "./flow/rates.ts";
import { countLeases } from "./operate/numbers.ts";
import { byIndex, type KeptPause, type KeptRun, queueOf } from "./records.ts";
import { toRunText } from "./copies.ts";

/** Reads what may hold up a run. See `Store.getBlockers()`. */
export function readBlockerFacts(state: ClaimState, run: KeptRun, now: number): BlockerFacts {
  const due = new DueRuns(state.runs, state.rates);
  const workers = toWorkerFacts(state);
  const queue = queueOf(run);
  const live = liveWorkers(workers, now);
  const able = live.filter((worker) => hasQueue(worker, queue));
  const key = toKeyFacts(state, due, run, now);
  const queues = new Set([queue, ...key?.firsts.map((first) => first.queue) ?? []].map(versionQueue));
  const limits = live.flatMap((worker) => toLimits(state, due, run, { worker, queues }, now));
  const position = due.positionOf(run);
  const isRateClosed = limits.some((limit) => limit.queue === versionQueue(queue) && limit.rate?.allowed === 0);
  const group = groupOf(due, run, isRateClosed, now);
  return {
    run: toRunText(run),
    now,
    queue,
    position,
    leasedAt: run.lease?.since ?? null,
    endedParentId: isOrphan(run) ? run.parent!.run.id : null, // an orphan has a parent
    isDue: isDueNow(run, now),
    delayedUntil: run.dueAt,
    abandonments: run.abandonments,
    dueSince: run.parking !== null ? wakesAt(run) ?? run.updatedAt : run.startAt ?? run.createdAt,
    awaited: toAwaited(run),
    unread: run.completedAt === null ? [] : toUnread(run),
    paused: [...state.paused.values()],
    workers,
    key,
    limits,
    readyBefore: countReady(state, due, run, able, now) + Math.min(group.length, MAX_AHEAD),
  };
}

function toWorkerFacts({ runs, workers }: ClaimState): WorkerFacts[] {
  const leases = countLeases(runs.open);
  return [...workers].sort(([one], [other]) => one < other ? -1 : 1).map((
    [id, { jobs, leaseMs, seenAt, details }],
  ) => ({
    id,
    ...toNamedWorker(details),
    lastSeenAt: seenAt,
    leaseMs,
    queues: jobs.flatMap(queuesOf).filter((queue) => !isAloneQueue(queue)),
    limits: limitsOf(jobs),
    leases: leases.get(id) ?? 0,
  }));
}

/** Whether a run is due, or becomes so with the next claim. */
function isDueNow(run: KeptRun, now: number): boolean {
  const { status, hold, offeredTo, dueAt, parking } = run;
  if (hold !== null && offeredTo === null) return false;
  if (status === "pending") return (dueAt ?? 0) <= now;
  return parking !== null && (parking.isWoken || (wakesAt(run) ?? Infinity) <= now);
}

function toAwaited(run: KeptRun): BlockerFacts["awaited"] {
  const { parking } = run;
  if (parking === null) return [];
  const pauses = run.pauses.filter((pause) => parking.awaited.includes(pause) && pause.state.status === "pending");
  const retries = parking.retryAt === null
    ? []
    : byIndex(run.steps).flatMap(({ name, attempts, result }) =>
      result.status === "retrying" && result.retryAt >= parking.retryAt! // the job has gone on without the others
        ? [{ kind: "retry" as const, stepName: name, attempts, error: failureText(result.failure), at: result.retryAt }]
        : []
    );
  return [...pauses.flatMap((pause) => toPauseBlocker(run, pause)), ...retries];
}

function toUnread(run: KeptRun): UnreadName[] {
  const names = new Map<string, number>();
  for (const { name } of unreadOf(run)) names.set(name, (names.get(name) ?? 0) + 1);
  return [...names].map(([name, count]) => ({ name, count }));
}

function toPauseBlocker(run: KeptRun, pause: KeptPause): BlockerFacts["awaited"] {
  const { kind, id, name, deadlineAt, createdAt, children, receive } = pause;
  if (receive !== null) {
    const others = unreadOf(run).length; // it would have taken any of its own
    return [{ kind: "message", name, names: receive.names, since: createdAt, deadlineAt, others }];
  }
  if (kind === "wait") return [{ kind: "signal", waitId: id, name, deadlineAt }];
  if (kind === "sleep") return [{ kind: "sleep", name, until: deadlineAt! }]; // a sleep has a deadline
  const child = children?.members.map((member) => member.child).find(({ completedAt }) => completedAt === null);
  if (child === undefined || children === null) return [];
  return [{ kind: "child", child: toBlockingRun(child), open: children.unfinished }];
}

function toBlockingRun({ id, jobName, status }: KeptRun): BlockingRun {
  return { runId: id, jobName, status };
}

function toKeyFacts({ runs, rates }: ClaimState, due: DueRuns, run: KeptRun, now: number): KeyFacts | null {
  const { concurrencyKey: key, startedAt, flow: { keyConcurrency, keyRate } } = run;
  if (key === null) return null;
  const position = due.positionOf(run);
  const others = runs.keys.othersOf(run);
  return {
    queue: queueOf(run),
    position,
    isHolder: runs.keys.isHeldBy(run),
    holders: others.slice(0, MAX_HOLDERS).map(({ runId }) => {
      const holder = runs.get(runId);
      const ghost = runs.keys.getGhost(runId);
      if (holder === undefined) {
        return { runId, jobName: ghost!.jobName, status: "cancelled", since: now, workerId: null }; // it was deleted
      }
      const since = holder.lease?.since ?? holder.parking?.since ?? holder.completedAt ?? holder.updatedAt;
      return { ...toBlockingRun(holder), since, workerId: holder.lease?.owner ?? null };
    }),
    holderCount: others.length,
    concurrency: keyConcurrency,
    rate: keyRate === null || startedAt !== null
      ? null
      : openingOf(rates.opensAt(keyScope(key), keyRate), keyRate, now),
    firsts: [...due.lineOfKey(run)].flatMap(([queue, line]) => {
      const [first] = line.filter((other) => other !== run);
      if (first === undefined) return [];
      const before = line.filter((other) => other !== run && due.positionOf(other) < position);
      const isReady = due.keyOpensAt(first) <= now;
      const hasBegun = first.startedAt !== null;
      const { keyConcurrency: concurrency } = first.flow;
      return [{
        queue,
        position: due.positionOf(first),
        isReady,
        hasBegun,
        concurrency,
        before: Math.min(before.length, MAX_AHEAD),
        kept: before.filter((other) => runs.keys.isHeldBy(other)).length,
      }];
    }),
  };
}

/** A rate, and when it opens. A start in the future is one of now. */
function openingOf(opensAt: number, { limit, period }: Rate, now: number): Rate & { opensAt: number } {
  return { limit, period, opensAt: Math.min(opensAt, now + period) };
}

/** What the limits of a worker for some queues allow. */
function toLimits(
  { runs, rates, paused }: ClaimState,
  due: DueRuns,
  run: KeptRun,
  { worker, queues }: { worker: WorkerFacts; queues: ReadonlySet<string> },
  now: number,
): LimitFacts[] {
  const executed = [...runs.open.filter(({ lease }) => lease !== null), ...runs.keys.ghosts];
  const meant = worker.limits.filter((limit) => isLimitMeant(limit, queueOf(run), queues));
  return meant.map(({ queue, names, concurrency, rate }) => {
    const ahead = due.inOrder.filter((other) =>
      other !== run && due.positionOf(other) < due.positionOf(run) && names.includes(other.jobName) &&
      !paused.has(other.jobName) && worker.queues.includes(queueOf(other)) && due.keyOpensAt(other) <= now
    );
    return {
      workerId: worker.id,
      queue,
      inUse: executed.filter(({ jobName }) => names.includes(jobName)).length,
      concurrency,
      rate: rate === null ? null : { ...rate, ...rates.roomOf(jobScope(names[0]), rate, now) },
      ahead: countAhead(ahead.map((other) => ({
        queue: queueOf(other),
        position: due.positionOf(other),
        hasBegun: other.startedAt !== null,
      }))),
    };
  });
}

/** The runs of the queue and the fairness key of a run that have passed their concurrency keys and come before it. */
function groupOf(due: DueRuns, run: KeptRun, isRateClosed: boolean, now: number): KeptRun[] {
  const { flow: { fairnessKey }, startedAt } = run;
  if (fairnessKey === null) return [];
  return due.inOrder.filter((other) =>
    other !== run && other.flow.fairnessKey === fairnessKey && queueOf(other) === queueOf(run) &&
    due.positionOf(other) < due.positionOf(run) && due.keyOpensAt(other) <= now &&
    (!isRateClosed || startedAt === null || other.startedAt !== null)
  );
}

/**
 * How many runs come before one in the queues of some workers: those without a fairness key, and of each fairness key the
 * first one. Those of its own fairness key do not count.
 */
function countReady(
  { paused }: ClaimState,
  due: DueRuns,
  run: KeptRun,
  able: readonly WorkerFacts[],
  now: number,
): number {
  const queues = new Set(able.flatMap((worker) => worker.queues));
  const groups = new Set([JSON.stringify([queueOf(run), run.flow.fairnessKey])]);
  const position = due.positionOf(run);
  let count = 0;
  for (const other of due.inOrder) {
    if (due.positionOf(other) >= position || count >= MAX_AHEAD) break;
    const queue = queueOf(other);
    if (other === run || !queues.has(queue) || paused.has(other.jobName) || due.keyOpensAt(other) > now) continue;
    const group = JSON.stringify([queue, other.flow.fairnessKey]);
    if (other.flow.fairnessKey !== null && groups.has(group)) continue;
    groups.add(group);
    count += 1;
  }
  return count;
}
