import { LeaseLostError, NotFoundError } from "../../../model/error.ts";
import type { Lease } from "../../../model/lease.ts";
import type { RunIdentity } from "../../../model/run.ts";
import type { NewPause, PauseRequest, PauseResult } from "../../../store/pause_request.ts";
import type { OriginText } from "../../../model/origin.ts";
import { nextDeadlineInMs, type Signal, type SignalOutcome } from "../../../model/wait.ts";
import { addChildren, findCreated, lacksChildren } from "../children.ts";
import { toIdentity, toPauseRecord, toWait } from "../copies.ts";
import {
  checkPending,
  commitDeadlines,
  endReceives,
  findPause,
  hasClosedInbox,
  isEndedBy,
  isQueued,
  isWoken,
  resolvePause,
  takeMessages,
} from "../pauses.ts";
import { hadLease, type KeptPause, type KeptRun } from "../records.ts";
import type { MemoryRuns } from "../runs.ts";
import { cancelOrphan } from "./timers.ts";

/** Prepares pauses and, if requested, parks the run. See `Store.pause()`. */
export function pauseRun(runs: MemoryRuns, lease: Lease, request: PauseRequest, now: number): PauseResult {
  const { park, retryAt } = request;
  if (park && request.pauses.length === 0 && retryAt === null) {
    throw new TypeError(`Cannot park run "${lease.runId}": it has nothing to wait for`);
  }
  const repeated = findParked(runs, lease, request);
  if (repeated !== null) return toPauseResult(runs, request, true, repeated, now);

  const run = runs.getUnder(lease);
  if (request.pauses.some((pause) => lacksChildren(run, pause))) throw new LeaseLostError(lease);
  runs.noteReports(run, request.reports);
  const cancelled: RunIdentity[] = [];
  const pauses = request.pauses.map((pause) => prepare(runs, run, pause, cancelled, now));
  runs.journal.putTriggersFirst();
  // What is there is taken before a deadline is looked at: a timeout of 0 means "what is there now".
  for (const pause of pauses) takeMessages(run, pause, now);
  commitDeadlines(run, now);
  if (hasClosedInbox(run)) endReceives(run, now);
  const isOver = pauses.some(({ state }) => state.status === "resolved") || (retryAt !== null && retryAt <= now);
  const parked = park && !isOver;
  if (parked) {
    const awaited = pauses.filter(({ kind }) => kind !== "patch");
    for (const pause of awaited) pause.suspendedAt ??= now;
    runs.park(run, awaited, retryAt, now);
  }
  runs.touch(run, now);
  return { ...toPauseResult(runs, request, parked, pauses, now), cancelled };
}

/** The pauses of an earlier call with the same request that has parked the run, or `null`. */
function findParked(runs: MemoryRuns, lease: Lease, request: PauseRequest): KeptPause[] | null {
  const run = runs.get(lease.runId);
  if (!request.park || run?.status !== "waiting" || !hadLease(run, lease)) return null;
  const pauses = request.pauses.map((pause) => findPause(run, pause));
  return pauses.every((pause) => pause !== undefined) ? pauses : null;
}

function prepare(
  runs: MemoryRuns,
  run: KeptRun,
  request: NewPause,
  cancelled: RunIdentity[],
  now: number,
): KeptPause {
  const pause = runs.prepare(run, request, now);
  if (request.children !== null) {
    addChildren(run, pause, request.children, {
      get: (runId) => runs.get(runId),
      findOpenRetry: (retry) => runs.findOpenRetry(retry),
      cancel: (orphan) => cancelled.push(cancelOrphan(runs, orphan, now)),
      add: (child, parent) => runs.add(child, now, parent),
    }, now);
  }
  return pause;
}

function toPauseResult(
  runs: MemoryRuns,
  request: PauseRequest,
  parked: boolean,
  pauses: readonly KeptPause[],
  now: number,
): PauseResult {
  const records = pauses.map(toPauseRecord);
  const created = pauses.flatMap((pause, at) => {
    const { children } = request.pauses[at]!; // one pause for each request
    return children === null ? [] : findCreated(pause, children, (runId) => runs.get(runId));
  });
  return { parked, pauses: records, created, cancelled: [], nextDeadlineInMs: nextDeadlineInMs(records, now) };
}

/** Ends a wait by a signal. See `Store.signal()`. */
export function signalWait(
  runs: MemoryRuns,
  waitId: string,
  signal: Signal,
  trace: OriginText | null,
  now: number,
): SignalOutcome {
  const found = runs.findWait(waitId);
  if (found === undefined) throw new NotFoundError(`There is no wait "${waitId}"`);
  const { run, pause: wait } = found;
  if (isEndedBy(wait, signal)) {
    // The receipt of the first acceptance: the run had not resumed by then.
    const receipt = { ...toWait(run.id, wait), firstResumedAt: null };
    return { wait: receipt, disposition: "duplicate", run: toIdentity(run) };
  }
  checkPending(wait);
  const payload = JSON.stringify(signal.payload);
  const wasDue = isWoken(run) || isQueued(run);
  // Deadlines that passed before the signal are committed, even if one of them refuses the signal.
  if (commitDeadlines(run, now)) runs.noteResolution(run, wasDue, now);
  checkPending(wait);
  wait.trace = trace;
  resolvePause(run, wait, { outcome: "signal", payload, signalId: signal.signalId }, now);
  runs.noteResolution(run, wasDue, now);
  return { wait: toWait(run.id, wait), disposition: "accepted", run: toIdentity(run) };
}
