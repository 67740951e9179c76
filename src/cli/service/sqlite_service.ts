import { type Stats, statSync } from "node:fs";
import { cwd } from "node:process";
import { fileURLToPath, pathToFileURL } from "node:url";
import { StoreError } from "../../model/error.ts";
import { SQLITE_CHECKS, SQLITE_RECOUNT, SQLITE_STUCK_CHECKS } from "../../stores/sqlite/checks.ts";
import { JSON_COLUMNS, notJson } from "../../stores/table_check.ts";
import { MIGRATIONS, readVersion } from "../../stores/sqlite/schema.ts";
import { SqliteDatabase } from "../../stores/sqlite/sqlite_database.ts";
import { SqliteStore } from "../../stores/sqlite/sqlite_store.ts";
import { toFailure } from "../../model/to_failure.ts";
import { checkVersion, type Database, type Service } from "./service.ts";
import { databaseService } from "./database_service.ts";

/**
 * Opens a SQLite file that exists.
 *
 * @throws {StoreError} It does not exist, or has no tables of this version.
 */
export async function openSqliteService(address: string, migrate: boolean, by?: string): Promise<Service> {
  const path = pathOf(address);
  const existing = lookAt(path);
  if (existing === null) throw new StoreError(`Cannot open "${path}": there is no such file`);
  if (existing.isDirectory()) throw new StoreError(`Cannot open "${path}": it is a directory; name a file in it`);
  const version = (reader: Reader) => readVersion(new SqliteDatabase(reader));
  if (!migrate) checkVersion(await withReader(path, version), MIGRATIONS.length, `The file "${path}"`);
  const { store, close } = await openStore(path);
  const prepare = async () => migrate ? await store.migrate() : undefined;
  return await databaseService("sqlite", store, databaseAt(path, store), { by, prepare, close });
}

/** The path of a file. `file:jobs.db` is in the current directory, as for SQLite. */
function pathOf(address: string): string {
  if (!address.startsWith("file:")) return address;
  try {
    return fileURLToPath(new URL(address, pathToFileURL(`${cwd()}/`)));
  } catch (error) {
    throw new StoreError(`Cannot open "${address}": ${toFailure(error).message}`, { cause: error });
  }
}

function lookAt(path: string): Stats | null {
  try {
    return statSync(path, { throwIfNoEntry: false }) ?? null;
  } catch (error) {
    throw new StoreError(`Cannot open "${path}": ${toFailure(error).message}`, { cause: error });
  }
}

/** Opens a store that can write if that is permitted, and reads otherwise: what writes is refused by SQLite then. */
async function openStore(path: string): Promise<{ store: SqliteStore; close: () => Promise<void> }> {
  try {
    const store = await SqliteStore.open(path);
    return { store, close: () => store.close() };
  } catch (error) {
    const { DatabaseSync } = await import("node:sqlite");
    let reader: Reader;
    try {
      reader = new DatabaseSync(path, { readOnly: true });
    } catch {
      throw error;
    }
    const store = await SqliteStore.from(reader);
    return { store, close: () => store.close().then(() => reader.close()) };
  }
}

function databaseAt(path: string, store: SqliteStore): Database {
  return {
    checks: SQLITE_CHECKS,
    stuckChecks: SQLITE_STUCK_CHECKS,
    select: (sql, limit) =>
      withReader(path, (reader) => {
        const rows: string[] = [];
        for (const { r } of reader.prepare(sql).iterate()) {
          if (rows.push(String(r)) === limit) break;
        }
        return rows;
      }),
    findBrokenValues: (limit) => withReader(path, (reader) => findBrokenValues(reader, limit)),
    recount: async () => {
      const { DatabaseSync } = await import("node:sqlite");
      const database = new DatabaseSync(path, { timeout: 10_000 });
      try {
        database.exec(SQLITE_RECOUNT);
      } finally {
        database.close();
      }
    },
    backup: (target) => store.backup(target),
  };
}

type Reader = InstanceType<typeof import("node:sqlite").DatabaseSync>;

/** Reads a file without a store: nothing is written to it. */
async function withReader<T>(path: string, read: (reader: Reader) => T): Promise<T> {
  const { DatabaseSync } = await import("node:sqlite");
  let reader: Reader;
  try {
    reader = new DatabaseSync(path, { readOnly: true, timeout: 10_000 });
  } catch (error) {
    throw refusal(path, error);
  }
  try {
    return read(reader);
  } catch (error) {
    throw refusal(path, error);
  } finally {
    reader.close();
  }
}

function refusal(path: string, error: unknown): StoreError {
  const { message } = toFailure(error);
  const code = /malformed|not a database/.test(message) ? "internal" : "unavailable";
  return new StoreError(`Cannot read "${path}": ${message}`, { cause: error, code });
}

function findBrokenValues(reader: Reader, limit: number): string[] {
  const found: string[] = [];
  for (const [table, columns] of Object.entries(JSON_COLUMNS)) {
    const run = table === "runs" ? "seq" : "run_seq";
    for (const column of columns) {
      const rows = reader.prepare(
        `SELECT r.id, t.${column} AS value FROM holdfast_${table} t JOIN holdfast_runs r ON r.seq = t.${run}
         WHERE t.${column} <> '' AND NOT json_valid(t.${column})`,
      );
      for (const { id, value } of rows.iterate()) {
        // SQLite also refuses values with more than 1,000 levels.
        if (!isJson(String(value))) found.push(notJson(String(id), table, column));
        if (found.length === limit) return found;
      }
    }
  }
  return found;
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
