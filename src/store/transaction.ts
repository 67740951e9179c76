import type { Report } from "../model/execution_report.ts";
import type { Lease } from "../model/lease.ts";
import type { SavedStep, StepRecord, StepWrite } from "../model/step.ts";
import type { OriginText } from "../model/origin.ts";
import type { Signal, SignalOutcome, Wait } from "../model/wait.ts";
import type { Enqueued, NewRun } from "./new_run.ts";
import type { SendReceipt, SendRequest } from "./send_request.ts";

/** The step that a transaction is made in. */
export interface StepPlace {
  /** Its name, with its occurrence. */
  name: string;
  /** The lease of its run, as it is now: read anew for the last statement. */
  lease: () => Lease;
}

/** A wait with the job of its run. */
export interface WaitOfJob extends RunOfJob {
  /** The wait. */
  wait: Wait;
}

/** The job of a run. */
export interface RunOfJob {
  /** The job. */
  jobName: string;
  /** The version of the job. */
  version: number;
}

/** Finds the run of a message on the connection of a transaction: at once on SQLite. `null`: there is none. */
export type FindRun = (runId: string) => RunOfJob | null | Promise<RunOfJob | null>;

/**
 * Finds the wait that a signal to this one is for, by means of the connection of a transaction, at once on SQLite: if it
 * has ended with its run, that of its name, or of one of `names`, in the newest retry from the failure that has one
 * (`Store.findRetry`). `null`: there is none.
 */
export type FindWait = (waitId: string, names?: readonly string[]) => WaitOfJob | null | Promise<WaitOfJob | null>;

/** What the store has to write with a transaction. */
export interface StoreWrites {
  /** The record of the step, with the reports that no write has stored yet; `null`: it is made in no step. */
  step: { write: StepWrite; reports: readonly Report[] } | null;
  /** The runs to add. */
  runs: readonly NewRun[];
  /** The signals to deliver. */
  signals: readonly TransactionSignal[];
  /** The messages to send, when the runs are added. Left out: none. */
  messages?: readonly SendRequest[];
}

/** A signal that a transaction sends. */
export interface TransactionSignal {
  /** The wait. */
  waitId: string;
  /** The signal. */
  signal: Signal;
  /** The origin of the signal: it is kept with the wait. */
  trace: OriginText | null;
}

/** What the store answers to a transaction. */
export interface StoreAnswers {
  /** `recorded`: the step was recorded before, so all was rolled back. `null`: it was made in no step. */
  step: SavedStep | { recorded: StepRecord } | null;
  /** In the order of the requests, each run in its current state. */
  runs: Enqueued[];
  /** In the order of the signals. */
  signals: SignalOutcome[];
  /** In the order of the messages. */
  messages: SendReceipt[];
}

/** How long a transaction may take, and how it is isolated. On SQLite it has neither. */
export interface TransactionLimits {
  /** The isolation level on PostgreSQL; `undefined`: that of the database. */
  isolation: string | undefined;
  /** How long it may take, in milliseconds: a server ends it later if the process is frozen. */
  timeoutMs: number;
  /** Ends it: the connection is closed, and the reason of the signal is what `work` has thrown. */
  abortSignal: AbortSignal | null;
}
