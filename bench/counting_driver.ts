import { DatabaseSync } from "node:sqlite";
import type { SqliteDriver, SqliteDriverStatement } from "@holdfast/jobs";

/** What a connection has done since it was opened; times in microseconds. */
export interface StatementCounts {
  /** Statements other than `BEGIN` and `COMMIT`. */
  statements: number;
  statementsUs: number;
  commits: number;
  /** `BEGIN` included. */
  commitsUs: number;
}

/** A connection that counts its statements and its commits, and their time. */
export class CountingDriver implements SqliteDriver {
  readonly #db: DatabaseSync;
  readonly #counts: StatementCounts = { statements: 0, statementsUs: 0, commits: 0, commitsUs: 0 };

  /** Opens a file, or makes it. */
  constructor(path: string) {
    this.#db = new DatabaseSync(path);
  }

  /** The counts so far. */
  read(): StatementCounts {
    return { ...this.#counts };
  }

  exec(sql: string): void {
    const startedAt = performance.now();
    this.#db.exec(sql);
    this.#counts.commitsUs += (performance.now() - startedAt) * 1_000;
    if (sql === "COMMIT") this.#counts.commits += 1;
  }

  prepare(sql: string): SqliteDriverStatement {
    const statement = this.#db.prepare(sql) as unknown as SqliteDriverStatement;
    const timed = <T>(call: () => T): T => {
      const startedAt = performance.now();
      try {
        return call();
      } finally {
        this.#counts.statements += 1;
        this.#counts.statementsUs += (performance.now() - startedAt) * 1_000;
      }
    };
    return {
      run: (...parameters) => timed(() => statement.run(...parameters)),
      get: (...parameters) => timed(() => statement.get(...parameters)),
      all: (...parameters) => timed(() => statement.all(...parameters)),
    };
  }

  [Symbol.dispose](): void {
    this.#db.close();
  }
}
