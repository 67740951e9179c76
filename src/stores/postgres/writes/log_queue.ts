import { fitLine, type NewLogEntry } from "../../../model/log.ts";
import type { PostgresDatabase } from "../database/postgres_database.ts";

interface Append {
  entries: readonly NewLogEntry[];
  resolve(): void;
  reject(error: unknown): void;
}

// The most calls whose lines are stored by one statement. A line has at most 8 KiB.
const MAX_CALLS = 100;

/**
 * Stores log lines in the order of the calls: on connections of their own, two calls could overtake each other. What is
 * appended while a statement is under way goes together in the next one.
 */
export class LogQueue {
  readonly #database: PostgresDatabase;
  readonly #waiting: Append[] = [];
  #isRunning = false;
  #running: Promise<void> = Promise.resolve();

  constructor(database: PostgresDatabase) {
    this.#database = database;
  }

  /** Stores lines after those of earlier calls. */
  append(entries: readonly NewLogEntry[]): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ entries, resolve, reject });
      if (!this.#isRunning) this.#running = this.#run();
    });
  }

  /** Resolves when everything has been stored, or was refused. */
  async close(): Promise<void> {
    await this.#running;
  }

  async #run(): Promise<void> {
    this.#isRunning = true;
    while (this.#waiting.length > 0) {
      const group = this.#waiting.splice(0, MAX_CALLS);
      try {
        const lines = group.flatMap(({ entries }) => entries.map(fitLine));
        if (lines.length > 0) await this.#database.write("append_logs", lines);
        for (const { resolve } of group) resolve();
      } catch (error) {
        for (const { reject } of group) reject(error);
      }
    }
    // In the same turn as the last look: what is appended from now on begins the next run.
    this.#isRunning = false;
  }
}
