import { deadlineFailure } from "../../../model/failure/deadline_failure.ts";
import { failedFact } from "../../../model/fact.ts";
import { failureText } from "../../../model/failure.ts";
import type { ClaimResult } from "../../../store/claim.ts";
import { endHold } from "../evolution/offers.ts";
import { type IdentityRow, toRunIdentity } from "../../rows.ts";
import { moveRun } from "../run_counts.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { closePauses } from "../writes/close_pauses.ts";
import { enterQueue, leaveQueue, releaseKey } from "./concurrency_keys.ts";
import type { RunStatus } from "../../../model/run.ts";

interface LateRow extends IdentityRow {
  seq: number;
  status: RunStatus;
  concurrency_key: string | null;
  lease_generation: number;
  begun: number;
  start_within: number;
  finish_within: number;
}

/** Fails runs that are not under a lease and whose deadline has passed. */
export function failLateRuns(db: SqliteDatabase, limit: number, now: number): ClaimResult["failed"] {
  const late = db.all<{ run_seq: number }>(
    `SELECT run_seq FROM holdfast_flow WHERE deadline_at <= ? ORDER BY deadline_at, run_seq LIMIT ${limit}`,
    now,
  );
  return late.map(({ run_seq: seq }) => seq).sort((one, other) => one - other).map((seq) => failLateRun(db, seq, now));
}

/** Fails a run that is not under a lease and has missed a deadline. */
function failLateRun(db: SqliteDatabase, seq: number, now: number): ClaimResult["failed"][number] {
  const row = db.one<LateRow>(
    `SELECT r.seq, r.id, r.job, r.labels, r.status, r.concurrency_key, r.lease_generation, f.begun,
       f.start_within, f.finish_within
     FROM holdfast_runs r JOIN holdfast_flow f ON f.run_seq = r.seq WHERE r.seq = ?`,
    seq,
  );
  const failureKind = row.begun === 0 ? "expired" : "timeout";
  const failure = deadlineFailure(failureKind, failureKind === "expired" ? row.start_within : row.finish_within);
  const error = failureText(failure);
  db.run(
    `UPDATE holdfast_runs SET status = 'failed', error = ?, failure = ?, timer_at = NULL, updated_at = ?,
       completed_at = ? WHERE seq = ?`,
    error,
    JSON.stringify(failure),
    now,
    now,
    seq,
  );
  moveRun(db, row.job, row.status, "failed");
  db.facts.note(failedFact(seq, failureKind));
  closePauses(db, seq, "closed", now);
  leaveQueue(db, { ...row, flow: 1 }, now);
  endHold(db, seq);
  // It holds its key if it waited for a retry.
  if (row.concurrency_key !== null) releaseKey(db, row.concurrency_key, row.id, row.lease_generation, now);
  return { run: toRunIdentity(row), error, failureKind };
}

/** Makes runs due whose start has passed. */
export function startDelayedRuns(db: SqliteDatabase, limit: number, now: number): void {
  const due = db.all<{ run_seq: number; concurrency_key: string | null }>(
    `SELECT run_seq, concurrency_key FROM holdfast_flow WHERE due_at <= ? ORDER BY due_at, run_seq LIMIT ${limit}`,
    now,
  );
  for (const { run_seq: seq, concurrency_key } of due) {
    db.run("UPDATE holdfast_runs SET updated_at = ? WHERE seq = ?", now, seq);
    enterQueue(db, { seq, concurrency_key, flow: 1 }, now);
  }
}
