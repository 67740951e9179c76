import type { TransactionCalls } from "../../../model/transaction.ts";
import { errorMessage, isInstance, kindOf, propertyOf } from "../../../values/unknown_values.ts";
import type { SqliteDatabase, SqliteDriver, SqliteDriverStatement } from "../sqlite_database.ts";
import { StoreError, WorkError } from "../../../model/error.ts";
import { isPromise } from "../../../values/at_once.ts";
import { Undone } from "../write_batch.ts";

/** A parameter of a statement. */
export type SqliteParameter = null | number | bigint | string | Uint8Array;

/** What the function of a transaction on SQLite can do. It ends with the function. */
export interface SqliteTransaction extends TransactionCalls {
  /** Executes a change: one that begins with INSERT, UPDATE, DELETE, REPLACE or WITH. */
  run(sql: string, ...parameters: SqliteParameter[]): { changes: number };
  /** Executes a query, or a change with RETURNING, and returns its first row. */
  get<R extends object = Record<string, unknown>>(sql: string, ...parameters: SqliteParameter[]): R | undefined;
  /** Executes a query, or a change with RETURNING, and returns all its rows. */
  all<R extends object = Record<string, unknown>>(sql: string, ...parameters: SqliteParameter[]): R[];
}

const KINDS = /^(?:SELECT|INSERT|UPDATE|DELETE|REPLACE|VALUES|WITH)\b/i;
const CHANGES = /\b(?:INSERT|UPDATE|DELETE|REPLACE)\b/i;
// Comments, strings and quoted names: one pass, since each can have the marks of the others inside.
const QUOTED = /--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)|'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]/g;
const MAX_STATEMENTS = 200;

/** The statements of transactions: the 200 that were used last stay compiled. */
export class UserStatements {
  readonly #driver: () => SqliteDriver;
  readonly #compiled = new Map<string, SqliteDriverStatement>();

  /** @param driver The open connection. */
  constructor(driver: () => SqliteDriver) {
    this.#driver = driver;
  }

  /** Compiles a statement, if transactions may execute it. */
  compile(sql: string): SqliteDriverStatement {
    const known = this.#compiled.get(sql);
    const statement = known ?? this.#compile(sql);
    if (known !== undefined) this.#compiled.delete(sql); // it moves to the end
    else if (this.#compiled.size >= MAX_STATEMENTS) this.#compiled.delete(this.#compiled.keys().next().value!);
    this.#compiled.set(sql, statement);
    return statement;
  }

  #compile(sql: string): SqliteDriverStatement {
    checkStatement(sql);
    return this.#driver().prepare(sql);
  }
}

function checkStatement(sql: string): void {
  const text = String(sql).replaceAll(QUOTED, (found) => /^(?:--|\/\*)/.test(found) ? " " : found).trim();
  if (!KINDS.test(text)) {
    const [word = ""] = text.split(/[\s;(]/, 1);
    throw new TypeError(`A transaction cannot execute "${word}": only queries and changes of rows`);
  }
  const words = text.replaceAll(QUOTED, "''");
  if (/;\s*[^\s;]/.test(words)) {
    throw new TypeError("A call of a transaction executes one statement, not several: call it once for each");
  }
  if (!CHANGES.test(words)) return;
  if (/\bOR\s+ROLLBACK\b/i.test(words)) {
    throw new TypeError("A transaction cannot execute OR ROLLBACK: other writes share its commit");
  }
  if (/\bholdfast_/i.test(text)) throw new TypeError("The tables of Holdfast cannot be changed here");
}

const ENDED =
  "The transaction was ended by one of its statements: RAISE(ROLLBACK) in a trigger, COMMIT, or a full disk. Holdfast " +
  "has recorded nothing; what was written before a COMMIT, or after the end, is committed";

/**
 * Executes a function in a savepoint of the open transaction.
 *
 * @returns What it returned, or what it has thrown: then nothing of it is left, and the transaction goes on.
 * @throws {Undone} A statement has ended the transaction, which had the writes of others, too: each is tried again alone.
 */
export function inSavepoint<T>(
  db: SqliteDatabase,
  statements: UserStatements,
  work: (tx: object) => T | Promise<T>,
): { value: T } | { thrown: WorkError } {
  const { driver } = db;
  let hasReturned = false;
  db.guard();
  db.savepoint("SAVEPOINT holdfast_work");
  let value: T | Promise<T>;
  try {
    value = work(openTransaction(statements, () => !hasReturned && isInTransaction(driver)));
    if (isPromise(value)) throw new TypeError("A transaction on SQLite is synchronous"); // the engine refuses it before
  } catch (error) {
    if (!endSavepoint(db, "ROLLBACK TO holdfast_work; RELEASE holdfast_work")) throw new Undone(new WorkError(error));
    return { thrown: new WorkError(error) };
  } finally {
    hasReturned = true;
  }
  if (!endSavepoint(db, "RELEASE holdfast_work")) {
    throw new Undone(new WorkError(new StoreError(ENDED, { code: "internal" })));
  }
  return { value };
}

/** Ends the savepoint of a function. `false`: there is none, since a statement has ended the transaction. */
function endSavepoint(db: SqliteDatabase, sql: string): boolean {
  if (!isInTransaction(db.driver)) return false;
  try {
    db.savepoint(sql);
    return true;
  } catch (error) {
    if (/no such savepoint/.test(errorMessage(error))) return false; // another transaction was begun
    throw error;
  }
}

/**
 * What the function of a transaction is given.
 *
 * @param isOpen Whether it has not ended. After RAISE(ROLLBACK) each statement would be a commit of its own.
 */
function openTransaction(
  statements: UserStatements,
  isOpen: () => boolean,
): Omit<SqliteTransaction, keyof TransactionCalls> {
  const compile = (sql: string, parameters: readonly SqliteParameter[]) => {
    if (!isOpen()) throw new TypeError("The transaction has ended");
    checkParameters(parameters);
    return statements.compile(sql);
  };
  return {
    run: (sql, ...parameters) => {
      const result = compile(sql, parameters).run(...parameters as never[]); // drivers take more than the store uses
      return { changes: Number(propertyOf(result, "changes") ?? result) };
    },
    get: (sql, ...parameters) => (compile(sql, parameters).get(...parameters as never[]) ?? undefined) as never,
    all: (sql, ...parameters) => compile(sql, parameters).all(...parameters as never[]) as never,
  };
}

const PARAMETER_TYPES = new Set(["number", "bigint", "string"]);

/** Drivers take an object in the first place as named parameters: the others would move by one place. */
function checkParameters(parameters: readonly unknown[]): void {
  for (const [at, parameter] of parameters.entries()) {
    if (parameter === null || PARAMETER_TYPES.has(typeof parameter) || isInstance(parameter, Uint8Array)) continue;
    throw new TypeError(
      `Parameter ${at + 1} of a statement must be a number, a bigint, a string, a Uint8Array or null, not ` +
        kindOf(parameter),
    );
  }
}

/** Whether a transaction is open, as far as the driver says so: `isTransaction` (node:sqlite) or `inTransaction`. */
function isInTransaction(driver: SqliteDriver): boolean {
  return propertyOf(driver, "isTransaction") !== false && propertyOf(driver, "inTransaction") !== false;
}
