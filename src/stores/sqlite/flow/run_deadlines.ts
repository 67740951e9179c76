import { deadlineFailure } from "../../../model/failure.ts";
import type { ClaimResult } from "../../../store/claim.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { raw } from "../statement.ts";
import { failRun, type OpenRun, SELECT_OPEN_RUN } from "../writes/endings.ts";
import { enterQueue } from "./concurrency_keys.ts";

/** Fails runs that are not under a lease and whose deadline has passed. */
export function failLateRuns(db: SqliteDatabase, limit: number, now: number): ClaimResult["failed"] {
  const late = db.all<{ seq: number }>`
    SELECT seq FROM holdfast_runs WHERE deadline_at <= ${now} ORDER BY deadline_at, seq LIMIT ${raw(limit)}`;
  return late.map(({ seq }) => seq).sort((one, other) => one - other).map((seq) => {
    const run = db.one<OpenRun>`${SELECT_OPEN_RUN} WHERE seq = ${seq}`;
    const failure = run.started_at === null
      ? deadlineFailure("expired", run.start_within!) // it has this deadline, as the other one below
      : deadlineFailure("timeout", run.finish_within!);
    return failRun(db, run, failure, now);
  });
}

/** Makes runs due whose start has passed. */
export function startDelayedRuns(db: SqliteDatabase, limit: number, now: number): void {
  const due = db.all<{ seq: number }>`
    SELECT seq FROM holdfast_runs WHERE due_at <= ${now} ORDER BY due_at, seq LIMIT ${raw(limit)}`;
  for (const { seq } of due) {
    db.run`UPDATE holdfast_runs SET updated_at = ${now} WHERE seq = ${seq}`;
    enterQueue(db, seq, now);
  }
}
