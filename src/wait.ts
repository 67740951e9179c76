import { ValidationError } from "./error.ts";
import { encode, isSameJson, type Json, type JsonText, parseValue, type Stored } from "./json.ts";
import { checkName } from "./name.ts";

/** How a wait stands: `cancelled` with its run, `closed` because its run ended first. */
export type WaitStatus = "pending" | "resolved" | "cancelled" | "closed";

/** A named pause of a run that a signal or a deadline ends. Times are ISO 8601 in UTC. */
export interface Wait {
  /** A UUIDv7. Never a credential. */
  id: string;
  /** The run that it is a part of. */
  runId: string;
  /** Its name, with its occurrence from the second on. */
  name: string;
  /** What the job tells those who may signal. */
  metadata: Json;
  /** How it stands. */
  status: WaitStatus;
  /** What resolved it. */
  outcome: "signal" | "timeout" | null;
  /** The payload of the signal; `null` is a valid one. */
  payload: Json;
  /** The id of the signal. */
  signalId: string | null;
  /** When it was prepared. */
  createdAt: string;
  /** Signals count strictly before this instant. It never moves. */
  deadlineAt: string | null;
  /** When the run first paused on it. */
  suspendedAt: string | null;
  /** When the signal came, or the deadline. */
  resolvedAt: string | null;
  /** When a worker first took the run up again after that. */
  firstResumedAt: string | null;
}

/** The fields of a wait that can have any value, of any size. */
export const WAIT_VALUES = ["metadata", "payload"] as const;

/** A wait whose values are as they are stored. */
export type WaitText = Stored<Wait, "metadata" | "payload">;

/** A wait with its values. */
export function parseWait(wait: WaitText): Wait {
  return { ...wait, metadata: parseValue(wait.metadata), payload: parseValue(wait.payload) };
}

/** What ended a wait. A timeout is an outcome of its own, so that a signal may carry `null`. */
export type WaitResult<Payload = Json> =
  | { outcome: "signal"; payload: Payload; signalId: string }
  | { outcome: "timeout" };

/** A message from outside that ends a wait. */
export interface Signal {
  /** Makes a repeated signal recognisable: 1 to 255 characters. */
  signalId: string;
  /** What the job receives. */
  payload: Json;
}

/**
 * Checks a signal and copies its payload, so that nobody can change it later.
 *
 * @throws {ValidationError} Its id is not a text of 1 to 255 characters with one that is not white space, or it has no payload.
 * @throws {SerializationError} The payload cannot be kept as JSON.
 */
export function checkSignal({ signalId, payload }: Signal, maxBytes: number): Signal {
  checkName(signalId, "signalId");
  if (signalId.trim() === "") throw new ValidationError("signalId must have a character that is not white space");
  const text = encode(payload, { subject: "The payload", maxBytes });
  if (text === null) throw new ValidationError("A signal must have a payload; null is one");
  return { signalId, payload: JSON.parse(text) };
}

/** Whether a wait was ended by this very signal, told by its id and its payload. */
export function isEndedBy(wait: Pick<Wait, "outcome" | "signalId" | "payload">, signal: Signal): boolean {
  return wait.outcome === "signal" && wait.signalId === signal.signalId && isSameJson(wait.payload, signal.payload);
}

/** The answer to a signal: a `duplicate` gets the wait as it was when the signal was first accepted. */
export interface SignalReceipt {
  /** The wait as the signal left it. */
  wait: Wait;
  /** Whether this call was the first with its `signalId`. */
  disposition: "accepted" | "duplicate";
}

/** What a run can pause on. A sleep is ended by time alone and is not shown among the waits. */
export type PauseKind = "wait" | "sleep";

/** When a pause ends by itself: so long after it was prepared, at an instant, or never (`null`). */
export type Deadline = { afterMs: number } | { at: number } | null;

/** The instant at which a pause that is prepared `now` ends by itself. Never early: parts of a millisecond count up. */
export function deadlineAt(deadline: Deadline, now: number): number | null {
  if (deadline === null) return null;
  return Math.ceil("at" in deadline ? deadline.at : now + deadline.afterMs);
}

/** How long until the first deadline of pauses that are not over, in milliseconds; `null` if they have none. */
export function nextDeadlineInMs(pauses: readonly PauseRecord[], now: number): number | null {
  const deadlines = pauses.flatMap(({ deadlineAt, resolution }) => resolution === null ? deadlineAt ?? [] : []);
  return deadlines.length === 0 ? null : Math.max(0, Math.min(...deadlines) - now);
}

/** A pause that a worker asks for. One of this kind and name that the run has already is kept as it is. */
export interface NewPause {
  /** A UUIDv7. */
  id: string;
  /** A wait or a sleep: they count their names separately. */
  kind: PauseKind;
  /** Its name, with its occurrence. */
  name: string;
  /** When it ends by itself. */
  deadline: Deadline;
  /** What the job tells those who may signal. */
  metadata: JsonText | null;
  /** Whether the job is given it without pausing on it: then that has its place in the order of what is recorded. */
  prepared: boolean;
}

/** A pause, as a replay needs it. */
export interface PauseRecord {
  /** A UUIDv7. */
  id: string;
  /** A wait or a sleep. */
  kind: PauseKind;
  /** Its name, with its occurrence. */
  name: string;
  /** What the job tells those who may signal. */
  metadata: JsonText | null;
  /** When it ends by itself: an instant of the store's clock. */
  deadlineAt: number | null;
  /** When it was prepared: an instant of the store's clock. */
  createdAt: number;
  /** The place of its preparation among everything that was recorded in the run, if it was `prepared`. */
  preparedNo: number | null;
  /** What ended it, and its place among everything that was recorded in the run; `null` while it lasts. */
  resolution:
    | { outcome: "signal"; payload: JsonText; signalId: string; recordedNo: number }
    | { outcome: "timeout"; recordedNo: number }
    | null;
}
