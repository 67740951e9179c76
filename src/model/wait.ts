import { ValidationError } from "./error.ts";
import { encode, isSameJson, type Json, type JsonText, parseValue, type Stored } from "../values/json.ts";
import { checkName } from "../values/name.ts";
import { kindOf } from "../values/unknown_values.ts";
import type { Failure } from "./failure.ts";
import type { MessageRecord } from "./message.ts";
import type { RunIdentity, TerminalStatus } from "./run.ts";
import type { OriginText } from "./origin.ts";

/** The status of a wait: `cancelled` with its run, `closed` because its run ended first. */
export type WaitStatus = "pending" | "resolved" | "cancelled" | "closed";

/** A named pause of a run that a signal or a deadline ends. Times are ISO 8601 in UTC. */
export interface Wait {
  /** A UUIDv7. Never a credential. */
  id: string;
  /** The run that it belongs to. */
  runId: string;
  /** Its name, with its occurrence from the second on. */
  name: string;
  /** Information from the job for those who may signal. */
  metadata: Json;
  /** Its status. */
  status: WaitStatus;
  /** What resolved it. */
  outcome: "signal" | "timeout" | null;
  /** The payload of the signal; `null` is a valid one. */
  payload: Json;
  /** The id of the signal. */
  signalId: string | null;
  /** Who signalled; `null`: no signal ended it, or nobody said so. */
  signalledBy: string | null;
  /** When it was prepared. */
  createdAt: string;
  /** Signals are accepted strictly before this instant. It never changes. */
  deadlineAt: string | null;
  /** When the run first paused on it. */
  suspendedAt: string | null;
  /** When the signal was accepted, or the deadline passed. */
  resolvedAt: string | null;
  /** When the run first resumed after that. */
  firstResumedAt: string | null;
  /** The JSON Schema that the payload of a signal has to fit; left out if the job gives none. */
  payloadSchema?: Json;
}

/** Up to how many open waits are counted. */
export const MAX_COUNTED_WAITS = 1_000;

/** The fields of a wait that hold JSON values. */
export const WAIT_VALUES = ["metadata", "payload"] as const;

/** A wait with its values as stored JSON. */
export type WaitText = Stored<Wait, "metadata" | "payload">;

/** Parses the values of a stored wait. */
export function parseWait(wait: WaitText): Wait {
  return { ...wait, metadata: parseValue(wait.metadata), payload: parseValue(wait.payload) };
}

/** What ended a wait. A timeout is an outcome of its own, so that a signal may carry `null`. */
export type WaitResult<Payload = Json> =
  | { outcome: "signal"; payload: Payload; signalId: string }
  | { outcome: "timeout" };

/** A message from outside that ends a wait. */
export interface Signal {
  /** Identifies a repeated signal: 1 to 255 characters. */
  signalId: string;
  /** The body of the signal, which the job receives; `null` is a valid one. */
  payload: Json;
}

/**
 * Checks a signal and copies its payload, so that the caller cannot change it later.
 *
 * @throws {ValidationError} Its id is not a string of 1 to 255 characters, is only white space, or the payload is
 * missing.
 * @throws {SerializationError} The payload cannot be stored as JSON.
 */
export function checkSignal(given: Signal, maxBytes: number): Signal {
  if (typeof given !== "object" || given === null) {
    throw new TypeError(`A signal is an object with signalId and payload, not ${kindOf(given)}`);
  }
  const { signalId, payload } = given;
  checkName(signalId, "signalId");
  if (signalId.trim() === "") throw new ValidationError("signalId must have a character that is not white space");
  const text = encode(payload, { subject: "The payload", maxBytes });
  if (text === null) throw new ValidationError("A signal must have a payload, which may be null");
  return { signalId, payload: JSON.parse(text) };
}

/** Whether this signal ended the wait: its id and its payload are equal. */
export function isEndedBy(wait: Pick<Wait, "outcome" | "signalId" | "payload">, signal: Signal): boolean {
  return wait.outcome === "signal" && wait.signalId === signal.signalId && isSameJson(wait.payload, signal.payload);
}

/** The answer to a signal. For a `duplicate` it has the wait's state right after the signal was first accepted. */
export interface SignalReceipt {
  /** The wait as the signal left it. */
  wait: Wait;
  /** Whether this call was the first with its `signalId`. */
  disposition: "accepted" | "duplicate";
}

