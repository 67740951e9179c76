import type { TableCheck } from "../../stores/table_check.ts";

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
