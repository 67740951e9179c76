import { newerTablesError } from "./newer_tables.ts";
import type { PostgresDatabase } from "./postgres_database.ts";
import { VERSION } from "../sql/names.ts";

const LOOK_EVERY_MS = 60_000;

/** Notices that a newer version of this package has changed the tables while this process was running. */
export class VersionWatch {
  readonly #database: PostgresDatabase;
  readonly #monotonic: () => number;
  #nextLookAt: number;

  /** @param monotonic A clock in milliseconds that is never set. */
  constructor(database: PostgresDatabase, monotonic: () => number) {
    this.#database = database;
    this.#monotonic = monotonic;
    this.#nextLookAt = monotonic() + LOOK_EVERY_MS;
  }

  /**
   * Looks, at most once a minute. The functions of this version are still there after the next one has come, so the
   * caller can go on when it has reported the error.
   *
   * @throws {StoreError} The tables are of a newer version.
   */
  async look(): Promise<void> {
    const now = this.#monotonic();
    if (now < this.#nextLookAt) return;
    this.#nextLookAt = now + LOOK_EVERY_MS;
    const version = await this.#database.readVersion();
    if (version > VERSION) throw newerTablesError(version);
  }
}
