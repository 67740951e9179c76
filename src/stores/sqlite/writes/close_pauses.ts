import type { SqliteDatabase } from "../sqlite_database.ts";
import { commitDeadlines, resolveChildren } from "./pause_resolution.ts";

/**
 * Ends the pauses of a run that ends: those whose deadline has passed by timeout, the others as `status` says. The next
 * claims cancel the children of these. It is called for each run with `has_pauses` 1.
 */
export function closePauses(
  db: SqliteDatabase,
  runSeq: number,
  status: "closed" | "cancelled",
  now: number,
): void {
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
  endChild(db, runSeq, now);
}

/** If the run is a child, counts its end, and resolves the pause of its parent if it was the last child. */
function endChild(db: SqliteDatabase, runSeq: number, now: number): void {
  const child = db.get<{ parent_seq: number; pause_seq: number }>(
    "UPDATE holdfast_child_runs SET is_open = 0 WHERE run_seq = ? AND is_open = 1 RETURNING parent_seq, pause_seq",
    runSeq,
  );
  if (child === undefined) return;
  const pause = db.get<{ unfinished: number }>(
    `UPDATE holdfast_pauses SET unfinished = unfinished - 1 WHERE seq = ? AND run_seq = ? AND status = 'pending'
     RETURNING unfinished`,
    child.pause_seq,
    child.parent_seq,
  );
  if (pause?.unfinished === 0) resolveChildren(db, child.parent_seq, child.pause_seq, now);
}
