import { StoreError } from "../error.ts";
import { HeldRuns } from "./sqlite_held.ts";

/** What can be bound to a parameter, and what comes back from a column. */
export type SqliteValue = null | number | string;

/** A row: columns by name. */
export type SqliteRow = { [column: string]: SqliteValue };

/** What `node:sqlite`, `jsr:@db/sqlite` and `better-sqlite3` have in common, as far as it is used. */
export interface SqliteDriver {
  /** Runs statements without parameters. */
  exec(sql: string): unknown;
  /** Compiles one statement. */
  prepare(sql: string): SqliteDriverStatement;
}

/** A compiled statement of any driver. */
export interface SqliteDriverStatement {
  /** Runs it and answers the number of changed rows, in one of two forms. */
  run(...parameters: SqliteValue[]): unknown;
  /** Runs it and answers the first row. */
  get(...parameters: SqliteValue[]): unknown;
  /** Runs it and answers all rows. */
  all(...parameters: SqliteValue[]): unknown[];
}

/**
 * A database connection: keeps its statements compiled (four times as fast as compiling each time) and tells
 * what its errors mean.
 */
export class SqliteDatabase {
  readonly #driver: SqliteDriver;
  readonly #statements = new Map<string, SqliteDriverStatement>();
  readonly #columns = new Map<string, readonly string[]>();
  /** What is known of the runs that were claimed through this connection. */
  readonly held = new HeldRuns();
  /** By how much the open transaction has changed the numbers of runs, by status and job. */
  readonly counts = new Map<string, number>();

  /** Wraps an open connection. */
  constructor(driver: SqliteDriver) {
    this.#driver = driver;
  }

  /** Runs statements without parameters, such as the making of tables. */
  exec(sql: string): void {
    this.#driver.exec(sql);
  }

  /** Runs a statement and counts the rows that it changed. */
  run(sql: string, ...parameters: SqliteValue[]): number {
    const result = this.#statement(sql).run(...parameters);
    return Number(typeof result === "object" ? (result as { changes: number | bigint }).changes : result);
  }

  /** The first row that a statement answers. */
  get(sql: string, ...parameters: SqliteValue[]): SqliteRow | undefined {
    return this.#statement(sql).get(...parameters) as SqliteRow | undefined;
  }

  /** All rows that a statement answers. */
  all(sql: string, ...parameters: SqliteValue[]): SqliteRow[] {
    return this.#statement(sql).all(...parameters) as SqliteRow[];
  }

  /** The names of the columns of a table. */
  columnsOf(table: string): readonly string[] {
    let columns = this.#columns.get(table);
    if (columns === undefined) {
      columns = this.all("SELECT name FROM pragma_table_info(?)", table).map(({ name }) => name as string);
      this.#columns.set(table, columns);
    }
    return columns;
  }

  /** Reads with several statements what is so at one moment, whatever is committed meanwhile by other processes. */
  snapshot<T>(read: () => T): T {
    try {
      this.run("BEGIN");
    } catch {
      // Whoever has lent the connection has a transaction open on it, or reads: that is such a moment.
      return read();
    }
    try {
      const value = read();
      this.run("COMMIT");
      return value;
    } catch (error) {
      this.rollBack();
      throw error;
    }
  }

  /** Ends a transaction without effect. */
  rollBack(): void {
    try {
      this.run("ROLLBACK");
    } catch {
      // SQLite has rolled back by itself, as it does when the disk is full.
    }
  }

  #statement(sql: string): SqliteDriverStatement {
    let statement = this.#statements.get(sql);
    if (statement === undefined) {
      statement = this.#driver.prepare(sql);
      this.#statements.set(sql, statement);
    }
    return statement;
  }
}

// Primary result codes: https://www.sqlite.org/rescode.html
const BUSY = 5;
const LOCKED = 6;
const READ_ONLY = 8;
const IO_ERROR = 10;
const FULL = 13;
const CANNOT_OPEN = 14;
const ENVIRONMENT = new Set([BUSY, LOCKED, READ_ONLY, IO_ERROR, FULL, CANNOT_OPEN]);

/** Whether somebody else holds the lock, so that the same call may succeed in a moment. */
export function isBusy(error: unknown): boolean {
  const code = resultCode(error);
  return code === BUSY || code === LOCKED;
}

/** Says what a driver's error means for the caller: the store is unavailable, or something is badly wrong. */
export function storeError(error: unknown, options: { outcomeUnknown?: boolean } = {}): StoreError {
  if (error instanceof StoreError) return error;
  const code = resultCode(error);
  return new StoreError(`The database cannot answer: ${error instanceof Error ? error.message : String(error)}`, {
    cause: error,
    code: code !== null && ENVIRONMENT.has(code) ? "unavailable" : "internal",
    ...options,
  });
}

/** The primary result code of a driver's error. Only `node:sqlite` gives a number; others a name, or text alone. */
function resultCode(error: unknown): number | null {
  if (typeof error !== "object" || error === null) return null;
  const { errcode, code, message } = error as { errcode?: unknown; code?: unknown; message?: unknown };
  if (typeof errcode === "number") return errcode & 0xff;
  const text = `${code} ${message}`;
  if (/SQLITE_BUSY|database is locked/.test(text)) return BUSY;
  if (/SQLITE_LOCKED|table is locked/.test(text)) return LOCKED;
  if (/SQLITE_READONLY|readonly database/.test(text)) return READ_ONLY;
  if (/SQLITE_IOERR|disk I\/O error/.test(text)) return IO_ERROR;
  if (/SQLITE_FULL|disk is full/.test(text)) return FULL;
  if (/SQLITE_CANTOPEN|unable to open/.test(text)) return CANNOT_OPEN;
  return null;
}
