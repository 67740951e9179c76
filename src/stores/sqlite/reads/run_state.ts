import type { RunState } from "../../../store/run_state.ts";
import { isoTime } from "../../../values/iso_time.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { readEnd } from "../journal/read_journal.ts";
import { readRetries } from "../writes/pauses.ts";
import { findRunRow, type PauseRow, toAwaitedPause, toRunText } from "../rows.ts";

/** Reads a run and its position in the journal. See `Store.getRunState()`. */
export function readRunState(db: SqliteDatabase, runId: string): RunState | null {
  const row = findRunRow(db, runId);
  if (row === undefined) return null;
  const { seq } = row;
  const pauses = row.status !== "waiting" ? [] : [
    ...db.all<PauseRow>`SELECT * FROM holdfast_pauses WHERE run_seq = ${seq} AND awaited = 1 ORDER BY seq`
      .map(toAwaitedPause),
    ...readRetries(db, seq),
  ];
  return {
    run: toRunText(row),
    seq,
    place: readEnd(db),
    trace: row.trace,
    execution: row.interruptions + 1,
    pauses: pauses.map(({ deadlineAt, ...pause }) => ({ ...pause, deadlineAt: isoTime(deadlineAt) })),
  };
}
