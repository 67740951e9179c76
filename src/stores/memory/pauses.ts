import { ConflictError, WaitExpiredError } from "../../model/error.ts";
import { isSameJson } from "../../values/json.ts";
import { isoTime } from "../../values/iso_time.ts";
import type { NewPause } from "../../store/pause_request.ts";
import { deadlineAt, type PauseRecord, type Signal } from "../../model/wait.ts";
import type { Receive } from "../../model/message.ts";
import { earliest, type KeptMessage, type KeptPause, type KeptRun, nextRecordedNo } from "./records.ts";

/** Finds a pause that a run has already. */
export function findPause(run: KeptRun, { kind, name }: NewPause): KeptPause | undefined {
  return run.pauses.find((pause) => pause.kind === kind && pause.name === name);
}

/** Adds a pause to a run, with a fixed instant as its deadline; `seq` is its number among all pauses. */
export function preparePause(run: KeptRun, request: NewPause, seq: number, now: number): KeptPause {
  const { deadline, prepared, children: _, payloadSchema = null, receive = null, ...identity } = request;
  const pause: KeptPause = {
    ...identity,
    seq,
    payloadSchema,
    children: null,
    receive,
    taken: [],
    hasClosedInbox: false,
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
  for (const pause of passed) {
    if (pause.state.status !== "pending") continue; // an earlier one has closed the inbox
    resolvePause(run, pause, { outcome: "timeout" }, pause.deadlineAt!); // the same
  }
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
  if (!closesInbox(run, pause, by.outcome)) return;
  pause.hasClosedInbox = true;
  endReceives(run, at);
}

/** Whether the end of a pause closes the inbox of its run. */
function closesInbox(run: KeptRun, { receive }: KeptPause, outcome: string): boolean {
  if (receive === null || receive.close === null || hasClosedInbox(run)) return false;
  return outcome === "timeout" || (receive.close === "always" && unreadOf(run).length === 0);
}

/** Whether a run has closed its inbox: it accepts no more messages. */
export function hasClosedInbox({ pauses }: KeptRun): boolean {
  return pauses.some(({ hasClosedInbox }) => hasClosedInbox);
}

/** Ends the open receives of a run that accepts no more messages, by a timeout: nothing comes any more. */
export function endReceives(run: KeptRun, at: number): void {
  for (const pause of run.pauses) {
    if (pause.kind === "receive" && pause.state.status === "pending") {
      resolvePause(run, pause, { outcome: "timeout" }, at);
    }
  }
}

/** The unread messages of a run that a receive takes, oldest first; without one, all of them. */
export function unreadOf({ messages }: KeptRun, receive?: Receive): KeptMessage[] {
  return [...messages.values()].filter(({ takenBy, name }) =>
    takenBy === null && (receive === undefined || receive.names.includes(name))
  );
}

/** Gives an open receive the unread messages that it takes, and ends it if there are any. */
export function takeMessages(run: KeptRun, pause: KeptPause, now: number): void {
  const { receive, state } = pause;
  if (receive === null || state.status !== "pending") return;
  const taken = unreadOf(run, receive).slice(0, receive.max);
  if (taken.length === 0) return;
  for (const message of taken) message.takenBy = pause;
  pause.taken = taken;
  pause.trace = taken[0]!.trace; // there is one
  resolvePause(run, pause, { outcome: "messages" }, now);
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
