import type { RunStatus } from "../../model/run.ts";
import { errorMessage } from "../../values/unknown_values.ts";
import { StoreError } from "../../model/error.ts";
import { LeaseCache } from "./writes/lease_cache.ts";
import { NotedFacts } from "./journal/noted_facts.ts";
import { isPart, sql, type SqliteValue, type Statement, textOf, type Value } from "./statement.ts";
import { PlainWrites } from "./writes/plain_writes.ts";

/** A row: columns by name. */
export type SqliteRow = { [column: string]: SqliteValue };

/** The methods that a `SqliteStore` uses of `node:sqlite`, `bun:sqlite`, `jsr:@db/sqlite` or `better-sqlite3`. */
export interface SqliteDriver {
  /** `false` once it is closed: a property of `jsr:@db/sqlite` and `better-sqlite3`. */
  readonly open?: unknown;
  /** `false` once it is closed: a property of `node:sqlite`. */
  readonly isOpen?: unknown;
  /** Runs statements without parameters. */
  exec(sql: string): unknown;
  /** Compiles one statement. */
  prepare(sql: string): SqliteDriverStatement;
}

// Its table is made anew where a rollback of the owner's has taken it back.
const GUARD = `CREATE TEMP TABLE IF NOT EXISTS holdfast_guard
    (no INTEGER PRIMARY KEY, other INTEGER REFERENCES holdfast_guard DEFERRABLE INITIALLY DEFERRED);
  INSERT INTO temp.holdfast_guard VALUES (1, 2)`;

/** A compiled statement of any driver. */
export interface SqliteDriverStatement {
  /** Runs it and returns the number of changed rows, as a number or in an object. */
  run(...parameters: SqliteValue[]): unknown;
  /** Runs it and returns the first row; `undefined` or `null` if there is none. */
  get(...parameters: SqliteValue[]): unknown;
  /** Runs it and returns all rows. */
  all(...parameters: SqliteValue[]): unknown[];
}

/**
 * A database connection: keeps its statements compiled (four times as fast as compiling each time) and translates its
 * errors.
 *
 * A read takes the type of its rows as a parameter. Nothing checks it, but it can be trusted: the statement names its
 * columns, the tables are STRICT, so that SQLite stores no value of another type than the schema says, and only this
 * store writes them (so a `status` is one that it knows, and a column of JSON can be parsed). Drivers return integers
 * up to 2^53 as numbers, and the store writes none that is larger; `SqliteStore.from()` refuses a database that returns
 * every integer as a `bigint`.
 */
export class SqliteDatabase {
  readonly #driver: SqliteDriver;
  /** By their text, and by the template that they are written as: one place in the code has one template. */
  readonly #statements = new Map<Statement, SqliteDriverStatement>();
  readonly #columns = new Map<string, readonly string[]>();
  #isInSavepoint = false;
  #isGuarded = false;
  /** The cache of the runs that were claimed through this connection. */
  readonly leased: LeaseCache = new LeaseCache();
  /** How much the open transaction has changed the numbers of runs, by status and by job. */
  readonly counts: Map<RunStatus, Map<string, number>> = new Map();
  /** The groups of runs with a fairness key whose head may have changed; see flow/turns.ts. */
  readonly touchedGroups: Set<string> = new Set();
  /**
   * The queues of which the queue of a key has made a run ready, or blocked one: with the lowest position of those made
   * ready, or `Infinity`.
   */
  readonly requeued: Map<string, number> = new Map();
  /** The facts of the open transaction. */
  readonly facts: NotedFacts = new NotedFacts();
  /** The plain steps and ends of the open transaction, which are written together. */
  readonly plain: PlainWrites = new PlainWrites();

  /** Wraps an open connection. */
  constructor(driver: SqliteDriver) {
    this.#driver = driver;
  }

