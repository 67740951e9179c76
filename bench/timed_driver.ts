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
    const startedAt = performance.now();
    this.#db.exec(sql);
    if (sql === "COMMIT") this.#commitMs += performance.now() - startedAt;
  }

  prepare(sql: string): ReturnType<SqliteDriver["prepare"]> {
    return this.#db.prepare(sql) as ReturnType<SqliteDriver["prepare"]>;
  }

  [Symbol.dispose](): void {
    this.#db.close();
  }
}
