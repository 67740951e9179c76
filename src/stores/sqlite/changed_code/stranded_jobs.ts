import type { StrandedJob } from "../../../model/hold.ts";
import { isoTime } from "../../../values/iso_time.ts";
import { isTerminal, RUN_STATUSES } from "../../../model/run.ts";
import { byNameAndVersion } from "../../by_name_and_version.ts";
import { jobNameOf, versionOf } from "../../queue_name.ts";
import { countRuns } from "../run_counts.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { isAmong, raw } from "../statement.ts";
import { liveQueues } from "../writes/known_workers.ts";

const OPEN = RUN_STATUSES.filter((status) => !isTerminal(status));

/** The jobs and versions of open runs that no live worker knows. See `Store.getStrandedJobs()`. */
export function findStrandedJobs(db: SqliteDatabase, now: number): StrandedJob[] {
  const open = db.all<{ job: string; runs: number }>`
    SELECT job, sum(runs) AS runs FROM holdfast_counts
    WHERE ${isAmong("status", OPEN)} AND runs > 0 GROUP BY job`;
  const known = liveQueues(db, now);
  return open.filter(({ job }) => !known.has(job)).map(({ job, runs }) => ({
    jobName: jobNameOf(job),
    version: versionOf(job),
    runs,
    oldestAt: isoTime(oldestOf(db, job)),
  })).sort(byNameAndVersion);
}

/** When the oldest open run of a queue was triggered. */
function oldestOf(db: SqliteDatabase, queue: string): number {
  const created = OPEN.map((status) => findOldest(db, queue, status)).filter((row) => row !== undefined)
    .sort((one, other) => one.seq - other.seq);
  return created[0]?.created_at ?? 0; // the counts say that there is one
}

/** The oldest run of a queue in a status: among all runs of the queue or all in the status, whichever are fewer. */
function findOldest(
  db: SqliteDatabase,
  queue: string,
  status: string,
): { seq: number; created_at: number } | undefined {
  const wanted = { jobs: [queue], statuses: [status] };
  if (countRuns(db, wanted) === 0) return undefined;
  const byJob = countRuns(db, { ...wanted, statuses: null }) <= countRuns(db, { ...wanted, jobs: null });
  const index = raw(`holdfast_runs_by_${byJob ? "job" : "status"}`);
  return db.get<{ seq: number; created_at: number }>`SELECT seq, created_at FROM holdfast_runs INDEXED BY ${index}
    WHERE status = ${status} AND job = ${queue} ORDER BY seq LIMIT 1`;
}
