import { type Duration, readDuration } from "../values/duration.ts";
import type { Effects } from "./effects.ts";
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
  /** How the engine makes transactions there if it is not joined. */
  readonly effects: Effects;
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

/** Options of a data source. */
export interface DataSourceOptions {
  /**
   * How long the effects of completed runs are kept at least, if the data source is not joined: longer than a worker may
   * need between a commit there and its record. Default: an hour.
   */
  keepEffects?: Duration;
}

const HOUR_MS = 3_600_000;

/** The option `keepEffects` in milliseconds. */
export function readKeepEffects(options: DataSourceOptions): number {
  return readDuration(options.keepEffects ?? HOUR_MS, "keepEffects of a data source");
}
