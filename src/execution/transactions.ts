import { WorkError } from "../model/error.ts";
import type { Job } from "../model/job.ts";
import type { StepTriggerOptions } from "../model/job/step_calls.ts";
import type { DataSource, TransactionOptions } from "../model/data_source.ts";
import type { NewRun } from "../store/new_run.ts";
import type { StepPlace, StoreAnswers, StoreWrites } from "../store/transaction.ts";
import type { Soon } from "../values/at_once.ts";
import { isInstance } from "../values/unknown_values.ts";
import type { JsonText } from "../values/json.ts";

/** A transaction to make. */
export interface TransactionRequest {
  /** Names it in messages: `transaction "book" of job "order"`. */
  subject: string;
  /** The step that it is made in; `null`: it is made in none. */
  step: TransactedStep | null;
  /** Isolation and timeout. */
  options: TransactionOptions;
  /** The function. */
  work: (tx: object) => unknown;
  /** Builds the request for a run that the function triggers. */
  create: (job: Job | string, input: unknown, options: StepTriggerOptions) => Soon<NewRun>;
}

/** The step that a transaction is made in. */
export interface TransactedStep extends StepPlace {
  /** The run. */
  runId: string;
  /** The keys of its effect: its own, then those of its old names. */
  keys: readonly string[];
  /** Ends the transaction when the run is interrupted. */
  abortSignal: AbortSignal;
  /** Encodes what the function has returned. What it throws is a {@linkcode Mistake}. */
  encode(value: unknown): JsonText | null;
  /** The record with this output, right before it is sent. */
  toRecord(output: JsonText | null): StoreWrites["step"];
  /** Whether the lease is certainly held. */
  isLeaseSure(): boolean;
  /** Renews the lease, or interrupts the run. */
  renewLease(): Promise<void>;
  /** Called before the commit, for a test kit. */
  beforeCommit(): void;
}

/** What a transaction has committed. */
export interface TransactionEnd {
  /** What the function returned. */
  value: unknown;
  /** The output of the step. */
  output: JsonText | null;
  /** The answers of the store; `null`: the data source is not joined, and the record of the step has to follow. */
  answers: StoreAnswers | null;
}

/** Makes transactions. */
export interface Transactions {
  /**
   * Makes a transaction, and publishes what it has triggered.
   *
   * @throws {WorkError} The function has thrown, or is mistaken ({@linkcode Mistake}): nothing was committed, unless by itself.
   */
  perform(source: DataSource, request: TransactionRequest): Promise<TransactionEnd>;
}

/** What is wrong with the code of a transaction: no further attempt can mend it. */
export class Mistake extends Error {
  /** Wraps the error that the caller gets. */
  constructor(error: unknown) {
    super("The code of a transaction is wrong", { cause: error });
  }
}

/** What the caller of a transaction gets for an error: what the function has thrown, or what is wrong with it. */
export function unwrapped(error: unknown): unknown {
  const cause = error instanceof WorkError ? error.cause : error;
  return isInstance(cause, Mistake) ? (cause as Mistake).cause : cause;
}
