import type { RunStatus } from "../../../model/run.ts";
import { forgetPrints } from "../changed_code/offers.ts";
import { HEAD_START } from "../../rules.ts";
import { enterQueue, holdsKey } from "../flow/concurrency_keys.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";

/**
 * Commits the timeouts of a run's pauses whose deadline has passed; every reader of the pauses calls it first.
 *
 * @returns Whether the run waited for one of them when it last parked.
 */
export function commitDeadlines(db: SqliteDatabase, runSeq: number, now: number): boolean {
  const passed = db.all<{ seq: number; awaited: number }>(
    `SELECT seq, awaited FROM holdfast_pauses
     WHERE run_seq = ? AND status = 'pending' AND deadline_at <= ? ORDER BY deadline_at, seq`,
    runSeq,
    now,
  );
  for (const { seq } of passed) {
    db.run(
      `UPDATE holdfast_pauses SET status = 'resolved', outcome = 'timeout', resolved_at = deadline_at,
         recorded_no = ? WHERE seq = ?`,
      nextRecordedNo(db, runSeq),
      seq,
    );
  }
  return passed.some(({ awaited }) => awaited === 1);
}

/** Increments the record counter of a run: a replay delivers results in this order. */
export function nextRecordedNo(db: SqliteDatabase, runSeq: number): number {
  const { recorded, status } = db.one<{ recorded: number; status: RunStatus }>(
    "UPDATE holdfast_runs SET recorded = recorded + 1 WHERE seq = ? RETURNING recorded, status",
    runSeq,
  );
  if (status === "pending") forgetPrints(db, runSeq);
  return recorded;
}

/** Makes a waiting run due, if it is not so already. */
export function wake(db: SqliteDatabase, runSeq: number, now: number): void {
  const run = db.get<{ id: string; concurrency_key: string | null }>(
    `UPDATE holdfast_runs SET timer_at = NULL, updated_at = ?
     WHERE seq = ? AND status = 'waiting' AND queue_state IS NULL RETURNING id, concurrency_key`,
    now,
    runSeq,
  );
  if (run === undefined) return;
  if (run.concurrency_key !== null && holdsKey(db, run.concurrency_key, run.id)) {
    // The first of its key: it comes back after a retry delay.
    db.run("UPDATE holdfast_runs SET position = position - ? WHERE seq = ?", HEAD_START, runSeq);
  }
  enterQueue(db, runSeq, now);
}

/** Resolves a pause whose children have all ended, and makes its run due if it waits for that. */
export function resolveChildren(db: SqliteDatabase, runSeq: number, pauseSeq: number, now: number): void {
  const isAwaitedOver = commitDeadlines(db, runSeq, now);
  const { awaited } = db.one<{ awaited: number }>(
    `UPDATE holdfast_pauses SET status = 'resolved', outcome = 'children', resolved_at = ?, recorded_no = ?
     WHERE seq = ? RETURNING awaited`,
    now,
    nextRecordedNo(db, runSeq),
    pauseSeq,
  );
  // The last change of a run that is due already says since when it is.
  db.run("UPDATE holdfast_runs SET updated_at = ? WHERE seq = ? AND queue_state IS NULL", now, runSeq);
  if (isAwaitedOver || awaited === 1) wake(db, runSeq, now);
}

/** Records when a run first resumed after the pauses that it waited on were over. */
export function noteResumption(db: SqliteDatabase, runSeq: number, now: number): void {
  db.run(
    `UPDATE holdfast_pauses SET first_resumed_at = ?
     WHERE run_seq = ? AND awaited = 1 AND status = 'resolved' AND first_resumed_at IS NULL`,
    now,
    runSeq,
  );
}
