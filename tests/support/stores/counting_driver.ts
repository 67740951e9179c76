import { DatabaseSync } from "node:sqlite";
import type { SqliteDriver } from "../../../src/stores/sqlite/sqlite_database.ts";
import type { SqliteValue } from "../../../src/stores/sqlite/statement.ts";

/** A database that counts what is executed on it, and how many rows are read and changed. */
export class CountingDriver implements SqliteDriver {
  /** The database. */
  readonly database: DatabaseSync;
  /** The statements that were compiled. */
  readonly statements = new Set<string>();
  /** How many statements were executed. */
  executed = 0;
  /** How many rows were read or changed. */
  rows = 0;
  /** How many transactions took the lock. */
  writes = 0;

  /** @param path Its file. Default: it is in memory. */
  constructor(path = ":memory:") {
    this.database = new DatabaseSync(path);
  }

  /** Runs statements without parameters. */
  exec(sql: string): void {
    if (sql.startsWith("BEGIN IMMEDIATE")) this.writes += 1;
    this.database.exec(sql);
  }

  /** Compiles a statement. */
  prepare(sql: string) {
    this.statements.add(sql);
    const statement = this.database.prepare(sql);
    const count = <T>(rows: number, value: T): T => {
      this.executed += 1;
      this.rows += rows;
      return value;
    };
    return {
      run: (...parameters: SqliteValue[]) => {
        const result = statement.run(...parameters);
        return count(Number(result.changes), result);
      },
      get: (...parameters: SqliteValue[]) => count(1, statement.get(...parameters)),
      all: (...parameters: SqliteValue[]) => {
        const rows = statement.all(...parameters);
        return count(rows.length, rows);
      },
    };
  }

  /** The plans of the compiled statements that match. */
  plans(filter: RegExp): { sql: string; details: string[] }[] {
    return [...this.statements].filter((sql) => filter.test(sql)).map((sql) => {
      const parameters = Array.from(sql.matchAll(/\?/g), () => null);
      const plan = this.database.prepare(`EXPLAIN QUERY PLAN ${sql}`).all(...parameters);
      return { sql, details: plan.map(({ detail }) => String(detail)) };
    });
  }
}
