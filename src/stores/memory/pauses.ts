import { ConflictError, WaitExpiredError } from "../../model/error.ts";
import { isSameJson } from "../../values/json.ts";
import { isoTime } from "../../values/iso_time.ts";
import type { NewPause } from "../../store/pause_request.ts";
import { deadlineAt, type PauseRecord, type Signal } from "../../model/wait.ts";
import { earliest, type KeptPause, type KeptRun, nextRecordedNo } from "./records.ts";

/** Finds a pause that a run has already. */
export function findPause(run: KeptRun, { kind, name }: NewPause): KeptPause | undefined {
  return run.pauses.find((pause) => pause.kind === kind && pause.name === name);
}

/** Adds a pause to a run, with a fixed instant as its deadline; `seq` is its number among all pauses. */
export function preparePause(run: KeptRun, request: NewPause, seq: number, now: number): KeptPause {
  const { deadline, prepared, children: _, payloadSchema = null, ...identity } = request;
  const pause: KeptPause = {
    ...identity,
    seq,
    payloadSchema,
    children: null,
    preparedNo: prepared ? nextRecordedNo(run) : null,
    deadlineAt: deadlineAt(deadline, now),
    createdAt: now,
    suspendedAt: null,
    firstResumedAt: null,
    trace: null,
    state: { status: "pending" },
  };
  run.pauses.push(pause);
  return pause;
}

/** Commits the timeouts of a run's pauses whose deadline has passed. Returns whether there were any. */
export function commitDeadlines(run: KeptRun, now: number): boolean {
  const passed = run.pauses
    .filter(({ state, deadlineAt }) => state.status === "pending" && deadlineAt !== null && deadlineAt <= now)
    .sort((left, right) => left.deadlineAt! - right.deadlineAt!); // the filter leaves only those with a deadline
  for (const pause of passed) resolvePause(run, pause, { outcome: "timeout" }, pause.deadlineAt!); // the same
  return passed.length > 0;
}

type Unrecorded<T> = T extends { recordedNo: number } ? Omit<T, "recordedNo"> : never;

/** Ends a pause, and makes its run due if it waits on it. */
export function resolvePause(
  run: KeptRun,
  pause: KeptPause,
  by: Unrecorded<PauseRecord["resolution"]>,
  at: number,
): void {
  pause.state = { status: "resolved", resolvedAt: at, resolution: { ...by, recordedNo: nextRecordedNo(run) } };
  if (run.parking?.awaited.includes(pause)) run.parking.isWoken = true;
}

/** Whether a waiting run is due. */
export function isWoken({ parking }: KeptRun): boolean {
  return parking?.isWoken === true;
}

/** Whether a pending run could be claimed as far as it is concerned: it is neither delayed nor held. */
export function isQueued({ status, dueAt, hold, offeredTo }: KeptRun): boolean {
  return status === "pending" && dueAt === null && (hold === null || offeredTo !== null);
}

/** When a waiting run becomes due without a signal; `null` if it has no deadline, or is due already. */
export function wakesAt({ parking }: KeptRun): number | null {
  if (parking === null || parking.isWoken) return null;
  return earliest([parking.retryAt, ...parking.awaited.map(({ deadlineAt }) => deadlineAt)]);
}

/** Records on the ended pauses that a run had waited on that it resumes. */
export function noteResumption(run: KeptRun, now: number): void {
  for (const pause of run.parking?.awaited ?? []) {
    if (pause.state.status === "resolved") pause.firstResumedAt ??= now;
  }
}

/** Ends the pauses of a run that ends: those whose deadline has passed by timeout, the others as `status` says. */
export function closePauses(run: KeptRun, status: "cancelled" | "closed", now: number): void {
  commitDeadlines(run, now);
  for (const pause of run.pauses) {
    if (pause.state.status === "pending") pause.state = { status };
  }
}

/** Whether this signal ended a wait. */
export function isEndedBy({ state }: KeptPause, signal: Signal): boolean {
  return state.status === "resolved" && state.resolution.outcome === "signal" &&
    state.resolution.signalId === signal.signalId &&
    isSameJson(JSON.parse(state.resolution.payload), signal.payload);
}

/**
 * Checks that a wait can still be signalled.
 *
 * @throws {WaitExpiredError} Its deadline passed first.
 * @throws {ConflictError} Another signal came first, or it is cancelled or closed.
 */
export function checkPending({ id, state }: KeptPause): void {
  if (state.status === "pending") return;
  if (state.status !== "resolved") throw new ConflictError(`Cannot signal wait "${id}": it is ${state.status}`);
  if (state.resolution.outcome === "signal") {
    throw new ConflictError(`Cannot signal wait "${id}": another signal came first`);
  }
  throw new WaitExpiredError(`Cannot signal wait "${id}": its deadline passed at ${isoTime(state.resolvedAt)}`);
}
