import { undoneSteps } from "../../../model/end.ts";
import { ConflictError } from "../../../model/error.ts";
import { isTerminal, type RunStatus } from "../../../model/run.ts";
import type { JsonText } from "../../../values/json.ts";
import { cleaningMessage, orphanMessage, readOnEnd, undoersOf, type UndoingRun } from "../../end_runs.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";

/** The open run that cleans up after a run. */
export function findOpenEnd(
  db: SqliteDatabase,
  runId: string,
  { on_end }: { on_end: JsonText | null },
): { id: string; status: RunStatus } | undefined {
  if (on_end === null) return undefined;
  return db.get`SELECT id, status FROM holdfast_runs WHERE end_of = ${runId} AND completed_at IS NULL`;
}

/**
 * Refuses a retry from the failure that would retry a child, or a child of one, which is still to be cleaned up after.
 */
export function checkChildren(db: SqliteDatabase, runSeq: number): void {
  const open = db.get<{ id: string; status: RunStatus; end_id: string; end_status: RunStatus }>`
    WITH RECURSIVE retried (seq) AS (
      SELECT ${runSeq}
      UNION SELECT m.run_seq FROM retried
        CROSS JOIN holdfast_pauses p ON p.run_seq = retried.seq AND p.kind = 'children'
        CROSS JOIN holdfast_children m ON m.pause_seq = p.seq
        CROSS JOIN holdfast_runs c ON c.seq = m.run_seq AND c.status <> 'completed'
      UNION SELECT o.seq FROM retried CROSS JOIN holdfast_runs r ON r.seq = retried.seq AND r.origin_id <> r.id
        CROSS JOIN holdfast_runs o ON o.id = r.retrigger_of)
    SELECT r.id, r.status, e.id AS end_id, e.status AS end_status FROM retried
    CROSS JOIN holdfast_runs r ON r.seq = retried.seq
    LEFT JOIN holdfast_runs e ON e.end_of = r.id AND e.completed_at IS NULL
    WHERE r.on_end IS NOT NULL AND (r.completed_at IS NULL OR e.seq IS NOT NULL) ORDER BY r.seq LIMIT 1`;
  if (open === undefined) return;
  const end = { id: open.end_id, status: open.end_status };
  throw new ConflictError(isTerminal(open.status) ? cleaningMessage(open.id, end) : orphanMessage(open.id));
}

/** The steps of a run that its end runs have undone, with the end run that did. */
export function readUndone(
  db: SqliteDatabase,
  { seq, id, on_end }: { seq: number; id: string; on_end: JsonText | null },
): Map<string, string> {
  if (on_end === null) return new Map();
  const ends = db.all<{ id: string; seq: number }>`SELECT id, seq FROM holdfast_runs WHERE end_of = ${id}`;
  const { deleted = [] } = readOnEnd(on_end);
  const undoers = undoersOf([...ends.map((end) => readUndoing(db, end)), ...deleted]);
  const recorded = db.all<{ name: string }>`SELECT name FROM holdfast_steps WHERE run_seq = ${seq}`;
  return undoneSteps(undoers, recorded.map(({ name }) => name));
}

function readUndoing(db: SqliteDatabase, { id, seq }: { id: string; seq: number }): UndoingRun {
  const steps = db.all<{ name: string }>`
    SELECT name FROM holdfast_steps WHERE run_seq = ${seq} AND status = 'completed' AND name GLOB 'undo *'`;
  return { id, seq, undoing: steps.map(({ name }) => name) };
}

/** Notes in a run what its end run has undone, which is about to be deleted. */
export function keepUndone(db: SqliteDatabase, end: { seq: number; id: string; end_of: string }): void {
  const { undoing } = readUndoing(db, end);
  const run = undoing.length === 0 ? undefined : db.get<{ on_end: JsonText }>`
    SELECT on_end FROM holdfast_runs WHERE id = ${end.end_of} AND on_end IS NOT NULL`;
  if (run === undefined) return;
  const onEnd = readOnEnd(run.on_end);
  const deleted = [...onEnd.deleted ?? [], { id: end.id, seq: end.seq, undoing }];
  db.run`UPDATE holdfast_runs SET on_end = ${JSON.stringify({ ...onEnd, deleted })} WHERE id = ${end.end_of}`;
}
