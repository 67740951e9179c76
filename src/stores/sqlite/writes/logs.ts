import { fitLine, MAX_LOG_LINES, type NewLogEntry } from "../../../model/log.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";

/** Stores log lines. See `Store.appendLogs()`. */
export function appendLines(db: SqliteDatabase, entries: readonly NewLogEntry[]): void {
  for (const { id, runId, stepName, level, message, data, writtenAt } of entries.map(fitLine)) {
    const added = db.get<{ run_seq: number; no: number }>`
      INSERT INTO holdfast_logs (id, run_seq, no, step_name, level, message, data, written_at)
      SELECT ${id}, r.seq, coalesce((SELECT max(no) FROM holdfast_logs l WHERE l.run_seq = r.seq), 0) + 1,
        ${stepName}, ${level}, ${message}, ${data}, ${writtenAt}
      FROM holdfast_runs r WHERE r.id = ${runId} ON CONFLICT DO NOTHING RETURNING run_seq, no`;
    if (added === undefined || added.no <= MAX_LOG_LINES + 1) continue;
    // The last dropped line stays: `readLogs()` returns it as the line that reports how many were dropped.
    db.run`DELETE FROM holdfast_logs WHERE run_seq = ${added.run_seq} AND no < ${added.no - MAX_LOG_LINES}`;
  }
}
