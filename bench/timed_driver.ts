import { DatabaseSync } from "node:sqlite";
import type { SqliteDriver } from "@holdfast/jobs";

/** A connection that counts the time of its commits: that is when SQLite writes to the disk and waits for it. */
export class TimedDriver implements SqliteDriver {
  readonly #db: DatabaseSync;
  #commitMs = 0;

  /** Opens a file, or makes it. */
  constructor(path: string) {
    this.#db = new DatabaseSync(path);
  }

  /** How long all commits have taken, in milliseconds. */
  get commitMs(): number {
    return this.#commitMs;
  }

  exec(sql: string): void {
    this.#db.exec(sql);
  }

  prepare(sql: string): ReturnType<SqliteDriver["prepare"]> {
    const statement = this.#db.prepare(sql);
    if (sql !== "COMMIT") return statement as ReturnType<SqliteDriver["prepare"]>;
    return {
      run: () => {
        const startedAt = performance.now();
        const answer = statement.run();
        this.#commitMs += performance.now() - startedAt;
        return answer;
      },
      get: () => statement.get(),
      all: () => statement.all(),
    };
  }

  [Symbol.dispose](): void {
    this.#db.close();
  }
}
