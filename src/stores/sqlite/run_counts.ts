import type { RunStatus } from "../../model/run.ts";
import type { SqliteDatabase } from "./sqlite_database.ts";
import { isAmong, raw } from "./statement.ts";

// A table keeps the number of runs of each job in each status, so that no list has to count them. The changes of a
// transaction are summed up and written once, right before the commit.

/** Counts a run's change from one status to another; `null`: it is new, or deleted. */
export function moveRun(db: SqliteDatabase, job: string, from: RunStatus | null, to: RunStatus | null): void {
  if (from !== null) add(db, job, from, -1);
  if (to !== null) add(db, job, to, 1);
}

function add({ counts }: SqliteDatabase, job: string, status: RunStatus, count: number): void {
  const key = `${status} ${job}`;
  counts.set(key, (counts.get(key) ?? 0) + count);
}

/** Writes what was noted in the open transaction. */
export function writeCounts(db: SqliteDatabase): void {
  for (const [key, change] of db.counts) {
    if (change === 0) continue;
    const gap = key.indexOf(" ");
    db.run`
      INSERT INTO holdfast_counts (status, job, runs) VALUES (${key.slice(0, gap)}, ${key.slice(gap + 1)}, ${change})
        ON CONFLICT DO UPDATE SET runs = runs + excluded.runs`;
  }
  db.counts.clear();
}

/** How many runs there are of these jobs in these statuses; `null`: of all. */
export function countRuns(
  db: SqliteDatabase,
  { jobs, statuses }: { jobs: readonly string[] | null; statuses: readonly string[] | null },
): number {
  const isOfJob = jobs === null ? raw("TRUE") : isAmong("job", jobs);
  const isInStatus = statuses === null ? raw("TRUE") : isAmong("status", statuses);
  return db.one<{ runs: number }>`
    SELECT coalesce(sum(runs), 0) AS runs FROM holdfast_counts WHERE ${isOfJob} AND ${isInStatus}`.runs;
}
