import type { RunQuery } from "../../../store/run_query.ts";
import { MAX_TIMED, TIMED_RUNS, timesOf } from "../../run_conditions.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { raw } from "../statement.ts";

/** Where the runs are that may have been added between two times. */
export interface TimedRuns {
  /** Ranges of their numbers: above `after`, up to `last`, the newest first. */
  ranges: readonly { after: number; last: number }[];
  /** About how many runs are in no row of the table. */
  rows: number;
}

// Clocks differ and are set back, so the times of runs are in no certain order: each row has the first and the last one.

/** Notes when runs were added that are in no row yet. See `Store.addStats()`. */
export function noteTimes(db: SqliteDatabase): void {
  db.run`DELETE FROM holdfast_run_times WHERE last_seq < (SELECT min(seq) FROM holdfast_runs)`;
  for (let row = 0; row < MAX_TIMED; row++) {
    const added = db.run`INSERT INTO holdfast_run_times SELECT max(seq), min(created_at), max(created_at) FROM (
        SELECT seq, created_at FROM holdfast_runs
        WHERE seq > coalesce((SELECT max(last_seq) FROM holdfast_run_times), 0) ORDER BY seq LIMIT ${raw(TIMED_RUNS)})
      HAVING count(*) = ${raw(TIMED_RUNS)}`;
    if (added === 0) return;
  }
}

/** Finds where the runs of a filter are by the time when they were added; `null`: it does not say. */
export function findTimedRuns(db: SqliteDatabase, query: RunQuery): TimedRuns | null {
  const times = timesOf(query);
  if (times === null) return null;
  const { rows, last } = db.one<{ rows: number; last: number }>`
    SELECT count(*) AS rows, coalesce(max(last_seq), 0) AS last FROM holdfast_run_times`;
  const ranges = db.all<{ after: number; last: number }>`
    SELECT after, last_seq AS last FROM (
      SELECT *, coalesce(lag(last_seq) OVER (ORDER BY last_seq), 0) AS after FROM holdfast_run_times)
    WHERE last_at >= ${times.from} AND first_at < ${times.until} ORDER BY last_seq DESC`;
  return { ranges: [{ after: last, last: Number.MAX_SAFE_INTEGER }, ...ranges], rows };
}

/** About how many of all runs are in the ranges. */
export function estimateRuns(timed: TimedRuns | null, all: number): number {
  if (timed === null) return all;
  return Math.min(all, (timed.ranges.length - 1) * TIMED_RUNS + Math.max(0, all - timed.rows * TIMED_RUNS));
}

/** The number before which the next run is that may have been added at the right time; 0: there is none. */
export function skipOthers(timed: TimedRuns | null, before: number): number {
  if (timed === null) return before;
  const next = timed.ranges.find(({ after }) => after + 1 < before);
  return next === undefined ? 0 : Math.min(before, next.last + 1);
}
