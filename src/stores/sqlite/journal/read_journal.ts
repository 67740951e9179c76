import { actorOf, type OriginText } from "../../../model/origin.ts";
import { isoTime } from "../../../values/iso_time.ts";
import { type Fact, type FactValue, type FactValueRef, triggeredFact } from "../../../model/fact.ts";
import type { Cursor, JournalPage, JournalRow } from "../../../model/journal.ts";
import type { JsonText } from "../../../values/json.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { isAmong, joined, raw, sql } from "../statement.ts";
import { FactInRow } from "./journal.ts";
import type { RunIdentity } from "../../../model/run.ts";
import { PartBuilder } from "../../part_builder.ts";
import { type FactValueRow, type IdentityRow, toFactValue, toRunIdentity } from "../../rows.ts";

// The maximum number of rows of a page.
const MAX_ROWS = 500;
// About how many characters the fact in a row of a run or a step has, without the name of the step.
const TRIGGER_LENGTH = 20;
const STEP_LENGTH = 60;

/**
 * Reads what was committed after a position: rows of the journal, of runs and of steps, merged by their numbers. See
 * `Store.readJournal()`.
 */
export function readJournal(db: SqliteDatabase, after: number, maxLength: number): JournalPage | null {
  const end = readEnd(db);
  // The common case; a single statement reads one consistent state.
  return after === end.position ? { rows: [], end } : db.snapshot(() => readPage(db, after, maxLength));
}

function readPage(db: SqliteDatabase, after: number, maxLength: number): JournalPage | null {
  const end = readEnd(db);
  if (after === end.position) return { rows: [], end }; // the commit came between the two reads of the end
  if (after > end.position || isTrimmed(db, after)) return null;
  const last = findLast(db, after, maxLength);
  const rows = [...readFacts(db, after, last), ...readTriggers(db, after, last), ...readSteps(db, after, last)];
  return { rows: rows.sort((one, other) => one.position - other.position), end };
}

/** The end of the journal. */
export function readEnd(db: SqliteDatabase): Cursor {
  const rows = db.all<Cursor | { position: number | null; at: null }>`
    SELECT max(position) AS position, at FROM holdfast_journal
    UNION ALL SELECT max(seq), created_at FROM holdfast_runs
    UNION ALL SELECT max(seq), iif(fact_in_row > 0, completed_at, NULL) FROM holdfast_steps`;
  // A step whose row is not its fact has one in the journal, further on.
  return rows.filter((row) => row.at !== null).map(toCursor)
    .reduce((last, cursor) => cursor.position > last.position ? cursor : last, { position: 0, at: 0 });
}

/** Whether rows after a position were removed. */
function isTrimmed(db: SqliteDatabase, after: number): boolean {
  // `size` counts the bytes of all facts up to the row: that of the very first row is its own size.
  const row = db.one<{ is_trimmed: number | null }>`
    SELECT min(position), size > octet_length(facts) AND position - json_array_length(facts) > ${after} AS is_trimmed
    FROM holdfast_journal`;
  return row.is_trimmed === 1;
}

/** The position of the last row of a page of so many characters; that of the first row, if it alone has more. */
function findLast(db: SqliteDatabase, after: number, maxLength: number): number {
  const rows = db.all<{ position: number; length: number }>`
    SELECT position, octet_length(facts) AS length FROM holdfast_journal WHERE position > ${after}
    UNION ALL SELECT seq, ${raw(TRIGGER_LENGTH)} FROM holdfast_runs WHERE seq > ${after}
    UNION ALL SELECT seq, ${raw(STEP_LENGTH)} + octet_length(name) FROM holdfast_steps
      WHERE seq > ${after} AND fact_in_row > 0
    ORDER BY position LIMIT ${raw(MAX_ROWS)}`;
  let sum = 0;
  const tooMuch = rows.findIndex(({ length }) => (sum += length) > maxLength);
  return rows.at(tooMuch === -1 ? -1 : Math.max(0, tooMuch - 1))!.position; // the end is after `after`: there is a row
}

function readFacts(db: SqliteDatabase, after: number, last: number): JournalRow[] {
  const rows = db.all<Cursor & { facts: JsonText }>`
    SELECT position, at, facts FROM holdfast_journal WHERE position > ${after} AND position <= ${last}`;
  return rows.map((row) => ({ ...toCursor(row), facts: JSON.parse(row.facts) }));
}

function readTriggers(db: SqliteDatabase, after: number, last: number): JournalRow[] {
  interface TriggerRow extends Cursor {
    start_at: number | null;
    parent_id: string | null;
    schedule_name: string | null;
    slot_at: number | null;
    trace: OriginText | null;
  }
  const rows = db.all<TriggerRow>`
    SELECT seq AS position, created_at AS at, start_at, parent_id, schedule_name, slot_at, trace
    FROM holdfast_runs WHERE seq > ${after} AND seq <= ${last}`;
  return rows.map((row) => {
    const schedule = row.schedule_name === null ? null : { name: row.schedule_name, slotAt: isoTime(row.slot_at) };
    const fact = triggeredFact(row.position, row.start_at, row.parent_id, schedule, actorOf(row.trace));
    return { ...toCursor(row), facts: [fact] };
  });
}

function readSteps(db: SqliteDatabase, after: number, last: number): JournalRow[] {
  const rows = db.all<StepFactRow>`
    SELECT seq AS position, completed_at AS at, run_seq, name, position AS step_index, status, fact_in_row, attempts,
      started_at
    FROM holdfast_steps WHERE seq > ${after} AND seq <= ${last} AND fact_in_row > 0`;
  return rows.map((row) => ({ ...toCursor(row), facts: [toStepFact(row)] }));
}

