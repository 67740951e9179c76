import type { DatabaseSync } from "node:sqlite";
import { prepared } from "./prepared.ts";

/**
 * Looks for a run of a concurrency key that stands where it should not, by the two invariants of
 * `src/stores/sqlite/writes/concurrency_keys.ts`: K1, while a key is held no run of it is ready but its holder; K2, while a key is free
 * the first run of each job is ready, and no other.
 *
 * @returns What is wrong, or `null`.
 */
export function findBrokenLine(database: DatabaseSync): string | null {
  const inLine = prepared(
    database,
    `SELECT id, job, concurrency_key AS key, queue_state AS place FROM holdfast_runs
     WHERE concurrency_key IS NOT NULL AND queue_state IS NOT NULL ORDER BY seq`,
  ).all() as { id: string; job: string; key: string; place: string }[];
  if (inLine.length === 0) return null;
  const holders = new Map(
    prepared(database, "SELECT concurrency_key AS key, run_id AS id FROM holdfast_holders").all()
      .map(({ key, id }) => [key, id]),
  );
  const firsts = new Set<string>();
  for (const { id, job, key, place } of inLine) {
    const holder = holders.get(key);
    const isFirst = !firsts.has(`${key} ${job}`);
    firsts.add(`${key} ${job}`);
    const expected = (holder === undefined ? isFirst : holder === id) ? "R" : "B";
    if (place !== expected) {
      return `${holder === undefined ? "K2" : "K1"} is broken: run ${id} stands at ${place}, not ${expected}`;
    }
  }
  return null;
}
