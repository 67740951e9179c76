import { undoneSteps } from "../../../model/end.ts";
import { ConflictError } from "../../../model/error.ts";
import type { RunStatus } from "../../../model/run.ts";
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
 * Refuses a retry from the failure while a later run with the same steps is cleaned up after, or one that would retry a
 * child, or a child of one, which is still to be cleaned up after.
 */
export function checkOpenEnds(db: SqliteDatabase, runSeq: number): void {
  const open = db.get<{ id: string; end_id: string | null; end_status: RunStatus; end_of: string }>`
    WITH RECURSIVE retried (seq, is_child) AS (
      SELECT ${runSeq}, 0
      UNION SELECT m.run_seq, 1 FROM retried
        CROSS JOIN holdfast_pauses p ON p.run_seq = retried.seq AND p.kind = 'children'
        CROSS JOIN holdfast_children m ON m.pause_seq = p.seq
        CROSS JOIN holdfast_runs c ON c.seq = m.run_seq AND c.status <> 'completed'
      UNION SELECT o.seq, 0 FROM retried CROSS JOIN holdfast_runs r ON r.seq = retried.seq AND r.origin_id <> r.id
        CROSS JOIN holdfast_runs o ON o.id = r.retrigger_of)
    SELECT r.id, e.id AS end_id, e.status AS end_status, e.end_of FROM retried
    CROSS JOIN holdfast_runs r ON r.seq = retried.seq
    LEFT JOIN holdfast_runs e ON e.completed_at IS NULL AND e.end_of IN (SELECT r.id UNION ALL
      SELECT n.id FROM holdfast_runs n WHERE n.origin_id = ifnull(r.origin_id, r.id) AND n.seq > r.seq)
    WHERE e.seq IS NOT NULL OR (is_child AND r.on_end IS NOT NULL AND r.completed_at IS NULL) ORDER BY r.seq LIMIT 1`;
  if (open === undefined) return;
  const { id, end_id: endId, end_status: status, end_of: endOf } = open;
  throw new ConflictError(endId === null ? orphanMessage(id) : cleaningMessage(endOf, { id: endId, status }));
}

/**
 * The steps of a run, and of the later ones that have its steps, that their end runs have undone, with the end run that
 * did last.
 */
export function readUndone(db: SqliteDatabase, old: { seq: number; origin_id: string }): Map<string, string> {
  const runs = db.all<UndoneRun>`
    SELECT seq, id, on_end FROM holdfast_runs WHERE on_end IS NOT NULL
      AND (seq = ${old.seq} OR (origin_id = ${old.origin_id} AND seq > ${old.seq})) ORDER BY seq`;
  return new Map(runs.flatMap((run) => [...readUndoneIn(db, run)]));
}

/** A run that has end runs. */
interface UndoneRun {
  seq: number;
  id: string;
  on_end: JsonText;
}

function readUndoneIn(db: SqliteDatabase, { seq, id, on_end }: UndoneRun): Map<string, string> {
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
