import { DatabaseSync } from "node:sqlite";
import { PGlite } from "@electric-sql/pglite";
import type { DataSource } from "../../src/model/data_source.ts";
import { postgresDataSource } from "../../src/stores/postgres/transactions/postgres_data_source.ts";
import type { SqliteDriver } from "../../src/stores/sqlite/sqlite_database.ts";
import { sqliteDataSource } from "../../src/stores/sqlite/transactions/sqlite_data_source.ts";

/** A database of a user with a table, and how a transaction there inserts a name. */
export interface Rows {
  source: DataSource;
  insert(tx: never, name: string): unknown;
  names(): Promise<string[]>;
  effects(): Promise<string[]>;
  /** Rows of the outbox, as `kind name error`. */
  outbox(): Promise<string[]>;
  /** Executes a statement by the client of the user. */
  execute(sql: string): Promise<unknown>;
  /** Calls a function in a transaction that the user has begun, with the client of it. */
  begin(work: (client: unknown) => Promise<unknown>): Promise<void>;
}

let embedded: Promise<PGlite> | undefined;

/** An empty PGlite: the same one for all tests of a file, since each takes seconds to start. */
export async function emptyPglite(): Promise<PGlite> {
  const database = await (embedded ??= PGlite.create());
  await database.exec("DROP SCHEMA IF EXISTS holdfast CASCADE; DROP TABLE IF EXISTS rows");
  return database;
}

/** Options of tests with a PGlite, which has timers, some of which end after the test in which they began. */
export const ON_PGLITE = { sanitizeOps: false, sanitizeResources: false };

/** A test on SQLite and on PostgreSQL. */
export function forEachSource(title: string, body: (rows: Rows) => Promise<void>): void {
  Deno.test(`SQLite: ${title}`, async () => {
    const database = new DatabaseSync(":memory:");
    const source = await sqliteDataSource(database as unknown as SqliteDriver);
    await source.exec("CREATE TABLE rows (name TEXT NOT NULL)");
    const all = (sql: string) => Promise.resolve(database.prepare(sql).all().map(({ v }) => String(v)));
    await body({
      source,
      insert: (tx: { run(sql: string, name: string): unknown }, name) => tx.run("INSERT INTO rows VALUES (?)", name),
      names: () => all("SELECT name AS v FROM rows ORDER BY rowid"),
      effects: () => all("SELECT step_key AS v FROM holdfast_effects"),
      outbox: () =>
        all("SELECT kind || ' ' || name || ' ' || coalesce(error, '') AS v FROM holdfast_outbox ORDER BY no"),
      execute: (sql) => Promise.resolve(database.exec(sql)),
      begin: async (work) => {
        database.exec("BEGIN");
        const done = work(database); // in one turn of the event loop
        database.exec("COMMIT");
        await done;
      },
    });
    await source.close();
    database.close();
  });
  Deno.test(`PostgreSQL: ${title}`, ON_PGLITE, async () => {
    const database = await emptyPglite();
    await database.exec("CREATE TABLE rows (no serial, name text NOT NULL)");
    const all = async (sql: string) => (await database.query<{ v: string }>(sql)).rows.map(({ v }) => v);
    const insert = (tx: { client: { query(sql: string, names: string[]): Promise<unknown> } }, name: string) =>
      tx.client.query("INSERT INTO rows (name) VALUES ($1)", [name]);
    await body({
      source: postgresDataSource(database),
      insert,
      names: () => all("SELECT name AS v FROM rows ORDER BY no"),
      effects: () => all("SELECT step_key AS v FROM holdfast.effects"),
      outbox: () =>
        all("SELECT kind || ' ' || name || ' ' || coalesce(error, '') AS v FROM holdfast.outbox ORDER BY no"),
      execute: (sql) => database.query(sql),
      begin: (work) => database.transaction(async (tx) => void await work(tx)),
    });
  });
}
