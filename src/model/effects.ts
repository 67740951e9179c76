import type { JsonText } from "../values/json.ts";

/** The transactions of a database that is not joined with the store: steps leave an effect row in it. */
export interface Effects extends Outbox {
  /** How long effects of completed runs are kept at least, in milliseconds. */
  readonly keepMs: number;
  /** Creates the tables, unless they exist. If the data source is joined, that is the outbox alone. */
  migrate(isJoined: boolean): Promise<void>;
  /**
   * Executes `work` in a transaction, adds the effect and the rows of the outbox that it returns, and commits. If there is an effect under one of
   * the keys, or another transaction has added it meanwhile, everything is rolled back and the answer is that one.
   *
   * @throws {WorkError} `work` has thrown, or the database has failed: nothing was committed, unless by `work` itself, as far as it is known.
   * @throws {StoreError} With `outcomeUnknown`: nobody knows whether it was committed. Only without keys.
   */
  transact(request: EffectRequest): Promise<{ found: NewEffect["output"] } | { committed: true }>;
  /** The effects of a store that are older than an instant, in the order of their keys, after one of them. */
  findOlder(storeId: string, at: number, after: string, limit: number): Promise<StoredEffect[]>;
  /** Deletes effects. */
  forget(keys: readonly string[]): Promise<void>;
}

/** The table of triggers, signals and messages that the store does not have yet. */
export interface Outbox {
  /** The statement that adds a row to the outbox in a transaction of somebody else, with its parameters. */
  insertion(row: NewOutboxRow): { sql: string; parameters: (string | number | null)[] };
  /**
   * The first rows of the outbox that this store may relay: triggers of these jobs, signals and messages. They are taken
   * for some seconds, so that one engine relays them; none if another one has taken them.
   */
  takeRows(request: OutboxRequest): Promise<OutboxRow[]>;
  /** Deletes rows of the outbox, by their numbers. */
  deleteRows(nos: readonly number[]): Promise<void>;
  /** How many rows that this store may relay nobody has relayed; those that wait count if they are older than an instant. */
  countStuck(storeId: string, before: number): Promise<StuckRows>;
  /** Which rows with these ids are still in the outbox. `error`: why a row was refused; `null`: it was not. */
  findRows(
    ids: readonly string[],
  ): Promise<(Pick<NewOutboxRow, "id" | "kind" | "name" | "options"> & { error: string | null })[]>;
  /** Leaves a row in the outbox that was refused, with the reason. */
  refuseRow(no: number, error: string): Promise<void>;
}

/** How many rows of an outbox need attention. */
export interface StuckRows {
  /** Rows that were refused, with the reason in `error`. */
  refused: number;
  /** Rows that no engine has relayed for long: none has their job. */
  waiting: number;
}

/** A trigger, a signal or a message that the store does not have yet. */
export interface NewOutboxRow {
  /** Of the run, of the signal, or of the message. */
  id: string;
  /** What it is. */
  kind: "trigger" | "signal" | "send";
  /** The job, the wait, or the name of the message. */
  name: string;
  /** The input, or the payload. */
  value: JsonText | null;
  /** The options as JSON, with `to` for a message; `null`: it has none. */
  options: JsonText | null;
  /** The store that it is for; `null`: any that has the job. */
  storeId: string | null;
  /** When it was added: milliseconds since 1970. */
  at: number;
}

/** A row of the outbox. */
export interface OutboxRow extends Pick<NewOutboxRow, "id" | "kind" | "name" | "value" | "options"> {
  /** Its number, which is never used twice. */
  no: number;
}

/** Which rows of the outbox to take. */
export interface OutboxRequest {
  /** The store. */
  storeId: string;
  /** The jobs that the engine has. */
  jobs: readonly string[];
  /** The numbers of the messages to jobs that it does not have: they are left to other engines. */
  except: readonly number[];
  /** The instant, by the clock of the engine. */
  now: number;
  /** How many rows at most. */
  limit: number;
}

/** What a transaction adds to the tables of its data source. */
export interface SourceWrites {
  /** The effect of its step; `null`: it is made in no step. */
  effect: NewEffect | null;
  /** The rows of the outbox. */
  rows: readonly NewOutboxRow[];
}

/** A transaction to make. */
export interface EffectRequest {
  /** The key of the step, and those that it may have had under its old names; none: it is made in no step. */
  keys: readonly string[];
  /** The function. It is given a new object with what the database can do. */
  work: (tx: object) => SourceWrites | Promise<SourceWrites>;
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
