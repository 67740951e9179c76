import type { WaitOfJob } from "../../../store/transaction.ts";
import { toWaitOfJob } from "../../rows.ts";
import type { PauseRow } from "../rows.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";

/** A wait with the job of its run; `null`: there is none of this id. */
export function findWait(db: SqliteDatabase, waitId: string): WaitOfJob | null {
  const row = db.get<PauseRow & { run_id: string; job: string }>`
    SELECT p.*, r.id AS run_id, r.job FROM holdfast_pauses p JOIN holdfast_runs r ON r.seq = p.run_seq
    WHERE p.id = ${waitId} AND p.kind = 'wait'`;
  return row === undefined ? null : toWaitOfJob(row);
}

/**
 * The wait that a signal to this one is for, if it has ended with its run: that of its name in the newest retry from the
 * failure that has one, else itself; `null`: there is none of this id.
 */
export function findCurrentWait(db: SqliteDatabase, waitId: string): WaitOfJob | null {
  const row = db.get<PauseRow & { run_id: string; job: string }>(
    `WITH RECURSIVE retries (seq, retriggered_as, nth, wait_name) AS (
       SELECT r.seq, CASE WHEN p.status IN ('closed', 'cancelled') THEN r.retriggered_as END, 0, p.name
       FROM holdfast_pauses p JOIN holdfast_runs r ON r.seq = p.run_seq WHERE p.id = ? AND p.kind = 'wait'
       UNION ALL SELECT n.seq, n.retriggered_as, nth + 1, wait_name
       FROM retries JOIN holdfast_runs n ON n.id = retries.retriggered_as AND n.origin_id IS NOT NULL)
     SELECT p.*, r.id AS run_id, r.job FROM retries JOIN holdfast_runs r ON r.seq = retries.seq
     JOIN holdfast_pauses p ON p.run_seq = r.seq AND p.kind = 'wait' AND p.name = retries.wait_name
     ORDER BY nth DESC LIMIT 1`,
    waitId,
  );
  return row === undefined ? null : toWaitOfJob(row);
}
