import type { Host } from "../../model/host.ts";
import type { SqliteDatabase } from "./sqlite_database.ts";
import { JournalEraser } from "./journal/journal_eraser.ts";

// Deleted data is overwritten within a second.
const WIPE_AFTER_MS = 800;
const RETRY_MS = 100;
// How long the journal is scanned without a break, and the length of a break.
const MAX_WORK_MS = 5;
const BREAK_MS = 1;

/**
 * Overwrites deleted data. SQLite fills its bytes in the pages of the file with zeros. Soon after each deletion the
 * facts of the deleted runs are erased from the journal, and the write-ahead log, which keeps the old pages, is written
 * to the file and emptied.
 *
 * Copies can remain in unused bytes of pages: when SQLite moves cells between pages, it does not always clear the bytes
 * that they leave. `VACUUM` would remove them, but it blocks other processes for long and needs `--allow-all` in Deno.
 */
export class SecureDelete {
  readonly #database: SqliteDatabase;
  readonly #host: Host;
  readonly #eraser: JournalEraser;
  #cancelTimer: (() => void) | null = null;

  constructor(database: SqliteDatabase, host: Host) {
    this.#database = database;
    this.#host = host;
    this.#eraser = new JournalEraser(database);
  }

  /** Starts. The log may still contain data that a dead process has deleted. */
  start(): void {
    this.#database.get`PRAGMA secure_delete = ON`;
    this.noteDeletion();
  }

  /** Schedules a wipe: something was deleted, or may have been. */
  noteDeletion(): void {
    if (this.#cancelTimer === null) this.#wipeAfter(WIPE_AFTER_MS);
  }

  /** Wipes a last time, unless another process prevents it. */
  close(): void {
    this.#cancelTimer?.();
    this.#wipe(() => true);
  }

  #wipeAfter(ms: number): void {
    this.#cancelTimer = this.#host.schedule(ms, () => {
      this.#cancelTimer = null;
      const startedAt = this.#host.monotonic();
      const againInMs = this.#wipe(() => this.#host.monotonic() - startedAt < MAX_WORK_MS);
      if (againInMs !== null && this.#database.isOpen) this.#wipeAfter(againInMs);
    });
  }

  /**
   * Wipes for a while.
   *
   * @returns After how many milliseconds to continue, or to try again if another process reads an older state or
   * writes; `null` if everything is wiped.
   */
  #wipe(hasTime: () => boolean): number | null {
    try {
      if (!this.#eraser.erase(hasTime)) return BREAK_MS;
      const checkpoint = this.#database.get<{ busy: number }>`PRAGMA wal_checkpoint(TRUNCATE)`;
      return (checkpoint?.busy ?? 0) === 0 ? null : RETRY_MS;
    } catch {
      return RETRY_MS; // the disk is full, or the owner of the connection has a transaction open on it
    }
  }
}
