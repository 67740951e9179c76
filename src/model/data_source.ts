import type { Duration } from "../values/duration.ts";
import type { RetryPolicy } from "./retry.ts";

/**
 * Where transactions are made: a database of yours, named in `dataSources` of `createEngine()`. `Tx` is what the
 * function of a transaction is given.
 */
export interface DataSource<Tx = unknown> {
  /** What kind of database it is. On SQLite the function of a transaction is synchronous. */
  readonly kind: "sqlite" | "postgres";
  /**
   * The store whose database it is: with an engine of that store it is joined, so rows and records are one commit.
   * `null`: it is a database of its own.
   */
  readonly store: object | null;
  /** Used only for type inference: it is never set. */
  readonly txType?: Tx;
}

/** Options of `engine.transaction()`. */
export interface TransactionOptions {
  /** The isolation level on PostgreSQL, such as `"serializable"`. Default: that of the database. Not for SQLite. */
  isolation?: "read committed" | "repeatable read" | "serializable";
  /** How long the transaction may take on PostgreSQL. Default 60 seconds. Not for SQLite: nothing can interrupt it. */
  timeout?: Duration;
}

/** Options of `step.transaction()`. */
export interface StepTransactionOptions extends TransactionOptions {
  /** How often and when the step is retried. Default: the job's policy, or no retries. */
  retry?: RetryPolicy;
}
