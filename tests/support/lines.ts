import type { DatabaseSync } from "node:sqlite";
import { QUEUE_CHECKS, RUN_CHECKS } from "../../src/stores/sqlite/checks.ts";
import { prepared } from "./prepared.ts";

/**
 * Looks for a broken invariant of the rows of a SqliteStore: see `QUEUE_CHECKS` and `RUN_CHECKS`.
 *
 * @returns What is wrong, or `null`.
 */
export function findBrokenLine(database: DatabaseSync): string | null {
  for (const { sql } of [...QUEUE_CHECKS, ...RUN_CHECKS]) {
    const row = prepared(database, sql).get();
    if (row !== undefined) return String(row.r);
  }
  return null;
}
