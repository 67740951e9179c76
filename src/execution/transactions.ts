import type { Job, StepTriggerOptions } from "../model/job.ts";
import type { DataSource, TransactionOptions } from "../model/data_source.ts";
import type { NewRun } from "../store/new_run.ts";
import type { StepPlace, StoreAnswers, StoreWrites } from "../store/transaction.ts";
import type { Soon } from "../values/at_once.ts";

/** A transaction to make. */
export interface TransactionRequest {
  /** Names it in messages: `transaction "book" of job "order"`. */
  subject: string;
  /** The step that it is made in; `null`: it is made in none. */
  step: StepPlace | null;
  /** Isolation and timeout. */
  options: TransactionOptions;
  /** The function. */
  work: (tx: object) => unknown;
  /** Builds the request for a run that the function triggers. */
  create: (job: Job | string, input: unknown, options: StepTriggerOptions) => Soon<NewRun>;
  /** The record of the step, from what the function has returned. What it throws is a {@linkcode Mistake}. */
  toRecord: (value: unknown) => StoreWrites["step"];
}

/** Makes transactions. */
export interface Transactions {
  /**
   * Makes a transaction, and publishes what it has triggered.
   *
   * @returns What the function returned, and the answers of the store.
   * @throws {WorkError} The function has thrown, or is mistaken ({@linkcode Mistake}): nothing was committed.
   */
  perform(source: DataSource, request: TransactionRequest): Promise<{ value: unknown; answers: StoreAnswers }>;
}

/** What is wrong with the code of a transaction: no further attempt can mend it. */
export class Mistake extends Error {
  /** Wraps the error that the caller gets. */
  constructor(error: unknown) {
    super("The code of a transaction is wrong", { cause: error });
  }
}
