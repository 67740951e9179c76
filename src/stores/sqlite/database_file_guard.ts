import { StoreError } from "../../model/error.ts";

const CHECK_EVERY_MS = 1_000;

type StatSync = typeof import("node:fs").statSync;

/**
 * The file that a database was opened from. If it is deleted or replaced, SQLite continues to write to the old file
 * without an error, and everything is lost when the process ends. Therefore the file is checked every second.
 */
export class DatabaseFileGuard {
  readonly #path: string;
  readonly #stat: StatSync;
  readonly #identity: string;
  #nextCheckAt = 0;

  private constructor(path: string, stat: StatSync) {
    this.#path = path;
    this.#stat = stat;
    this.#identity = this.#readIdentity() ?? "";
  }

  /** Watches the file that is at a path now. */
  static async watch(path: string): Promise<DatabaseFileGuard> {
    const { statSync } = await import("node:fs");
    return new DatabaseFileGuard(path, statSync);
  }

  /**
   * Checks that the file is still the same, at most once a second.
   *
   * @throws {StoreError} It was deleted or replaced.
   */
  check(now: number): void {
    if (now < this.#nextCheckAt) return;
    if (this.#readIdentity() !== this.#identity) {
      throw new StoreError(
        `The database file "${this.#path}" was deleted or replaced while it was open: nothing more is written to it`,
        { code: "internal" },
      );
    }
    this.#nextCheckAt = now + CHECK_EVERY_MS;
  }

  /** The size of the write-ahead log beside the file, in bytes; 0 if there is none. */
  walBytes(): number {
    return this.#stat(`${this.#path}-wal`, { throwIfNoEntry: false })?.size ?? 0;
  }

  #readIdentity(): string | null {
    // Only `stat`: opening and closing the file would drop SQLite's locks on it.
    const stat = this.#stat(this.#path, { throwIfNoEntry: false });
    return stat === undefined ? null : `${stat.dev}:${stat.ino}`;
  }
}

/**
 * Creates the file of a new database, which only its owner can read and write: SQLite gives the files beside it the
 * same mode. An existing file is not changed.
 *
 * Call it before SQLite opens the file: closing a file drops all locks of the process on it.
 *
 * @param refusal What cannot be done if the file cannot be created: the beginning of the message.
 * @returns Whether the file was created.
 */
export async function createDatabaseFile(path: string, refusal: string): Promise<boolean> {
  const { closeSync, openSync, statSync } = await import("node:fs");
  try {
    const existing = statSync(path, { throwIfNoEntry: false });
    if (existing?.isDirectory()) throw new StoreError(`${refusal}: it is a directory; name a file in it`);
    if (existing !== undefined) return false;
    closeSync(openSync(path, "ax", 0o600)); // `x`: only one of several processes creates it
    return true;
  } catch (error) {
    if (error instanceof StoreError) throw error;
    const { code, message } = error as Error & { code?: unknown }; // as `node:fs` throws it
    if (code === "EEXIST") {
      // Another process has just created it, or it is a link to a file that does not exist: `x` refuses to create that.
      if (statSync(path, { throwIfNoEntry: false }) === undefined) closeSync(openSync(path, "a", 0o600));
      return false;
    }
    const reason = code === "ENOENT" || code === "ENOTDIR" ? "its directory does not exist; make it first" : message;
    throw new StoreError(`${refusal}: ${reason}`, { cause: error });
  }
}
