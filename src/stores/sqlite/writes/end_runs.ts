import { undoName } from "../../../model/end.ts";
import type { RunStatus } from "../../../model/run.ts";
import type { JsonText } from "../../../values/json.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";

/** The open run that cleans up after a run. */
export function findOpenEnd(
  db: SqliteDatabase,
  runId: string,
  { on_end }: { on_end: JsonText | null },
): { id: string; status: RunStatus } | undefined {
  if (on_end === null) return undefined;
  return db.get("SELECT id, status FROM holdfast_runs WHERE end_of = ? AND completed_at IS NULL", runId);
}

/** The completed steps of a run that its end runs have undone, with the end run that did. */
export function readUndone(
  db: SqliteDatabase,
  { seq, id, on_end }: { seq: number; id: string; on_end: JsonText | null },
): Map<string, string> {
  const undone = new Map<string, string>();
  if (on_end === null) return undone;
  const undoing = db.all<{ id: string; name: string }>(
    `SELECT r.id, s.name FROM holdfast_runs r CROSS JOIN holdfast_steps s ON s.run_seq = r.seq
     WHERE r.end_of = ? AND s.status = 'completed' AND s.name LIKE 'undo %' ORDER BY r.seq DESC`,
    id,
  );
  const undoers = new Map(undoing.map(({ id, name }) => [name, id])); // the oldest of several
  for (const { name } of db.all<{ name: string }>("SELECT name FROM holdfast_steps WHERE run_seq = ?", seq)) {
    const undoer = undoers.get(undoName(name));
    if (undoer !== undefined) undone.set(name, undoer);
  }
  return undone;
}
