import { exportHistory } from "../../engine/runs/export_history.ts";
import { checkHistory, type ExportedHistory } from "../../model/exported_history.ts";
import { ENDED, OPEN } from "../../model/run.ts";
import type { Store } from "../../store/store.ts";
import type { RunQuery } from "../../store/run_query.ts";
import type { SqliteDriver } from "../../stores/sqlite/sqlite_database.ts";
import { toFailure } from "../../model/to_failure.ts";
import { UsageError } from "./command_options.ts";
import { readdir, readFile, stat } from "node:fs/promises";
import { join } from "node:path";

/** Which runs to read. */
interface RunChoice {
  /** The jobs of which open runs are read; `null`: all. */
  open: readonly string[] | null;
  /** The names and aliases of each job of which ended runs are read. */
  ended: readonly (readonly string[])[];
  /** How many of the newest ended runs of each job. */
  recent: number;
}

const PAGE = 500;
const MIGRATE_FIRST = "; a database of an older version has to be migrated first: call engine.migrate() on a copy";

/**
 * Reads the histories of a database: of the open runs, then of the newest ended ones of each job. The database is only
 * read, but SQLite may leave the files `-shm` and `-wal` beside it.
 *
 * @throws {UsageError} It cannot be opened, or is no database of this version.
 */
export async function* readDatabase(path: string, choice: RunChoice): AsyncGenerator<ExportedHistory> {
  const { DatabaseSync } = await import("node:sqlite");
  const { SqliteStore } = await import("../../stores/sqlite/sqlite_store.ts");
  const { SqliteDatabase } = await import("../../stores/sqlite/sqlite_database.ts");
  const { MIGRATIONS, readVersion } = await import("../../stores/sqlite/schema.ts");
  const database = attempt(path, () => new DatabaseSync(path, { readOnly: true }));
  try {
    const driver = database as unknown as SqliteDriver; // as in SqliteStore.open()
    const version = readVersion(new SqliteDatabase(driver));
    if (version === 0) throw new UsageError(`${path} has no tables of Holdfast`);
    if (version !== MIGRATIONS.length) {
      const what = `${path} has tables of version ${version}, and this version of Holdfast knows ${MIGRATIONS.length}`;
      throw new UsageError(`${what}${version < MIGRATIONS.length ? MIGRATE_FIRST : "; use a newer one"}`);
    }
    const store = await SqliteStore.from(reading(driver));
    try {
      for await (const id of findIds(store, choice)) {
        const history = await exportHistory(store, id);
        if (history !== null) yield history; // it may be deleted meanwhile
      }
    } finally {
      await store.close();
    }
  } catch (error) {
    throw refusal(path, error);
  } finally {
    database.close();
  }
}

async function* findIds(store: Store, { open, ended, recent }: RunChoice): AsyncGenerator<string> {
  yield* findPages(store, open === null ? { status: OPEN } : { status: OPEN, jobName: open }, Infinity);
  for (const jobName of ended) yield* findPages(store, { status: ENDED, jobName }, recent);
}

async function* findPages(store: Store, query: RunQuery, most: number): AsyncGenerator<string> {
  let left = most;
  let page: RunQuery = { ...query, countUpTo: 0 };
  while (left > 0) {
    const { ids, seqs, hasMore } = await store.findRuns({ ...page, limit: Math.min(PAGE, left) });
    yield* ids;
    if (!hasMore) return;
    left -= ids.length;
    page = { ...page, before: seqs.at(-1)! }; // a page with more after it has a last run
  }
}

/** A driver that leaves the journal of the database as it is: the file cannot be written. */
function reading(driver: SqliteDriver): SqliteDriver {
  return {
    exec: (sql) => driver.exec(sql),
    prepare: (sql) => driver.prepare(sql === "PRAGMA journal_mode = WAL" ? "PRAGMA journal_mode" : sql),
  };
}

function attempt<T>(path: string, open: () => T): T {
  try {
    return open();
  } catch (error) {
    throw refusal(path, error);
  }
}

function refusal(path: string, error: unknown): UsageError {
  if (error instanceof UsageError) return error;
  const { message } = toFailure(error);
  const advice = /no such (table|column)/.test(message) ? MIGRATE_FIRST : "";
  return new UsageError(`Cannot read the database ${path}: ${message}${advice}`, { cause: error });
}

/**
 * Reads exported histories from files, and from the `.json` files of folders. A file has one history, or an array.
 *
 * @throws {UsageError} A file cannot be read, or has something else.
 */
export async function* readFiles(paths: readonly string[]): AsyncGenerator<ExportedHistory> {
  for (const path of paths) {
    for (const file of await findFiles(path)) yield* await readHistories(file);
  }
}

async function findFiles(path: string): Promise<string[]> {
  try {
    if (!(await stat(path)).isDirectory()) return [path];
    const names = (await readdir(path)).filter((name) => name.endsWith(".json")).sort();
    if (names.length === 0) throw new UsageError(`There is no .json file in ${path}`); // nothing would be checked
    return names.map((name) => join(path, name));
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw new UsageError(`Cannot read ${path}: ${toFailure(error).message}`, { cause: error });
  }
}

async function readHistories(file: string): Promise<ExportedHistory[]> {
  try {
    const value: unknown = JSON.parse(await readFile(file, "utf8"));
    return (Array.isArray(value) ? value : [value]).map((history) => checkHistory(history));
  } catch (error) {
    throw new UsageError(`Cannot use ${file}: ${toFailure(error).message}`, { cause: error });
  }
}
