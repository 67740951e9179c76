import type { WorkError } from "../../../model/error.ts";
import type { DataSource, DataSourceOptions } from "../../../model/data_source.ts";
import { readKeepEffects } from "../../../model/data_source.ts";
import type {
  EffectRequest,
  Effects,
  NewOutboxRow,
  OutboxRequest,
  OutboxRow,
  SourceWrites,
  StoredEffect,
  StuckRows,
} from "../../../model/effects.ts";
import { systemHost } from "../../../model/host.ts";
import type { JsonText } from "../../../values/json.ts";
import { checkOptionNames } from "../../../values/option_names.ts";
import { checkDriver, openConnection } from "../connection.ts";
import { SqliteDatabase, type SqliteDriver } from "../sqlite_database.ts";
import { isAmong, sql } from "../statement.ts";
import { WriteBatch } from "../write_batch.ts";
import { inSavepoint, type SqliteTransaction, UserStatements } from "./sqlite_transaction.ts";

/** A SQLite database as a data source. {@linkcode sqliteDataSource} and `SqliteStore.dataSource()` make one. */
export class SqliteDataSource implements DataSource<SqliteTransaction>, AsyncDisposable {
  readonly kind = "sqlite";
  readonly store: object | null;
  readonly effects: Effects;
  declare readonly txType?: SqliteTransaction;
  readonly #connection: SqliteConnection;
  #isClosed = false;

  /** Use {@linkcode sqliteDataSource} or `SqliteStore.dataSource()`. */
  constructor(connection: SqliteConnection, store: object | null, options: DataSourceOptions) {
    this.#connection = connection;
    this.store = store;
    this.effects = new SqliteEffects(connection, readKeepEffects(options));
  }

  /** Executes statements of any kind without parameters, such as those that make tables: in one commit. */
  exec(sql: string): Promise<void> {
    const { db, writes } = this.#connection;
    return writes.submit(() => db.exec(sql));
  }

  /** Completes pending transactions, and closes the file if the data source has opened it. */
  async close(): Promise<void> {
    if (this.store !== null || this.#isClosed) return; // the store closes it
    this.#isClosed = true;
    await this.#connection.writes.close();
    this.#connection.close();
  }

  /** The same as {@linkcode SqliteDataSource.close}. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

/** A connection with the queue of its writes. */
export interface SqliteConnection {
  db: SqliteDatabase;
  writes: Pick<WriteBatch, "submit" | "close">;
  statements: UserStatements;
  close(): void;
}

const OPTIONS: Record<keyof DataSourceOptions, true> = { keepEffects: true };

/**
 * Another SQLite file than that of the store as a data source, in which steps leave effects. The table
 * `holdfast_effects` is made there. A file that it opens gets a write-ahead log, as that of a store.
 *
 * @param place The path of the file, `":memory:"`, or an open database as `SqliteStore.from()` takes it.
 * @throws {StoreError} The file cannot be opened.
 * @throws {TypeError} The database cannot be used, or an option is not valid.
 */
export async function sqliteDataSource(
  place: string | SqliteDriver,
  options: DataSourceOptions = {},
): Promise<SqliteDataSource> {
  checkOptionNames(options, OPTIONS, "sqliteDataSource()");
  const keepMs = readKeepEffects(options); // refused before anything is opened
  if (typeof place !== "string") checkDriver(place);
  const opened = typeof place === "string" ? await openConnection(place, `Cannot open the database "${place}"`) : null;
  const db = new SqliteDatabase(opened?.driver ?? place as SqliteDriver);
  db.get`PRAGMA busy_timeout = 0`; // `WriteBatch` waits without blocking the event loop
  if (opened !== null) {
    db.get`PRAGMA journal_mode = WAL`;
    db.exec("PRAGMA synchronous = full; PRAGMA foreign_keys = ON");
  }
  const connection: SqliteConnection = {
    db,
    writes: new WriteBatch(db, systemHost),
    statements: new UserStatements(() => db.driver),
    close: () => opened?.close(),
  };
  return new SqliteDataSource(connection, null, { keepEffects: keepMs });
}

const EFFECTS_TABLE = `CREATE TABLE IF NOT EXISTS holdfast_effects (
  step_key TEXT NOT NULL PRIMARY KEY,
  store_id TEXT NOT NULL,
  run_id TEXT NOT NULL,
  output TEXT,
  at INTEGER NOT NULL
) STRICT, WITHOUT ROWID`;
const OUTBOX_TABLE = `CREATE TABLE IF NOT EXISTS holdfast_outbox (
  no INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL DEFAULT (lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' ||
    substr(hex(randomblob(2)), 2) || '-8' || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))),
  kind TEXT NOT NULL CHECK (kind IN ('trigger', 'signal', 'send')),
  name TEXT NOT NULL,
  value TEXT CHECK (json_valid(value)),
  options TEXT CHECK (json_valid(options)),
  store_id TEXT,
  at INTEGER NOT NULL DEFAULT (unixepoch() * 1000),
  taken_until INTEGER,
  error TEXT
) STRICT`;
const INSERT_ROW =
  "INSERT INTO holdfast_outbox (id, kind, name, value, options, store_id, at) VALUES (?, ?, ?, ?, ?, ?, ?)";
// How long the rows that an engine has taken are not relayed by another one.
const TAKEN_MS = 5_000;

class SqliteEffects implements Effects {
  readonly keepMs: number;
  readonly #db: SqliteDatabase;
  readonly #writes: SqliteConnection["writes"];
  readonly #statements: UserStatements;

  constructor({ db, writes, statements }: SqliteConnection, keepMs: number) {
    this.#db = db;
    this.#writes = writes;
    this.#statements = statements;
    this.keepMs = keepMs;
  }

  migrate(isJoined: boolean): Promise<void> {
    const tables = [["holdfast_outbox", OUTBOX_TABLE], ...(isJoined ? [] : [["holdfast_effects", EFFECTS_TABLE]])];
    return this.#writes.submit(() => {
      for (const [name, statement] of tables) {
        // Even a statement that changes nothing would compile all statements of the connection anew.
        const found = this.#db.get`SELECT 1 FROM sqlite_schema WHERE name = ${name!}`;
        if (found === undefined) this.#db.exec(statement!);
      }
    });
  }

