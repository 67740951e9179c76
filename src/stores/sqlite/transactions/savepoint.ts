import { StoreError, WorkError } from "../../../model/error.ts";
import { isPromise } from "../../../values/at_once.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { Undone } from "../write_batch.ts";
import { OpenSqliteTransaction, type UserStatements } from "./sqlite_transaction.ts";

const ENDED =
  "The transaction was ended by one of its statements: RAISE(ROLLBACK) in a trigger, COMMIT, or a full disk";

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
  const open = new OpenSqliteTransaction(db.driver, statements);
  db.exec("SAVEPOINT holdfast_work");
  let value: T | Promise<T>;
  try {
    value = work(open.tx);
    if (isPromise(value)) throw new TypeError("A transaction on SQLite is synchronous"); // the engine refuses it before
  } catch (error) {
    if (!open.isOpen) throw new Undone(new WorkError(error));
    db.exec("ROLLBACK TO holdfast_work; RELEASE holdfast_work");
    return { thrown: new WorkError(error) };
  } finally {
    open.end();
  }
  if (!open.isOpen) throw new Undone(new WorkError(new StoreError(ENDED, { code: "internal" })));
  db.exec("RELEASE holdfast_work");
  return { value };
}