/**
 * What a run can pause on. Only waits take signals and are listed among the waits. A `receive` waits for messages. A `patch` is no pause: it is prepared,
 * never waited for, and its `metadata` is the answer of `step.patch()`.
 */
export type PauseKind = "wait" | "sleep" | "children" | "receive" | "patch";

/** When a pause ends without a signal: a time after its preparation, at an instant, or never (`null`). */
export type Deadline = { afterMs: number } | { at: number } | null;

/**
 * The instant at which a pause that is prepared `now` ends without a signal. Fractions of a millisecond are rounded
 * up, so it never ends early.
 */
export function deadlineAt(deadline: Deadline, now: number): number | null {
  if (deadline === null) return null;
  return Math.ceil("at" in deadline ? deadline.at : now + deadline.afterMs);
}

/** How long until the first deadline of pauses that are not over, in milliseconds; `null` if they have none. */
export function nextDeadlineInMs(pauses: readonly PauseRecord[], now: number): number | null {
  const deadlines = pauses.flatMap(({ deadlineAt, resolution }) => resolution === null ? deadlineAt ?? [] : []);
  return deadlines.length === 0 ? null : Math.max(0, Math.min(...deadlines) - now);
}

/** How a child run ended. */
export interface ChildResult {
  /** The child. */
  run: RunIdentity;
  /** How it ended. */
  status: TerminalStatus;
  /** What its function returned, if it completed. */
  output: JsonText | null;
  /** Why it failed, if it did. */
  failure: Failure | null;
  /** The step at which it failed, if it was one. */
  failedStepName: string | null;
}

/** A pause, as a replay needs it. */
export interface PauseRecord {
  /** A UUIDv7. */
  id: string;
  /** What it waits for. */
  kind: PauseKind;
  /** Its name, with its occurrence. */
  name: string;
  /** How many children were added to it so far; 0 for a wait or a sleep. */
  childCount: number;
  /** How many children it has when all are added; 0 for a wait or a sleep. */
  childTotal: number;
  /** How its only child ended; `null` while it is open, or if it has several, which `readChildren()` reads. */
  child: ChildResult | null;
  /** Information from the job for those who may signal. */
  metadata: JsonText | null;
  /** When it ends without a signal, by the store's clock. */
  deadlineAt: number | null;
  /** When it was prepared, by the store's clock. */
  createdAt: number;
  /** The position of its preparation among all records of the run, if it was `prepared`. */
  preparedNo: number | null;
  /**
   * Of a wait that timed out: when the run first resumed after that, by the store's clock. Left out: it has not, or it
   * had not parked on the wait.
   */
  firstResumedAt?: number;
  /** Of a receive that messages ended: these, in their order. */
  messages?: readonly MessageRecord[];
  /** What ended it, and its position among all records of the run; `null` while it is open. */
  resolution:
    | { outcome: "signal"; payload: JsonText; signalId: string; recordedNo: number }
    | { outcome: "timeout"; recordedNo: number }
    | { outcome: "children"; recordedNo: number }
    | { outcome: "messages"; recordedNo: number }
    | null;
}

/** A pause that a run had parked on, that has ended, and after which the run has resumed. */
export interface ResumedPause extends Pick<PauseRecord, "id" | "kind" | "name"> {
  /** What ended it. */
  outcome: NonNullable<PauseRecord["resolution"]>["outcome"];
  /** When the run first paused on it, by the store's clock. */
  suspendedAt: number;
  /** When it ended, by the store's clock. */
  resolvedAt: number;
  /** When the run first resumed after that: the instant of that claim, by the store's clock. */
  firstResumedAt: number;
  /** The trace of its signal, or of the first message; `null`: none ended it, or it had none. */
  trace: OriginText | null;
}

/** A receipt, with the run of the wait. */
export interface SignalOutcome extends SignalReceipt {
  /** The run of the wait. */
  run: RunIdentity;
}

/** A wait as it is shown over HTTP: who signalled is left out while nobody said so. */
export type ClientWait = Omit<Wait, "signalledBy"> & { signalledBy?: string };

/** The answer to a signal over HTTP. */
export type ClientSignalReceipt = Omit<SignalReceipt, "wait"> & { wait: ClientWait };

/** Shows a wait over HTTP. */
export function toClientWait<W extends Pick<Wait, "signalledBy">>(
  { signalledBy, ...wait }: W,
): Omit<W, "signalledBy"> & Pick<ClientWait, "signalledBy"> {
  return signalledBy === null ? wait : { ...wait, signalledBy };
}
