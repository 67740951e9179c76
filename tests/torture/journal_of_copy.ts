import { type JournalRow, parseCursor } from "../../src/model/journal.ts";
import { SqliteDatabase } from "../../src/stores/sqlite/sqlite_database.ts";
import { findCursor } from "../../src/stores/sqlite/journal/read_journal.ts";
import { readKeptFrom, readRows } from "./known_journal.ts";
import { withDatabase } from "./with_database.ts";

/** All that the journal of a copy has. A copy may be as old as a file without tables. */
export function readJournalOfCopy(path: string): JournalRow[] {
  return withDatabase(path, (database) => {
    const tables = database.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'holdfast_journal'").all();
    return tables.length === 0 ? [] : readRows(database, readKeptFrom(database))!;
  });
}

/** Those of some ids that are places in the journal of a copy. */
export function findKnown(path: string, ids: readonly string[]): string[] {
  return withDatabase(path, (database) => {
    const db = new SqliteDatabase(database);
    return ids.filter((id) => findCursor(db, parseCursor(id)) !== null);
  });
}
