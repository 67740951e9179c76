import type { DatabaseSync } from "node:sqlite";
import { COUNT_CHECK } from "../../src/stores/sqlite/checks.ts";
import { prepared } from "./prepared.ts";

/** Looks for a number of runs that is kept wrongly: what is wrong, or `null`. */
export function findWrongCount(database: DatabaseSync): string | null {
  return prepared(database, COUNT_CHECK.sql).get()?.r as string | undefined ?? null; // a row has one sentence
}
