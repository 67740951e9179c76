import type { SqliteDatabase } from "../sqlite_database.ts";
import { commitDeadlines, resolveChildren } from "./pause_resolution.ts";

/** What is known of a run that ends. */
export interface EndingRun {
  seq: number;
  has_pauses: number;
  parent_seq: number | null;
  parent_pause: number | null;
}

/**
 * Ends the pauses of a run that ends: those whose deadline has passed by timeout, the others as `status` says. The next
 * claims cancel the children of these. If the run is a child, its parent is told.
 */
export function closePauses(db: SqliteDatabase, run: EndingRun, status: "closed" | "cancelled", now: number): void {
  if (run.has_pauses === 1) endPauses(db, run.seq, status, now);
  if (run.parent_seq !== null && run.parent_pause !== null) endChild(db, run.parent_seq, run.parent_pause, now);
}

function endPauses(db: SqliteDatabase, runSeq: number, status: "closed" | "cancelled", now: number): void {
  commitDeadlines(db, runSeq, now);
  db.run(
    `INSERT OR IGNORE INTO holdfast_orphans
     SELECT run_seq FROM holdfast_pauses WHERE run_seq = ? AND kind = 'children' AND status = 'pending' LIMIT 1`,
    runSeq,
  );
  db.run(
    "UPDATE holdfast_pauses SET status = ? WHERE run_seq = ? AND status = 'pending' AND kind <> 'patch'",
    status,
    runSeq,
  );
}

/** Counts the end of a child, and resolves the pause of its parent if it was the last child. */
function endChild(db: SqliteDatabase, parentSeq: number, pauseSeq: number, now: number): void {
  const pause = db.get<{ unfinished: number }>(
    `UPDATE holdfast_pauses SET unfinished = unfinished - 1 WHERE seq = ? AND run_seq = ? AND status = 'pending'
     RETURNING unfinished`,
    pauseSeq,
    parentSeq,
  );
  if (pause?.unfinished === 0) resolveChildren(db, parentSeq, pauseSeq, now);
}
