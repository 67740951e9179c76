import type { WaitOfJob } from "../../../store/transaction.ts";
import { toWaitOfJob } from "../../rows.ts";
import type { PauseRow } from "../rows.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";

/** A wait with the job of its run; `null`: there is none of this id. */
export function findWait(db: SqliteDatabase, waitId: string): WaitOfJob | null {
  const row = db.get<PauseRow & { run_id: string; job: string }>(
    `SELECT p.*, r.id AS run_id, r.job FROM holdfast_pauses p JOIN holdfast_runs r ON r.seq = p.run_seq
     WHERE p.id = ? AND p.kind = 'wait'`,
    waitId,
  );
  return row === undefined ? null : toWaitOfJob(row);
}
