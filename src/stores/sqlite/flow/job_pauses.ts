import type { JobPause } from "../../../store/job_pause.ts";
import { type JobPauseRow, toJobPause } from "../../rows.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";

/** Pauses a job, unless it is paused already. See `Store.pauseJob()`. */
export function pauseJob(
  db: SqliteDatabase,
  job: string,
  { by, note }: Pick<JobPause, "by" | "note">,
  now: number,
): JobPause {
  db.run`INSERT INTO holdfast_paused_jobs VALUES (${job}, ${now}, ${by}, ${note}) ON CONFLICT DO NOTHING`;
  return toJobPause(db.one<JobPauseRow>`SELECT * FROM holdfast_paused_jobs WHERE job = ${job}`);
}

/** Ends the pause of a job. Returns whether it was paused. */
export function resumeJob(db: SqliteDatabase, job: string): boolean {
  return db.run`DELETE FROM holdfast_paused_jobs WHERE job = ${job}` > 0;
}

/** The paused jobs, in the order of their names. */
export function readJobPauses(db: SqliteDatabase): JobPause[] {
  return db.all<JobPauseRow>`SELECT * FROM holdfast_paused_jobs ORDER BY job`.map(toJobPause);
}

/** The names of the paused jobs. */
export function readPausedJobs(db: SqliteDatabase): Set<string> {
  return new Set(db.all<{ job: string }>`SELECT job FROM holdfast_paused_jobs ORDER BY job`.map(({ job }) => job));
}
