import { deadlineFailure } from "../../../model/failure/deadline_failure.ts";
import { failedFact } from "../../../model/fact.ts";
import { failureText } from "../../../model/failure.ts";
import type { ClaimResult } from "../../../store/claim.ts";
import { endHold } from "../evolution/offers.ts";
import { type IdentityRow, toRunIdentity } from "../../rows.ts";
import { moveRun } from "../run_counts.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { closePauses, type EndingRun } from "../writes/close_pauses.ts";
import { enterQueue, OUT_OF_QUEUE, releaseKey } from "./concurrency_keys.ts";
import { touchGroup } from "./turns.ts";
import type { RunStatus } from "../../../model/run.ts";

interface LateRow extends IdentityRow, EndingRun {
  status: RunStatus;
  queue: string;
  fairness_key: string | null;
  concurrency_key: string | null;
  begun: number;
  lease_generation: number;
  start_within: number;
  finish_within: number;
}

/** Fails runs that are not under a lease and whose deadline has passed. */
export function failLateRuns(db: SqliteDatabase, limit: number, now: number): ClaimResult["failed"] {
  const late = db.all<{ seq: number }>(
    `SELECT seq FROM holdfast_runs WHERE deadline_at <= ? ORDER BY deadline_at, seq LIMIT ${limit}`,
    now,
  );
  return late.map(({ seq }) => seq).sort((one, other) => one - other).map((seq) => failLateRun(db, seq, now));
}

/** Fails a run that is not under a lease and has missed a deadline. */
function failLateRun(db: SqliteDatabase, seq: number, now: number): ClaimResult["failed"][number] {
  const row = db.one<LateRow>(
    `SELECT seq, id, job, labels, status, queue, fairness_key, concurrency_key, lease_generation, has_pauses, parent_seq,
       parent_pause, started_at IS NOT NULL AS begun, start_within, finish_within
     FROM holdfast_runs WHERE seq = ?`,
    seq,
  );
  const failureKind = row.begun === 0 ? "expired" : "timeout";
  const failure = deadlineFailure(failureKind, failureKind === "expired" ? row.start_within : row.finish_within);
  const error = failureText(failure);
  db.run(
    `UPDATE holdfast_runs SET status = 'failed', error = ?, failure = ?, ${OUT_OF_QUEUE}, updated_at = ?,
       completed_at = ? WHERE seq = ?`,
    error,
    JSON.stringify(failure),
    now,
    now,
    seq,
  );
  moveRun(db, row.job, row.status, "failed");
  db.facts.note(failedFact(seq, failureKind));
  closePauses(db, row, "closed", now);
  touchGroup(db, row.queue, row.fairness_key);
  endHold(db, seq);
  // It holds its key if it waited for a retry.
  if (row.concurrency_key !== null) releaseKey(db, row.concurrency_key, row.id, row.lease_generation, now);
  return { run: toRunIdentity(row), error, failureKind };
}

/** Makes runs due whose start has passed. */
export function startDelayedRuns(db: SqliteDatabase, limit: number, now: number): void {
  const due = db.all<{ seq: number }>(
    `SELECT seq FROM holdfast_runs WHERE due_at <= ? ORDER BY due_at, seq LIMIT ${limit}`,
    now,
  );
  for (const { seq } of due) {
    db.run("UPDATE holdfast_runs SET updated_at = ? WHERE seq = ?", now, seq);
    enterQueue(db, seq, now);
  }
}
