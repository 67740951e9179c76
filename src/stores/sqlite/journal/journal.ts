import type { SqliteDatabase } from "../sqlite_database.ts";
import { raw, sql } from "../statement.ts";

// The maximum size of the journal in bytes of facts, and the maximum age of a row.
const MAX_BYTES = 33_554_432;
const MAX_AGE_MS = 3_600_000;
// The writer trims the journal each time it has written this many more bytes.
const TRIM_EACH_BYTES = 16_384;
// The maximum number of rows that are removed at once: many more than are added meanwhile.
const MAX_TRIMMED = 2_000;

// Runs, steps and facts share one sequence of numbers, in the order of the commits. So the row of a run serves as the
// fact that it was triggered, and the row of most steps as the fact that the step has ended: nothing is written
// twice. Within a commit the facts in the journal come last. A number is never used again: deleting a run notes a
// fact, with a higher number, and the newest row of the journal is never removed.

/** The column `fact_in_row` of a step: which fact its row is. */
export const FactInRow = {
  /** None: the journal has one. */
  none: 0,
  /** The fact that the step began and ended. */
  startAndEnd: 1,
  /** The fact that the step ended. */
  end: 2,
} as const;

/** Draws the number of a run or a step that is added by the open transaction. */
export function drawNumber(db: SqliteDatabase): number {
  return drawNumbers(db, 1);
}

/** Draws several numbers, one after another, and returns the last of them. */
export function drawNumbers(db: SqliteDatabase, count: number): number {
  return db.facts.drawNumbers(count, () => readLastNumber(db));
}

const LAST_NUMBER = sql`max(coalesce((SELECT max(position) FROM holdfast_journal), 0),
  coalesce((SELECT max(seq) FROM holdfast_runs), 0), coalesce((SELECT max(seq) FROM holdfast_steps), 0))`;

/** The next number, as an expression in the statement that adds the row: faster than a statement of its own. */
export const NEXT_NUMBER = `${LAST_NUMBER.text} + 1`;

/**
 * Draws a number, unless it is the first one of the transaction, which may be its only one: that is
 * {@linkcode NEXT_NUMBER}.
 */
export function drawUnlessFirst(db: SqliteDatabase): number | null {
  return db.facts.isFirstDraw() ? null : drawNumber(db);
}

function readLastNumber(db: SqliteDatabase): number {
  return db.one<{ number: number }>`SELECT ${LAST_NUMBER} AS number`.number;
}

/** Writes the facts of the open transaction as one row of the journal. */
export function writeJournal(db: SqliteDatabase, clock: () => number): void {
  if (db.facts.length > 0) appendRow(db, clock());
  db.facts.clear();
}

function appendRow(db: SqliteDatabase, now: number): void {
  const last = db.one<{ number: number; size: number | null }>`
    SELECT ${LAST_NUMBER} AS number, (SELECT size FROM (SELECT max(position), size FROM holdfast_journal)) AS size`;
  const text = JSON.stringify(db.facts.all);
  const size = last.size ?? 0;
  db.run`INSERT INTO holdfast_journal (position, at, size, facts)
    SELECT ${db.facts.drawNumbers(db.facts.length, () => last.number)}, ${now}, ${size} + octet_length(facts), facts
      FROM (SELECT ${text} AS facts)`;
  const after = size + text.length;
  if (Math.floor(after / TRIM_EACH_BYTES) > Math.floor(size / TRIM_EACH_BYTES)) trimBySize(db, after - MAX_BYTES);
  // A store that always has a little work never comes to the upkeep of an idle one.
  if (db.facts.isFirstInMinute(now)) trimByAge(db, now);
}

// Only the oldest rows are removed, so that every reader notices a gap. The newest one is never removed: its number
// would be used again.

/**
 * Removes the oldest rows of a journal that is too long.
 *
 * @param maxSize The `size` of the last row to remove, at most.
 */
export function trimBySize(db: SqliteDatabase, maxSize: number): void {
  const oldest = db.one<{ size: number | null }>`SELECT min(position), size FROM holdfast_journal`;
  if ((oldest.size ?? 0) > maxSize) return;
  db.run`DELETE FROM holdfast_journal WHERE size <= ${maxSize} AND position IN
    (SELECT position FROM holdfast_journal ORDER BY position LIMIT ${raw(MAX_TRIMMED)})`;
}

/**
 * Removes rows that are too old, so that facts of deleted runs do not stay for long in an idle system. The newest of
 * the old rows stays: a reader that has read up to it has missed nothing.
 */
export function trimByAge(db: SqliteDatabase, now: number): void {
  const oldest = db.one<{ at: number | null }>`SELECT min(position), at FROM holdfast_journal`;
  if (oldest.at === null || oldest.at > now - MAX_AGE_MS) return;
  db.run`WITH oldest AS (SELECT position, at FROM holdfast_journal ORDER BY position LIMIT ${raw(MAX_TRIMMED + 1)})
    DELETE FROM holdfast_journal WHERE position < (SELECT max(position) FROM oldest WHERE position <
      coalesce((SELECT min(position) FROM oldest WHERE at > ${now - MAX_AGE_MS}), (SELECT max(position) + 1
        FROM oldest)))`;
}