  /** Whether the driver says that it is open, or does not say. */
  get isOpen(): boolean {
    return isOpen(this.#driver);
  }

  /**
   * The open connection. All uses go through this getter: using a closed connection can end the process
   * (`jsr:@db/sqlite`).
   *
   * @throws {StoreError} It was closed.
   */
  get driver(): SqliteDriver {
    if (!this.isOpen) {
      throw new StoreError("The database was closed before its store; close the store first, then the database", {
        code: "internal",
      });
    }
    return this.#driver;
  }

  /**
   * Runs statements without parameters.
   *
   * `BEGIN`, `COMMIT` and `ROLLBACK` are always run here. `jsr:@db/sqlite` does not reset a prepared statement that has
   * failed, and while a `BEGIN IMMEDIATE` that found the lock taken is not reset, SQLite refuses every `COMMIT`.
   */
  exec(sql: string): void {
    this.#isInSavepoint = false; // a statement that ends the transaction has ended it, too
    if (this.plain.isPutOff) this.plain.write(this);
    this.driver.exec(sql);
  }

  /**
   * Begins (`SAVEPOINT`), releases or rolls back a savepoint. What was put off is no part of it, so that a rollback cannot
   * take it back: it is written afterwards, and statements inside must read nothing of it.
   */
  savepoint(sql: string): void {
    this.driver.exec(sql);
    this.#isInSavepoint = sql.startsWith("SAVEPOINT");
  }

  /**
   * From now on a row violates a deferred constraint, until {@linkcode SqliteDatabase.commit}: so `COMMIT` by the owner of
   * the connection fails, which would commit the writes of others.
   */
  guard(): void {
    if (!this.#isGuarded) this.driver.exec(GUARD);
    this.#isGuarded = true;
  }

  /** Commits the open transaction. */
  commit(): void {
    if (this.#isGuarded) this.exec("DELETE FROM temp.holdfast_guard");
    this.#isGuarded = false;
    this.exec("COMMIT");
  }

  /** As `get()`, for a statement that reads nothing of what was put off. */
  getBeside<R extends object = SqliteRow>(statement: Statement, ...values: Value[]): R | undefined {
    const { compiled, parameters } = this.#compile(statement, values, true);
    return (compiled.get(...parameters) ?? undefined) as R | undefined; // see the comment of the class
  }

  /** Runs a statement and returns the number of rows that it changed. */
  run(statement: Statement, ...values: Value[]): number {
    const { compiled, parameters } = this.#compile(statement, values);
    const result = compiled.run(...parameters);
    return Number(typeof result === "object" && result !== null && "changes" in result ? result.changes : result);
  }

  /** Runs a statement and returns its first row. */
  get<R extends object = SqliteRow>(statement: Statement, ...values: Value[]): R | undefined {
    const { compiled, parameters } = this.#compile(statement, values);
    // `bun:sqlite` returns `null` for no row.
    return (compiled.get(...parameters) ?? undefined) as R | undefined; // see the comment of the class
  }

  /**
   * Runs a statement that always returns a row, and returns that row.
   *
   * @throws {StoreError} It returned none: the file is damaged.
   */
  one<R extends object = SqliteRow>(statement: Statement, ...values: Value[]): R {
    const row = this.get<R>(statement, ...values);
    if (row === undefined) {
      throw new StoreError(`The database returned no row for: ${textOf(statement)}`, { code: "internal" });
    }
    return row;
  }

  /** Runs a statement and returns all its rows. */
  all<R extends object = SqliteRow>(statement: Statement, ...values: Value[]): R[] {
    const { compiled, parameters } = this.#compile(statement, values);
    return compiled.all(...parameters) as R[]; // see the comment of the class
  }

  /** As `all()`, for a statement that returns `limit` rows at most: one row is read several times as fast as a list. */
  few<R extends object = SqliteRow>(limit: number, sql: string, ...parameters: SqliteValue[]): R[] {
    if (limit !== 1) return this.all<R>(sql, ...parameters);
    const row = this.get<R>(sql, ...parameters);
    return row === undefined ? [] : [row];
  }

  /** The names of the columns of a table. */
  columnsOf(table: string): readonly string[] {
    let columns = this.#columns.get(table);
    if (columns === undefined) {
      columns = this.all<{ name: string }>("SELECT name FROM pragma_table_info(?)", table).map(({ name }) => name);
      this.#columns.set(table, columns);
    }
    return columns;
  }

  /** Reads one consistent state with several statements, regardless of commits of other processes. */
  snapshot<T>(read: () => T): T {
    try {
      this.exec("BEGIN");
    } catch {
      // The owner of the connection has a transaction open on it: it reads one consistent state.
      return read();
    }
    try {
      const value = read();
      this.exec("COMMIT");
      return value;
    } catch (error) {
      this.rollBack();
      throw error;
    }
  }

  /** Ends a transaction without effect. */
  rollBack(): void {
    this.plain.clear();
    this.#isGuarded = false;
    try {
      this.exec("ROLLBACK");
    } catch {
      // SQLite has rolled back already, as it does when the disk is full.
    }
  }

  #compile(
    statement: Statement,
    values: readonly Value[],
    isBeside = false,
  ): { compiled: SqliteDriverStatement; parameters: readonly SqliteValue[] } {
    if (typeof statement !== "string" && values.some(isPart)) {
      const { text, parameters } = sql(statement, ...values);
      return this.#compile(text, parameters, isBeside);
    }
    if (this.plain.isPutOff && !isBeside && !this.#isInSavepoint) this.plain.write(this);
    const { driver } = this;
    let compiled = this.#statements.get(statement);
    if (compiled === undefined) {
      const text = textOf(statement);
      compiled = this.#statements.get(text) ?? driver.prepare(text);
      this.#statements.set(statement, compiled).set(text, compiled);
    }
    return { compiled, parameters: values as readonly SqliteValue[] }; // parts were composed
  }
}

/** Whether a driver is open, as far as it says so. */
export function isOpen(driver: SqliteDriver): boolean {
  return driver.open !== false && driver.isOpen !== false;
}

// Primary result codes: https://www.sqlite.org/rescode.html
const BUSY = 5;
const LOCKED = 6;
const READ_ONLY = 8;
const IO_ERROR = 10;
const FULL = 13;
const CANNOT_OPEN = 14;
const CONSTRAINT = 19;
const NOT_A_DATABASE = 26;
const ENVIRONMENT = new Set([BUSY, LOCKED, READ_ONLY, IO_ERROR, FULL, CANNOT_OPEN]);

/** Whether another connection holds the lock, so that a retry may succeed. */
export function isBusy(error: unknown): boolean {
  const code = resultCode(error);
  return code === BUSY || code === LOCKED;
}

/** Whether a constraint was violated. */
export function isConstraint(error: unknown): boolean {
  return resultCode(error) === CONSTRAINT;
}

/**
 * Converts a driver's error to a `StoreError`.
 *
 * @param options.refusal What could not be done.
 */
export function storeError(
  error: unknown,
  { refusal = "The database cannot answer", ...options }: { refusal?: string; outcomeUnknown?: boolean } = {},
): StoreError {
  if (error instanceof StoreError) return error;
  const code = resultCode(error);
  return new StoreError(`${refusal}: ${reasonOf(error, code)}`, {
    cause: error,
    code: code !== null && ENVIRONMENT.has(code) ? "unavailable" : "internal",
    ...options,
  });
}

/** SQLite's message, with advice where there is some. */
function reasonOf(error: unknown, code: number | null): string {
  const message = errorMessage(error).replace(STATEMENT, "");
  const advice = IN_TRANSACTION.test(message) ? USE_TRANSACTION : code === null ? undefined : ADVICE.get(code);
  return advice === undefined ? message : `${message}; ${advice}`;
}

// What Deno adds: the whole statement, or all that make the tables.
const STATEMENT = / in [^]* at offset \d+$/;
// The result code says only that it is an error.
const IN_TRANSACTION = /within a transaction$/;
const USE_TRANSACTION =
  "Holdfast was called inside a transaction of yours: use engine.transaction() or engine.inTransaction()";
const CHECK_PERMISSIONS = "check that this process may write to the file and to its directory";
const ADVICE = new Map([
  [CANNOT_OPEN, CHECK_PERMISSIONS],
  [READ_ONLY, CHECK_PERMISSIONS],
  [NOT_A_DATABASE, "check that the path is that of a SQLite database, or of a new file"],
]);

/**
 * The primary result code of a driver's error. Only `node:sqlite` gives a number, and in Deno not for `exec()`; others
 * give a name, or the message alone.
 */
function resultCode(error: unknown): number | null {
  if (typeof error !== "object" || error === null) return null;
  const { errcode, code, message }: { errcode?: unknown; code?: unknown; message?: unknown } = error;
  if (typeof errcode === "number") return errcode & 0xff;
  const description = `${code} ${message}`;
  if (/SQLITE_BUSY|database is locked/.test(description)) return BUSY;
  if (/SQLITE_LOCKED|table is locked/.test(description)) return LOCKED;
  if (/SQLITE_READONLY|readonly database/.test(description)) return READ_ONLY;
  if (/SQLITE_IOERR|disk I\/O error/.test(description)) return IO_ERROR;
  if (/SQLITE_FULL|disk is full/.test(description)) return FULL;
  if (/SQLITE_CANTOPEN|unable to open/.test(description)) return CANNOT_OPEN;
  if (/SQLITE_CONSTRAINT|constraint failed/.test(description)) return CONSTRAINT;
  if (/SQLITE_NOTADB|not a database/.test(description)) return NOT_A_DATABASE;
  return null;
}
