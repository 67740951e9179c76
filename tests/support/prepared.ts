import type { DatabaseSync, StatementSync } from "node:sqlite";

const kept = new WeakMap<DatabaseSync, Map<string, StatementSync>>();

/** A statement that is compiled once for each database. */
export function prepared(database: DatabaseSync, sql: string): StatementSync {
  const statements = kept.get(database) ?? new Map<string, StatementSync>();
  kept.set(database, statements);
  const statement = statements.get(sql) ?? database.prepare(sql);
  statements.set(sql, statement);
  return statement;
}
