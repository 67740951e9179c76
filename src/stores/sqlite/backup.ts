import { StoreError } from "../../model/error.ts";
import { createDatabaseFile } from "./connection.ts";
import { type SqliteDriver, storeError } from "./sqlite_database.ts";

// A copy that is made in several steps begins anew whenever another process commits in between.
const ALL_PAGES = 2 ** 31 - 1;

/** The part of `better-sqlite3` that makes copies. */
interface BetterSqlite3 extends SqliteDriver {
  pragma: unknown;
  backup(path: string, options: { progress: () => number }): Promise<unknown>;
}

/**
 * Writes a consistent copy of a database to a new file, which only its owner can read.
 *
 * @throws {StoreError} The file exists, or cannot be written.
 */
export async function backUp(driver: SqliteDriver, path: string): Promise<void> {
  const refusal = `Cannot back up to "${path}"`;
  const { readlinkSync, rmSync } = await import("node:fs");
  // A link to no file is refused, too: to create that file would leave it behind.
  if (isLink(path, readlinkSync) || !await createDatabaseFile(path, refusal)) {
    throw new StoreError(`${refusal}: the file exists; name a new file, or remove this one first`);
  }
  try {
    await copyInto(driver, path);
  } catch (error) {
    for (const beside of ["", "-journal", "-wal", "-shm"]) rmSync(`${path}${beside}`, { force: true });
    throw storeError(error, { refusal });
  }
}

function isLink(path: string, readlink: (path: string) => string): boolean {
  try {
    return readlink(path) !== "";
  } catch {
    return false; // it is no link, or there is nothing
  }
}

/** Fills an empty file with a copy. */
async function copyInto(driver: SqliteDriver, path: string): Promise<void> {
  if (isBetterSqlite3(driver)) return void await driver.backup(path, { progress: () => ALL_PAGES });
  const sqlite = await import("node:sqlite").catch(() => null); // not every runtime has it
  if (sqlite !== null && driver instanceof sqlite.DatabaseSync) {
    return void await sqlite.backup(driver, path, { rate: ALL_PAGES });
  }
  driver.prepare("VACUUM INTO ?").run(path);
}

/** Whether a driver is `better-sqlite3`. The `backup()` of `jsr:@db/sqlite` takes a database instead of a path. */
function isBetterSqlite3(driver: SqliteDriver): driver is BetterSqlite3 {
  return "pragma" in driver && "backup" in driver;
}
