import type { JsonText } from "../../../values/json.ts";
import type { RunHistory } from "../../../store/hold_record.ts";
import { readCopied } from "../changed_code/copies.ts";
import { readPauseRecords } from "../children/child_results.ts";
import { type ReplayedStepRow, toInput, toStepRecord } from "../../rows.ts";
import { findRunRow, type PauseRow, toRunText } from "../rows.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";

/** All that a replay of a run needs. See `Store.getHistory()`. */
export function readHistory(db: SqliteDatabase, runId: string, now: number): RunHistory | null {
  const row = findRunRow(db, runId);
  if (row === undefined) return null;
  const { seq, payload } = row;
  const { input, schema_print, slot, origin_id } = db.one<
    { input: JsonText | null; schema_print: string | null; slot: JsonText | null; origin_id: string | null }
  >`
    SELECT i.input, i.schema_print, r.slot, r.origin_id FROM holdfast_inputs i JOIN holdfast_runs r
      ON r.seq = i.run_seq
    WHERE i.run_seq = ${seq}`;
  const steps = db.all<ReplayedStepRow>`
    SELECT name, position, status, output, failure, attempts, retry_at, recorded_no
    FROM holdfast_steps WHERE run_seq = ${seq} AND status <> 'cancelled'`;
  const pauses = db.all<PauseRow>`SELECT * FROM holdfast_pauses WHERE run_seq = ${seq} ORDER BY seq`;
  return {
    run: toRunText(row),
    input: toInput({ payload, input }),
    schemaPrint: schema_print,
    slot,
    steps: steps.map((step) => toStepRecord(step, now)),
    pauses: readPauseRecords(db, pauses),
    copied: readCopied(db, seq),
    originId: origin_id ?? runId,
  };
}
