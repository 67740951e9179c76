import type { Report } from "../model/execution_report.ts";
import type { Lease } from "../model/lease.ts";
import type { SavedStep, StepRecord, StepWrite } from "../model/step.ts";
import type { OriginText } from "../model/origin.ts";
import type { Signal, SignalOutcome } from "../model/wait.ts";
import type { Enqueued, NewRun } from "./new_run.ts";

/** The step that a transaction is made in. */
export interface StepPlace {
  /** Its name, with its occurrence. */
  name: string;
  /** The lease of its run, as it is now: read anew for the last statement. */
  lease: () => Lease;
}

/** What the store has to write with a transaction. */
export interface StoreWrites {
  /** The record of the step, with the reports that no write has stored yet; `null`: it is made in no step. */
  step: { write: StepWrite; reports: readonly Report[] } | null;
  /** The runs to add. */
  runs: readonly NewRun[];
  /** The signals to deliver. */
  signals: readonly TransactionSignal[];
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
}
