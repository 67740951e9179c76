import type { Engine } from "../../engine/engine.ts";
import type { TableCheck } from "../../stores/table_check.ts";
import { StoreError } from "../../model/error.ts";

/** What the commands ask: a service over HTTP, or a handler of this process over a database. */
export interface Service {
  /** What it is. */
  readonly kind: "sqlite" | "postgres" | "http";
  /**
   * Asks a route.
   *
   * @param path The path after the base, with its query.
   * @throws {StoreError} It cannot be reached.
   */
  ask(path: string, init: RequestInit): Promise<Response>;
  /** The database behind it; `null`: it is not reached from here. */
  readonly database: Database | null;
  /** An engine on that database, without jobs: it retriggers runs without their code. `null`: there is no database. */
  readonly engine: Engine | null;
  /** Closes it. */
  close(): Promise<void>;
}

/** A database that a command reads without the engine. */
export interface Database {
  /** What always has to be true of its tables. */
  readonly checks: readonly TableCheck[];
  /** What is true unless something is stuck, by the clock of the database. */
  readonly stuckChecks: readonly TableCheck[];
  /** Executes a statement that reads, and returns the column `r` of its first rows. */
  select(sql: string, limit: number): Promise<string[]>;
  /** Finds values of runs that are no JSON, as sentences. */
  findBrokenValues(limit: number): Promise<string[]>;
  /** Counts the runs of each job and status again. */
  recount(): Promise<void>;
  /** Copies it to a new file; `null`: it cannot. */
  readonly backup: ((path: string) => Promise<void>) | null;
}

/**
 * Checks the version of the tables of a database.
 *
 * @param found 0: it has none.
 * @throws {StoreError} It is another one than this version of Holdfast has.
 */
export function checkVersion(found: number, known: number, subject: string): void {
  if (found === known) return;
  if (found === 0) {
    throw new StoreError(`${subject} has no tables of Holdfast: call holdfast migrate, or start an engine on it once`);
  }
  throw new StoreError(
    `${subject} has tables of version ${found}, and this version of Holdfast knows version ${known}` +
      (found < known ? ": deploy this version, or call holdfast migrate" : ": use a newer one"),
  );
}
