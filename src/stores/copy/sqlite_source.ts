import { ConflictError, StoreError } from "../../model/error.ts";
import { isoTime } from "../../values/iso_time.ts";
import { migrateTables, readVersion } from "../sqlite/schema.ts";
import { SqliteDatabase, type SqliteDriver, type SqliteRow, storeError } from "../sqlite/sqlite_database.ts";
import type { CopiedTable } from "./copied_tables.ts";

// How long another process may hold the write lock of the file.
const BUSY_TIMEOUT_MS = 2_000;

/**
 * A SQLite file that is copied. Nobody else can write to it meanwhile, and it is not changed: tables of an earlier version
 * are updated within the transaction that is rolled back in the end.
 */
export class SqliteSource {
  readonly #driver: SqliteDriver;
  readonly #close: () => void;
  /** The database, inside the transaction. */
  readonly database: SqliteDatabase;

  private constructor(driver: SqliteDriver, close: () => void) {
    this.#driver = driver;
    this.#close = close;
    this.database = new SqliteDatabase(driver);
  }

  /**
   * Opens a file, and takes its write lock.
   *
   * @param now The instant that tells whether leases have expired.
   * @throws {StoreError} The file cannot be opened, or is none of a `SqliteStore`.
   * @throws {ConflictError} The file is in use: another process writes to it, a worker is live or a run under a lease.
   */
  static async open(path: string | URL, now: number): Promise<SqliteSource> {
    const [{ DatabaseSync }, { statSync }, { fileURLToPath }] = await Promise.all([
      import("node:sqlite"),
      import("node:fs"),
      import("node:url"),
    ]);
    const name = path instanceof URL || path.startsWith("file:") ? fileURLToPath(path) : path;
    const refusal = `Cannot copy the database "${name}"`;
    if (statSync(name, { throwIfNoEntry: false }) === undefined) {
      throw new StoreError(`${refusal}: there is no such file`);
    }
    let source: SqliteSource | null = null;
    try {
      const driver = new DatabaseSync(name);
      // `SqliteValue` leaves out the types that the store does not use.
      source = new SqliteSource(driver as unknown as SqliteDriver, () => driver.close());
      source.#begin(refusal, now);
      return source;
    } catch (error) {
      source?.close();
      throw error instanceof ConflictError ? error : storeError(error, { refusal });
    }
  }

  #begin(refusal: string, now: number): void {
    this.database.exec(`PRAGMA busy_timeout = ${BUSY_TIMEOUT_MS}; BEGIN IMMEDIATE`);
    if (readVersion(this.database) === 0) throw new StoreError(`${refusal}: it has no tables of a SqliteStore`);
    migrateTables(this.database);
    const use = this.#findUse(now);
    if (use !== null) throw new ConflictError(`${refusal}: ${use}; stop all engines that use it, and try again`);
  }

  /** What shows that an engine uses the file; `null`: nothing does. */
  #findUse(now: number): string | null {
    const worker = this.database.get<{ id: string; seen_at: number }>(
      "SELECT id, seen_at FROM holdfast_workers WHERE seen_at <= ? AND seen_at + lease_ms > ? ORDER BY seen_at DESC LIMIT 1",
      now,
      now,
    );
    if (worker !== undefined) return `worker "${worker.id}" has claimed at ${isoTime(worker.seen_at)}`;
    const lease = this.database.get<{ id: string; until: number }>(
      `SELECT id, lease_expires_at AS until FROM holdfast_runs WHERE lease_expires_at > ?
       UNION ALL SELECT run_id, expires_at FROM holdfast_ghosts WHERE expires_at > ? LIMIT 1`,
      now,
      now,
    );
    return lease === undefined ? null : `run "${lease.id}" is under a lease until ${isoTime(lease.until)}`;
  }

  /** The rows of a table, one after another. */
  *read({ name, columns }: CopiedTable): Generator<SqliteRow> {
    const selected = Object.entries(columns).map(([column, expression]) => `${expression} AS ${column}`);
    const statement = this.#driver.prepare(`SELECT ${selected.join(", ")} FROM holdfast_${name} t`);
    // `node:sqlite` has it; the other drivers of a store are not used here.
    yield* (statement as unknown as { iterate(): Iterable<SqliteRow> }).iterate();
  }

  /** The id of the store, which is copied with it. */
  storeId(): string {
    return this.database.one<{ id: string }>("SELECT id FROM holdfast_schema").id;
  }

  /** The greatest number that a run, a step or a fact has ever had. */
  lastNumber(): number {
    return this.database.one<{ number: number }>(
      `SELECT max(coalesce((SELECT max(position) FROM holdfast_journal), 0),
         coalesce((SELECT max(seq) FROM holdfast_runs), 0), coalesce((SELECT max(seq) FROM holdfast_steps), 0)) AS number`,
    ).number;
  }

  /** Releases the lock and closes the file, which is as it was. */
  close(): void {
    this.database.rollBack();
    this.#close();
  }
}
