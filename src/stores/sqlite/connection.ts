import { StoreError } from "../../model/error.ts";
import { isOpen, type SqliteDriver, storeError } from "./sqlite_database.ts";
import { kindOf, propertyOf } from "../../values/unknown_values.ts";

/** The connection of a {@linkcode SqliteStore}. */
export interface Connection {
  /** The open connection. */
  driver: SqliteDriver;
  /** Closes it, if the store has opened it. */
  close(): void;
  /** The file behind it, if it is watched. */
  file: DatabaseFileGuard | null;
}

const MEMORY = ":memory:";

/**
 * Opens a file with `node:sqlite`, or creates it.
 *
 * @param name The path of the file, or `":memory:"`.
 * @param refusal What cannot be done if it cannot be opened: the beginning of the message.
 * @throws {StoreError} The file cannot be opened or made, or the runtime has no `node:sqlite`.
 */
export async function openConnection(name: string, refusal: string): Promise<Connection> {
  const { DatabaseSync } = await import("node:sqlite").catch((cause) => {
    const runtimes = "Node 22.13, Deno 2.2.15 or Bun 1.4, or a later version";
    throw new StoreError(
      `${refusal}: this runtime has no node:sqlite. It needs ${runtimes}, or SqliteStore.from() with another library`,
      { cause },
    );
  });
  if (name !== MEMORY) await createDatabaseFile(name, refusal);
  let driver: InstanceType<typeof DatabaseSync>;
  try {
    driver = new DatabaseSync(name);
  } catch (error) {
    throw storeError(error, { refusal });
  }
  return {
    driver: driver as unknown as SqliteDriver, // `SqliteValue` leaves out the types that the store does not use
    close: () => driver.close(),
    file: name === MEMORY ? null : await DatabaseFileGuard.watch(name),
  };
}

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

// It has octet_length(): https://www.sqlite.org/releaselog/3_43_0.html
const OLDEST_SQLITE = [3, 43] as const;
const MORE_THAN_32_BITS = 1_700_000_000_000;

/**
 * Checks that an open database can be used by a `SqliteStore`.
 *
 * @throws {TypeError} It is no database, is closed, cuts integers off at 32 bits, returns every integer as a bigint, returns rows as
 * arrays, or is of a SQLite before 3.43.
 */
export function checkDriver(database: SqliteDriver): void {
  if (["exec", "prepare"].some((method) => typeof propertyOf(database, method) !== "function")) {
    throw new TypeError(
      `SqliteStore.from() takes an open database, with exec() and prepare(), not ${kindOf(database)}`,
    );
  }
  if (!isOpen(database)) throw new TypeError("SqliteStore.from() takes an open database, and this one is closed");
  const row = database.prepare(`SELECT ${MORE_THAN_32_BITS} AS value, sqlite_version() AS version`)
    .get() as { value: unknown; version?: unknown }; // every driver returns a row as an object of the column names
  if (Array.isArray(row)) {
    throw new TypeError("The database returns rows as arrays; open it without `returnArrays`");
  }
  const { value, version } = row;
  if (typeof value === "bigint") {
    throw new TypeError("The database returns every integer as a bigint; open it without that option");
  }
  if (value !== MORE_THAN_32_BITS) {
    throw new TypeError("The database cuts integers off at 32 bits; open it with `int64: true`");
  }
  if (isTooOld(String(version))) {
    throw new TypeError(
      `SqliteStore needs SQLite ${OLDEST_SQLITE.join(".")} or later, and the database has ${version}`,
    );
  }
}

function isTooOld(version: string): boolean {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  const [oldestMajor, oldestMinor] = OLDEST_SQLITE;
  return major < oldestMajor || (major === oldestMajor && minor < oldestMinor);
}