/** A row of a step that is a fact. */
interface StepFactRow extends Cursor {
  run_seq: number;
  name: string;
  step_index: number;
  status: "completed" | "failed";
  fact_in_row: number;
  attempts: number;
  started_at: number;
}

/** The fact in the row of a step. */
function toStepFact(row: StepFactRow): Fact {
  const { run_seq: run, name, step_index: index, attempts, started_at: startedAt } = row;
  const start = row.fact_in_row === FactInRow.startAndEnd ? startedAt : null;
  return row.status === "completed"
    ? [run, "step_completed", name, index, attempts, start, row.at - startedAt]
    : [run, "step_failed", name, index, attempts, start, null, null];
}

/** The cursor of a row, without its other columns. */
function toCursor({ position, at }: Cursor): Cursor {
  return { position, at };
}

/** The end of the journal, or the given cursor if it is valid. See `Store.findCursor()`. */
export function findCursor(db: SqliteDatabase, cursor: Cursor | null): Cursor | null {
  if (cursor === null) return readEnd(db);
  const { position, at } = cursor;
  const isValid = position === 0 ? at === 0 : isRow(db, cursor);
  return isValid && !isTrimmed(db, position) ? { position, at } : null;
}

// How many rows of the journal are searched without a break.
const SEARCHED = 500;

/** The position of the last row after a position that has a fact about a run. See `Store.findLastFact()`. */
export function* findLastFact(
  db: SqliteDatabase,
  run: number,
  after: number,
  kinds: readonly Fact[1][] | null,
): Generator<void, number | null> {
  // Quotes within a string of a fact have a backslash before them.
  const beginnings = kinds === null ? [`[${run},"`] : kinds.map((kind) => `[${run},"${kind}"`);
  const isFound = joined(beginnings.map((beginning) => sql`instr(facts, ${beginning})`), " OR ");
  const inRows = kinds === null ? readLastOwnRow(db, run, after) : null;
  const first = Math.max(after, inRows ?? 0);
  for (let before = Number.MAX_SAFE_INTEGER;;) {
    const { rows, from, found } = db.one<{ rows: number; from: number | null; found: number | null }>`
      SELECT count(*) AS rows, min(position) AS "from", max(iif(${isFound}, position, NULL)) AS found
      FROM (SELECT position, facts FROM holdfast_journal WHERE position > ${first} AND position < ${before}
        ORDER BY position DESC LIMIT ${raw(SEARCHED)})`;
    if (found !== null) return found;
    if (rows < SEARCHED || from === null) return inRows;
    before = from;
    yield;
  }
}

/** The row of a run or of one of its steps that is a fact: the last one after a position. */
function readLastOwnRow(db: SqliteDatabase, run: number, after: number): number | null {
  return db.one<{ position: number | null }>`SELECT max(position) AS position FROM (
    SELECT seq AS position FROM holdfast_runs WHERE seq = ${run} AND seq > ${after}
    UNION ALL SELECT max(seq) FROM holdfast_steps WHERE run_seq = ${run} AND seq > ${after} AND fact_in_row > 0)`
    .position;
}

function isRow(db: SqliteDatabase, { position, at }: Cursor): boolean {
  const row = db.get`SELECT 1 FROM holdfast_journal WHERE position = ${position} AND at = ${at}
    UNION ALL SELECT 1 FROM holdfast_runs WHERE seq = ${position} AND created_at = ${at}
    UNION ALL SELECT 1 FROM holdfast_steps WHERE seq = ${position} AND fact_in_row > 0 AND completed_at = ${at}`;
  return row !== undefined;
}

/** The identities of runs, by their row numbers. See `Store.getRunIdentities()`. */
export function readIdentities(db: SqliteDatabase, runs: readonly number[]): (RunIdentity | null)[] {
  const rows = db.all<IdentityRow & { seq: number }>`
    SELECT seq, id, job, labels FROM holdfast_runs WHERE ${isAmong("seq", runs)}`;
  const identities = new Map(rows.map((row) => [row.seq, toRunIdentity(row)]));
  return runs.map((run) => identities.get(run) ?? null);
}

/**
 * Reads values that facts leave out, one by one, so that only returned values are read. See
 * `Store.readFactValues()`.
 */
export function readFactValues(
  db: SqliteDatabase,
  values: readonly FactValueRef[],
  maxLength: number,
): (FactValue | null)[] {
  const part = new PartBuilder<FactValue | null>(maxLength);
  part.add(values, (ref) => {
    const row = findValue(db, ref);
    return row === undefined ? null : toFactValue(row);
  });
  return part.items;
}

function findValue(db: SqliteDatabase, ref: FactValueRef): FactValueRow | undefined {
  switch (ref.of) {
    case "payload":
      return db.get<FactValueRow>`SELECT payload AS json FROM holdfast_inputs WHERE run_seq = ${ref.run}`;
    case "output":
      return db.get<FactValueRow>`SELECT output AS json FROM holdfast_runs WHERE seq = ${ref.run}`;
    case "failure":
      return db.get<FactValueRow>`SELECT error, failed_step FROM holdfast_runs WHERE seq = ${ref.run}`;
    case "step":
      return db.get<FactValueRow>`
        SELECT output AS json, failure FROM holdfast_steps WHERE run_seq = ${ref.run} AND name = ${ref.stepName}`;
  }
}
