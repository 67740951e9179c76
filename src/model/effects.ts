import type { JsonText } from "../values/json.ts";

/** The transactions of a database that is not joined with the store: steps leave an effect row in it. */
export interface Effects {
  /** How long effects of completed runs are kept at least, in milliseconds. */
  readonly keepMs: number;
  /** Creates the tables, unless they exist. */
  migrate(): Promise<void>;
  /**
   * Executes `work` in a transaction, adds the effect that it returns, and commits. If there is an effect under one of
   * the keys, or another transaction has added it meanwhile, everything is rolled back and the answer is that one.
   *
   * @throws {WorkError} `work` has thrown, or the database has failed: nothing was committed, as far as it is known.
   * @throws {StoreError} With `outcomeUnknown`: nobody knows whether it was committed. Only without keys.
   */
  transact(request: EffectRequest): Promise<{ found: NewEffect["output"] } | { committed: true }>;
  /** The effects of a store that are older than an instant, in the order of their keys, after one of them. */
  findOlder(storeId: string, at: number, after: string, limit: number): Promise<StoredEffect[]>;
  /** Deletes effects. */
  forget(keys: readonly string[]): Promise<void>;
}

/** A transaction to make. */
export interface EffectRequest {
  /** The key of the step, and those that it may have had under its old names; none: it is made in no step. */
  keys: readonly string[];
  /** The function. It is given a new object with what the database can do. */
  work: (tx: object) => NewEffect | null | Promise<NewEffect | null>;
  /** Isolation on PostgreSQL. */
  isolation: string | undefined;
  /** Ends it: the connection is destroyed. */
  abortSignal: AbortSignal | null;
}

/** The row that says that a step has committed. */
export interface NewEffect {
  /** The key of the step. */
  key: string;
  /** The store of the run. */
  storeId: string;
  /** The run. */
  runId: string;
  /** The output of the step; `null`: it is `undefined`. */
  output: JsonText | null;
  /** When it was made, by the clock of the worker: milliseconds since 1970. */
  at: number;
}

/** An effect that may be deleted. */
export type StoredEffect = Pick<NewEffect, "key" | "runId" | "at">;
