import type { RecordName } from "../../../model/hold.ts";
import type { JsonText } from "../../../values/json.ts";
import type { CopiedHistory } from "../../../store/hold_record.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { isAmong } from "../statement.ts";

/** What a run has as copies; `null`: it is no retry from the failure. */
export function readCopied(db: SqliteDatabase, runSeq: number): CopiedHistory | null {
  const row = db.get<{ copied_up_to: number; unfinished: JsonText; undone: JsonText | null }>`
    SELECT copied_up_to, unfinished, undone FROM holdfast_copies WHERE run_seq = ${runSeq}`;
  return row === undefined ? null : {
    upTo: row.copied_up_to,
    unfinished: JSON.parse(row.unfinished),
    ...(row.undone === null ? {} : { undone: JSON.parse(row.undone) }),
  };
}

/** A run and a retry of it from the failure. */
export interface Retry {
  seq: number;
  old: { seq: number; recorded: number };
}

/**
 * Writes what a retry has as copies. `pauses` are those of the old run that are not copied, `undone` its steps that end
 * runs have undone.
 */
export function writeCopied(
  db: SqliteDatabase,
  { seq, old }: Retry,
  pauses: readonly RecordName[],
  undone: ReadonlyMap<string, string>,
): void {
  const steps = db.all<{ name: string }>`SELECT name FROM holdfast_steps
    WHERE run_seq = ${old.seq} AND (status <> 'completed' OR ${isAmong("name", [...undone.keys()])})
    ORDER BY position, seq`;
  const former = readCopied(db, old.seq);
  const allUndone = { ...former?.undone, ...Object.fromEntries(undone) };
  const unfinished: RecordName[] = [
    ...former?.unfinished ?? [],
    ...steps.map(({ name }) => ({ kind: "step" as const, name })),
    ...pauses,
  ];
  const distinct = new Map(unfinished.map((record) => [`${record.kind} ${record.name}`, record]));
  const undoneText = Object.keys(allUndone).length === 0 ? null : JSON.stringify(allUndone);
  db.run`INSERT INTO holdfast_copies (run_seq, copied_up_to, unfinished, undone)
    VALUES (${seq}, ${old.recorded}, ${JSON.stringify([...distinct.values()])}, ${undoneText})`;
}
