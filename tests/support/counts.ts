import type { DatabaseSync } from "node:sqlite";
import { prepared } from "./prepared.ts";

/** Looks for a number of runs that is kept wrongly: what is wrong, or `null`. */
export function findWrongCount(database: DatabaseSync): string | null {
  const wrong = prepared(
    database,
    `SELECT status, job, sum(kept) AS kept, sum(counted) AS counted FROM (
       SELECT status, job, runs AS kept, 0 AS counted FROM holdfast_counts
       UNION ALL SELECT status, job, 0, 1 FROM holdfast_runs)
     GROUP BY status, job HAVING sum(kept) <> sum(counted)`,
  ).get();
  if (wrong === undefined) return null;
  const { status, job, kept, counted } = wrong;
  return `There are ${counted} ${status} runs of ${job}, but ${kept} are kept`;
}
