import type { Host } from "../host.ts";
import type { SqliteDatabase } from "./sqlite_database.ts";

// What was deleted is to be gone after a second.
const WIPE_AFTER_MS = 800;
const RETRY_MS = 100;

/**
 * Overwrites what is deleted: SQLite fills its place in the pages of the file with zeros, and the write-ahead log, which
 * keeps the pages as they were, is written to the file and emptied soon after each deletion.
 *
 * Copies can remain in unused bytes of pages: when SQLite moves cells between pages it does not always clear the place
 * from which they came. `VACUUM` would remove them, but it blocks all others for long and needs `--allow-all` in Deno.
 */
export class SecureDelete {
  readonly #database: SqliteDatabase;
  readonly #host: Host;
  #cancelTimer: (() => void) | null = null;

  /** Takes care of one connection. */
  constructor(database: SqliteDatabase, host: Host) {
    this.#database = database;
    this.#host = host;
  }

  /** Begins. What a process that died has deleted may still be in the log. */
  start(): void {
    this.#database.get("PRAGMA secure_delete = ON");
    this.noteDeletion();
  }

  /** Wipes soon: something was deleted, or may have been. */
  noteDeletion(): void {
    if (this.#cancelTimer === null) this.#wipeAfter(WIPE_AFTER_MS);
  }

  /** Wipes a last time, if nobody else is in the way. */
  close(): void {
    this.#cancelTimer?.();
    this.#wipe();
  }

  #wipeAfter(ms: number): void {
    this.#cancelTimer = this.#host.schedule(ms, () => {
      this.#cancelTimer = null;
      if (!this.#wipe() && this.#database.isOpen) this.#wipeAfter(RETRY_MS);
    });
  }

  /** Answers `false` if it could not be done now: another process reads an older state, or writes. */
  #wipe(): boolean {
    try {
      return Number(this.#database.get("PRAGMA wal_checkpoint(TRUNCATE)")?.busy ?? 0) === 0;
    } catch {
      return false; // the disk is full, or the owner of the connection has a transaction open on it
    }
  }
}
