import type { Failure } from "../../../model/failure.ts";
import { startedAt, type StepWrite } from "../../../model/step.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";

/** Notes an attempt at a step that needs more than one. */
export function noteAttempt(
  db: SqliteDatabase,
  runSeq: number,
  step: StepWrite,
  { failure, retryAt }: { failure: Failure | null; retryAt: number | null },
  now: number,
): void {
  db.run`
    INSERT OR REPLACE INTO holdfast_attempts (run_seq, step_name, attempt, started_at, ended_at, retry_at, failure)
    VALUES (${runSeq}, ${step.name}, ${step.attempts}, ${startedAt(step, now)}, ${now}, ${retryAt},
      ${failure === null ? null : JSON.stringify(failure)})`;
}

/** Notes that the current execution of a run loses its lease without an end, before it does. */
export function noteInterruption(
  db: SqliteDatabase,
  runSeq: number,
  kind: "lost" | "released" | "held",
  now: number,
): void {
  db.run`INSERT INTO holdfast_interruptions (run_seq, generation, kind, worker, leased_at, ended_at)
    SELECT seq, lease_generation, ${kind}, lease_owner, leased_at, ${now} FROM holdfast_runs WHERE seq = ${runSeq}
      ON CONFLICT DO NOTHING`;
}
