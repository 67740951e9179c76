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
 * Until it is complete and on the disk it is called `PATH.partial`: the beginning of a copy, with its journal beside it,
 * would pass for an empty database. What a process that was killed has left under that name is replaced.
 *
 * @throws {StoreError} The file exists, or cannot be written.
 */
export async function backUp(driver: SqliteDriver, path: string): Promise<void> {
  const refusal = `Cannot back up to "${path}"`;
  const { lstatSync, rmSync } = await import("node:fs");
  const partial = `${path}.partial`;
  const remove = () => {
    for (const beside of ["", "-journal", "-wal", "-shm"]) rmSync(`${partial}${beside}`, { force: true });
  };
  // Not `stat`: a link to no file is refused, too.
  const existing = orNull(() => lstatSync(path));
  if (existing?.isDirectory()) throw new StoreError(`${refusal}: it is a directory; name a file in it`);
  if (existing !== null) throw fileExists(refusal);
  let isOurs = () => false;
  try {
    remove();
    const meanwhile = new StoreError(`${refusal}: another backup to it has begun meanwhile`);
    if (!await createDatabaseFile(partial, refusal)) throw meanwhile;
    const { ino } = lstatSync(partial);
    isOurs = () => orNull(() => lstatSync(partial))?.ino === ino;
    await copyInto(driver, partial);
    if (!isOurs()) throw meanwhile;
    await giveName(partial, path, refusal);
    remove();
  } catch (error) {
    if (isOurs()) remove();
    throw storeError(error, { refusal });
  }
}

function orNull<T>(look: () => T): T | null {
  try {
    return look();
  } catch {
    return null; // there is nothing, or not even its directory
  }
}

function fileExists(refusal: string): StoreError {
  return new StoreError(`${refusal}: the file exists; name a new file, or remove this one first`);
}

/** Gives a complete copy its name, without replacing a file that has been made there meanwhile. */
async function giveName(partial: string, path: string, refusal: string): Promise<void> {
  const { closeSync, fsyncSync, linkSync, lstatSync, openSync, renameSync } = await import("node:fs");
  const file = openSync(partial, "r+");
  try {
    fsyncSync(file); // `VACUUM INTO` does not
  } finally {
    closeSync(file);
  }
  try {
    linkSync(partial, path);
  } catch {
    // It is there, or this file system has no links, and no other way that replaces nothing.
    if (orNull(() => lstatSync(path)) !== null) throw fileExists(refusal);
    renameSync(partial, path);
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