  async transact({ keys, work }: EffectRequest): Promise<{ found: JsonText | null } | { committed: true }> {
    const done = await this.#writes.submit(() => this.#transactNow(keys, work));
    if ("thrown" in done) throw done.thrown;
    return done;
  }

  #transactNow(
    keys: readonly string[],
    work: EffectRequest["work"],
  ): { found: JsonText | null } | { committed: true } | { thrown: WorkError } {
    for (const key of keys) {
      const row = this.#db.get<{ output: string | null }>`SELECT output FROM holdfast_effects WHERE step_key = ${key}`;
      if (row !== undefined) return { found: row.output };
    }
    const done = inSavepoint<SourceWrites>(this.#db, this.#statements, work);
    if ("thrown" in done) return done;
    const { effect, rows } = done.value;
    if (effect !== null) {
      const { key, storeId, runId, output, at } = effect;
      this.#db.run`INSERT INTO holdfast_effects VALUES (${key}, ${storeId}, ${runId}, ${output}, ${at})`;
    }
    for (const row of rows) this.#db.run(INSERT_ROW, ...parametersOf(row));
    return { committed: true };
  }

  findOlder(storeId: string, at: number, after: string, limit: number): Promise<StoredEffect[]> {
    return this.#writes.submit(() =>
      this.#db.all<{ key: string; runId: string; at: number }>`
        SELECT step_key AS key, run_id AS runId, at FROM holdfast_effects
        WHERE step_key > ${after} AND store_id = ${storeId} AND at < ${at} ORDER BY step_key LIMIT ${limit}`
    );
  }

  async forget(keys: readonly string[]): Promise<void> {
    await this.#writes.submit(() => this.#db.run`DELETE FROM holdfast_effects WHERE ${isAmong("step_key", keys)}`);
  }

  insertion(row: NewOutboxRow) {
    return { sql: INSERT_ROW, parameters: parametersOf(row) };
  }

  takeRows({ storeId, jobs, except, now, limit }: OutboxRequest): Promise<OutboxRow[]> {
    const mine = sql`error IS NULL AND (store_id IS NULL OR store_id = ${storeId}) AND
      CASE kind WHEN 'signal' THEN 1 WHEN 'send' THEN NOT ${isAmong("no", except)} ELSE ${isAmong("name", jobs)} END`;
    // It writes only if there is something.
    if (this.#db.get`SELECT 1 FROM holdfast_outbox WHERE ${mine} LIMIT 1` === undefined) return Promise.resolve([]);
    return this.#writes.submit(() => {
      const taken = this.#db.run`
        UPDATE holdfast_outbox SET taken_until = ${now + TAKEN_MS}
        WHERE no = (SELECT min(no) FROM holdfast_outbox WHERE ${mine}) AND (taken_until IS NULL OR taken_until <= ${now})`;
      if (taken === 0) return [];
      return this.#db.all<OutboxRow>`
        SELECT no, id, kind, name, value, options FROM holdfast_outbox WHERE ${mine} ORDER BY no LIMIT ${limit}`;
    });
  }

  async deleteRows(nos: readonly number[]): Promise<void> {
    await this.#writes.submit(() => this.#db.run`DELETE FROM holdfast_outbox WHERE ${isAmong("no", nos)}`);
  }

  async countStuck(storeId: string, before: number): Promise<StuckRows> {
    const row = this.#db.one<StuckRows>`
      SELECT count(error) AS refused, count(*) - count(error) AS waiting FROM holdfast_outbox
      WHERE (store_id IS NULL OR store_id = ${storeId}) AND (error IS NOT NULL OR at < ${before})`;
    return await Promise.resolve({ ...row });
  }

  async findRows(ids: readonly string[]): ReturnType<Effects["findRows"]> {
    return await Promise.resolve(
      this.#db.all<Awaited<ReturnType<Effects["findRows"]>>[number]>`
        SELECT id, kind, name, options, error FROM holdfast_outbox WHERE ${isAmong("id", ids)}`,
    );
  }

  async refuseRow(no: number, error: string): Promise<void> {
    await this.#writes.submit(() => this.#db.run`UPDATE holdfast_outbox SET error = ${error} WHERE no = ${no}`);
  }
}

function parametersOf({ id, kind, name, value, options, storeId, at }: NewOutboxRow) {
  return [id, kind, name, value, options, storeId, at];
}
