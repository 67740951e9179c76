import type { Fact } from "../fact.ts";
import type { Cursor, JournalPage, JournalRow } from "../journal.ts";
import type { SqliteDatabase, SqliteRow } from "./sqlite_database.ts";

// How many rows a page has at most.
const MAX_ROWS = 500;

/** Reads what was committed after a position. See `Store.readJournal()`. */
export function readJournal(db: SqliteDatabase, after: number, maxLength: number): JournalPage | null {
  const end = readEnd(db);
  // That is so most of the time, and one statement is one moment.
  return after === end.position ? { rows: [], end } : db.snapshot(() => readPage(db, after, maxLength));
}

function readPage(db: SqliteDatabase, after: number, maxLength: number): JournalPage | null {
  const end = readEnd(db);
  if (after > end.position || isTrimmed(db, after)) return null;
  const sizes = db.all(
    `SELECT position, octet_length(facts) AS bytes FROM holdfast_journal WHERE position > ?
     ORDER BY position LIMIT ${MAX_ROWS}`,
    after,
  );
  const rows = db.all(
    "SELECT position, at, facts FROM holdfast_journal WHERE position > ? AND position <= ? ORDER BY position",
    after,
    lastOfPage(sizes, maxLength),
  );
  return { rows: rows.map(toJournalRow), end };
}

/** Where the journal ends. */
export function readEnd(db: SqliteDatabase): Cursor {
  const row = db.get("SELECT max(position) AS position, at FROM holdfast_journal");
  return { position: Number(row?.position ?? 0), at: Number(row?.at ?? 0) };
}

/** Whether something was removed that came after a position. */
function isTrimmed(db: SqliteDatabase, after: number): boolean {
  // `size` counts all facts that there ever were: that of the first row is its own.
  const row = db.get(
    `SELECT min(position), size > octet_length(facts) AND position - json_array_length(facts) > ? AS is_trimmed
     FROM holdfast_journal`,
    after,
  );
  return Number(row?.is_trimmed ?? 0) === 1;
}

/** The position of the last of the first rows that have so many characters; of the first one, if it has more. */
function lastOfPage(sizes: readonly SqliteRow[], maxLength: number): number {
  let length = 0;
  const tooMuch = sizes.findIndex(({ bytes }) => (length += Number(bytes)) > maxLength);
  return Number(sizes.at(tooMuch === -1 ? -1 : Math.max(0, tooMuch - 1))!.position);
}

function toJournalRow(row: SqliteRow): JournalRow {
  return {
    position: Number(row.position),
    at: Number(row.at),
    facts: JSON.parse(row.facts as string) as Fact[],
  };
}

/** The end of the journal, or a cursor if it is a place in it. See `Store.findCursor()`. */
export function findCursor(db: SqliteDatabase, cursor: Cursor | null): Cursor | null {
  if (cursor === null) return readEnd(db);
  const { position, at } = cursor;
  const isPlace = position === 0 ? at === 0 && !isTrimmed(db, 0) : isRow(db, cursor);
  return isPlace ? { position, at } : null;
}

function isRow(db: SqliteDatabase, { position, at }: Cursor): boolean {
  return db.get("SELECT 1 FROM holdfast_journal WHERE position = ? AND at = ?", position, at) !== undefined;
}
