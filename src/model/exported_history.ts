import { ValidationError } from "./error.ts";
import type { Failure } from "./failure.ts";
import type { RecordName } from "./hold.ts";
import type { ScheduleSlot } from "./job/step_calls.ts";
import type { Json } from "../values/json.ts";
import { kindOf, propertyOf } from "../values/unknown_values.ts";
import type { RunStatus, TerminalStatus } from "./run.ts";

/**
 * The history of a run, as `Engine.exportHistory()` makes it and `replay()` takes it: all that a replay needs. It is
 * JSON. A value that is `undefined` is left out; `null` stays.
 */
export interface ExportedHistory {
  /** The version of this format. */
  format: 1;
  /** The id of the run. */
  runId: string;
  /** The name of its job. */
  jobName: string;
  /** The version of the job that triggered it. */
  version: number;
  /** Its status. */
  status: RunStatus;
  /** The input as given to the trigger. */
  payload?: Json;
  /** The input that the job's function receives. */
  input?: Json;
  /** Identifies the schema that has parsed the input; left out: nothing does. */
  schemaPrint?: string;
  /** Who triggered it; left out: nobody said so, or the history is redacted. So it is with all that acted. */
  triggeredBy?: string;
  /** Who cancelled it. */
  cancelledBy?: string;
  /** The slot of its schedule: ISO 8601 in UTC. */
  slotAt?: string;
  /** The same slot with its zone. */
  slot?: ScheduleSlot;
  /** What it has recorded, in the order of `no`; what has not ended comes last. */
  records: HistoryRecord[];
  /** What a retry has taken over from the run that it retries; left out: it is no retry from the failure. */
  copied?: {
    /** Records up to this `no` were taken over. */
    upTo: number;
    /** What the earlier runs had begun and not completed. */
    unfinished: RecordName[];
    /** The steps that were undone, with the run that did; left out: none. */
    undone?: { readonly [stepName: string]: string };
  };
  /** What the job's function returned, if the run has completed. */
  output?: Json;
  /** What it threw, if the run has failed. */
  error?: HistoryFailure;
}

/** Something that a run has recorded. */
export type HistoryRecord = StepHistory | PauseHistory | ChildrenHistory | ReceiveHistory | PatchHistory;

/** The name of a record. */
export interface HistoryName {
  /** The name, without its occurrence. */
  name: string;
  /** 1 for the first use of the name in the run, 2 for the second. */
  occurrence: number;
}

/** A recorded step. */
export interface StepHistory extends HistoryName {
  /** Tells records apart. */
  kind: "step";
  /** Its position among all records of the run: a replay delivers results in this order. */
  no: number;
  /** How the last attempt ended. After `retrying` another one follows. */
  status: "completed" | "failed" | "retrying";
  /** How many attempts have ended. */
  attempts: number;
  /** What its function returned. */
  result?: Json;
  /** What it threw in the last attempt. */
  error?: HistoryFailure;
}

/** A recorded wait or sleep. */
export interface PauseHistory extends HistoryName {
  /** Tells records apart. */
  kind: "wait" | "sleep";
  /** The id of the wait, which the job may have handed out. */
  id: string;
  /** The position of its end among all records; `null`: it has not ended. */
  no: number | null;
  /** The position of its preparation by `step.prepareWait()`; `null`: it was not prepared. */
  preparedNo: number | null;
  /** What ended it; `null`: it has not ended. */
  outcome: "signal" | "timeout" | null;
  /** The payload of the signal. */
  result?: Json;
  /** The id of the signal. */
  signalId?: string;
  /** Who signalled. */
  signalledBy?: string;
  /** Information from the job for those who may signal. */
  metadata?: Json;
  /** When it was prepared: ISO 8601 in UTC. */
  createdAt: string;
  /** When it ends without a signal: ISO 8601 in UTC. */
  deadlineAt?: string;
}

/** Recorded child runs of one call. */
export interface ChildrenHistory extends HistoryName {
  /** Tells records apart. */
  kind: "children";
  /** The position of the end of the last one among all records; `null`: they have not all ended. */
  no: number | null;
  /** How many were added. */
  count: number;
  /** How many the call has. */
  total: number;
  /** How they ended, in their order; `null`: they have not all ended, or their results are lost. */
  result: ChildHistory[] | null;
}

/** How a child run ended. */
export interface ChildHistory {
  /** The id of the child. */
  runId: string;
  /** The name of its job. */
  jobName: string;
  /** How it ended. */
  status: TerminalStatus;
  /** What its function returned. */
  output?: Json;
  /** Why it failed. */
  error?: HistoryFailure;
  /** The step at which it failed. */
  failedStepName?: string;
}

/** A recorded receive of messages. */
export interface ReceiveHistory extends HistoryName {
  /** Tells records apart. */
  kind: "receive";
  /** The position of its end among all records; `null`: it has not ended. */
  no: number | null;
  /** The messages that it took, in their order; empty: a timeout has ended it; `null`: it has not ended. */
  messages: HistoryMessage[] | null;
  /** When it was prepared: ISO 8601 in UTC. */
  createdAt: string;
  /** When it ends without a message: ISO 8601 in UTC. */
  deadlineAt?: string;
}

/** A message that a receive took. */
export interface HistoryMessage {
  /** Its id. */
  id: string;
  /** Its name. */
  name: string;
  /** What the schema made of its value. */
  payload?: Json;
  /** When it was accepted: ISO 8601 in UTC. */
  acceptedAt: string;
  /** Who sent it. */
  sentBy?: string;
}

/** A recorded answer of `step.patch()`. */
export interface PatchHistory extends HistoryName {
  /** Tells records apart. */
  kind: "patch";
  /** Its position among all records. */
  no: number;
  /** The answer. */
  result: boolean;
}

/** What was thrown, without its stack. */
export interface HistoryFailure extends Pick<Failure, "kind" | "name" | "message"> {
  /** What it named as its `cause`. */
  cause?: HistoryFailure;
}

/**
 * Checks that a value is a history as this version exports it. Only what tells histories from other JSON is checked.
 *
 * @param subject Names it in the message.
 * @throws {ValidationError} It is none, or has a format that this version does not know.
 */
export function checkHistory(value: unknown, subject = "the history"): ExportedHistory {
  const format = propertyOf(value, "format");
  if (format === undefined) {
    throw new ValidationError(`Expected an exported history as ${subject}, not ${kindOf(value)}`);
  }
  if (format !== 1) throw new ValidationError(`The format of ${subject} is ${format}; this version knows format 1`);
  for (const [field, example] of [["runId", ""], ["jobName", ""], ["version", 1], ["status", ""]] as const) {
    const found = propertyOf(value, field);
    if (kindOf(found) === kindOf(example)) continue;
    throw new ValidationError(`${field} of ${subject} must be ${kindOf(example)}, not ${kindOf(found)}`);
  }
  if (!Array.isArray(propertyOf(value, "records"))) {
    throw new ValidationError(`records of ${subject} must be an array`);
  }
  return value as ExportedHistory; // an export of this format
}
