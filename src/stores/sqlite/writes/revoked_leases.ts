import { failedFact } from "../../../model/fact.ts";
import type { ClaimResult } from "../../../store/claim.ts";
import { abandonedFailure, ALONE_FROM, aloneDelayMs } from "../../rules.ts";
import { aloneQueue } from "../../queue_name.ts";
import { enterQueue, releaseKey } from "../flow/concurrency_keys.ts";
import { type IdentityRow, toRunIdentity } from "../../rows.ts";
import { moveRun } from "../run_counts.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { noteInterruption } from "../operate/timeline_writes.ts";
import { closePauses, type EndingRun } from "./close_pauses.ts";

/** What is read of a run whose lease is revoked. */
export interface LeasedRow extends IdentityRow, EndingRun {
  concurrency_key: string | null;
  lease_generation: number;
  lease_owner: string;
  lease_claim: string;
  abandonments: number;
  abandonments_alone: number;
}

/** Revokes leases that have expired. Returns the runs that failed. */
export function revokeExpiredLeases(
  db: SqliteDatabase,
  { maxAbandonments, limit }: { maxAbandonments: number; limit: number },
  now: number,
): ClaimResult["failed"] {
  const expired = db.all<LeasedRow>(
    `SELECT * FROM holdfast_runs WHERE lease_expires_at <= ? ORDER BY lease_expires_at LIMIT ${limit}`,
    now,
  );
  return expired.flatMap((row) => {
    const error = revokeLease(db, row, maxAbandonments, now);
    return error === null ? [] : [{ run: toRunIdentity(row), error, failureKind: "abandoned" as const }];
  });
}

/**
 * Revokes a lease, so that the run can be claimed again; a run that was abandoned too often fails instead.
 *
 * @returns Why it failed, or `null`.
 */
export function revokeLease(
  db: SqliteDatabase,
  row: LeasedRow,
  maxAbandonments: number,
  now: number,
): string | null {
  const runSeq = row.seq;
  const abandonments = row.abandonments + 1;
  const worker = db.get<{ sole_claim: string | null; lease_ms: number }>(
    "SELECT sole_claim, lease_ms FROM holdfast_workers WHERE id = ?",
    row.lease_owner,
  );
  const wasAlone = worker !== undefined && worker.sole_claim === row.lease_claim;
  const alone = (row.abandonments === 0 ? 0 : row.abandonments_alone) + (wasAlone ? 1 : 0);
  const failure = alone < maxAbandonments ? null : abandonedFailure(abandonments);
  const error = failure?.message ?? null;
  noteInterruption(db, { runId: row.id, generation: row.lease_generation }, "lost", now);
  db.run(
    `UPDATE holdfast_runs SET status = ?, error = ?, failure = ?, completed_at = ?, updated_at = ?, lease_owner = NULL,
       lease_expires_at = NULL, lease_generation = lease_generation + 1, interruptions = interruptions + 1,
       abandonments = ?, abandonments_alone = ? WHERE seq = ?`,
    error === null ? "pending" : "failed",
    error,
    failure === null ? null : JSON.stringify(failure),
    error === null ? null : now,
    now,
    abandonments,
    alone,
    runSeq,
  );
  moveRun(db, row.job, "running", error === null ? "pending" : "failed");
  if (error !== null) db.facts.note(failedFact(runSeq, "abandoned"));
  const key = row.concurrency_key;
  if (error === null) {
    requeue(db, { ...row, abandonments }, now + aloneDelayMs(abandonments, worker?.lease_ms ?? 0), now);
  } else closePauses(db, row, "closed", now);
  if (key !== null) releaseKey(db, key, row.id, row.lease_generation, now);
  return error;
}

/**
 * Puts a run back into its queue whose lease has ended. One that is claimed alone comes into a queue of its own.
 *
 * @param aloneAt When it is due, if it is claimed alone.
 */
export function requeue(
  db: SqliteDatabase,
  { seq, job, abandonments }: { seq: number; job: string; abandonments: number },
  aloneAt: number,
  now: number,
): void {
  if (abandonments >= ALONE_FROM) {
    db.run(
      "UPDATE holdfast_runs SET queue = ?, due_at = ?, deadline_at = finish_by WHERE seq = ?",
      aloneQueue(job),
      aloneAt,
      seq,
    );
    if (aloneAt > now) return;
  }
  enterQueue(db, seq, now);
}
