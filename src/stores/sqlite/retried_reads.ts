import { StoreClosedError } from "../../model/store_closed_error.ts";
import { type Host, nextTurn, pause } from "../../model/host.ts";
import type { DatabaseFileGuard } from "./connection.ts";
import { isBusy, type SqliteDatabase, storeError } from "./sqlite_database.ts";

const MAX_BUSY_MS = 10_000;

/** Reads of a database. A read that finds the file locked is repeated, for up to 10 seconds. */
export class RetriedReads {
  readonly #db: SqliteDatabase;
  readonly #file: DatabaseFileGuard | null;
  readonly #host: Host;
  readonly #closing: AbortSignal;

  /**
   * @param file Refuses reads when the file is no longer the one that was opened.
   * @param closing Fires when the store is closed: reads that wait for a lock end.
   */
  constructor(db: SqliteDatabase, file: DatabaseFileGuard | null, host: Host, closing: AbortSignal) {
    this.#db = db;
    this.#file = file;
    this.#host = host;
    this.#closing = closing;
  }

  /**
   * Reads by one statement, or by several that need not show the same state.
   *
   * @param refusal What cannot be done if it fails: the beginning of the message.
   * @throws {StoreError} The store is closed, or the file stays locked, was replaced or cannot be read.
   */
  async read<T>(work: () => T, refusal?: string): Promise<T> {
    const startedAt = this.#host.monotonic();
    while (true) {
      if (this.#closing.aborted) throw new StoreClosedError();
      this.#file?.check(this.#host.monotonic());
      try {
        return work();
      } catch (error) {
        if (!isBusy(error) || this.#host.monotonic() - startedAt > MAX_BUSY_MS) throw storeError(error, { refusal });
      }
      await pause(this.#host, 1 + this.#host.random() * 10, this.#closing);
    }
  }

  /** Reads one consistent state by several statements. */
  snapshot<T>(work: () => T): Promise<T> {
    return this.read(() => this.#db.snapshot(work));
  }

  /**
   * Runs a long read in slices, with breaks for the event loop; each slice reads one consistent state.
   */
  async inSlices<T>(begin: () => Generator<void, T>): Promise<T> {
    let slices = begin();
    while (true) {
      const { done, value } = await this.read(() => {
        try {
          return this.#db.snapshot(() => slices.next());
        } catch (error) {
          slices = begin(); // a generator that threw has ended: a retry starts a new one
          throw error;
        }
      });
      if (done) return value as T; // the value of the end is that of the generator
      await nextTurn(this.#host);
    }
  }
}
