import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import pg from "pg";
import { COPIED_TABLES, LEFT_OUT, readCopiedTables } from "../../../src/stores/copy/copied_tables.ts";
import { SqliteDatabase, type SqliteDriver } from "../../../src/stores/sqlite/sqlite_database.ts";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { newSchema, openSchema } from "../postgres/open_subject.ts";
import { startServer } from "../postgres/server.ts";
import { systemHost } from "../../../src/model/host.ts";

const server = startServer();

/** The database of a `SqliteStore`. */
async function withSqlite<T>(use: (database: SqliteDatabase) => T): Promise<T> {
  const driver = new DatabaseSync(":memory:") as unknown as SqliteDriver & { close(): void };
  await using store = await SqliteStore.from(driver);
  await store.migrate();
  return use(new SqliteDatabase(driver));
}

Deno.test("COPIED_TABLES has each table of SqliteStore that LEFT_OUT does not name", async () => {
  const tables = await withSqlite((database) =>
    database.all<{ name: string }>("SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'holdfast%'")
  );
  const columns = await withSqlite((database) =>
    database.all<{ name: string }>(
      "SELECT t.name || '.' || c.name AS name FROM sqlite_schema t, pragma_table_info(t.name) c WHERE t.type = 'table'",
    )
  );
  const all = tables.map(({ name }) => name);
  const copied = COPIED_TABLES.map((name) => `holdfast_${name}`);
  const left = Object.keys(LEFT_OUT.sqlite);

  assert.ok(all.length > 20);
  assert.deepEqual([...copied, ...left.filter((name) => !name.includes("."))].sort(), all.sort());
  for (const name of left) assert.ok([...all, ...columns.map(({ name }) => name)].includes(name), name);
});

Deno.test({
  name: "readCopiedTables() has each column of PostgresStore that LEFT_OUT does not name",
  ignore: server === null,
  fn: async () => {
    const { url } = server!; // ignored without a server
    const schema = newSchema();
    const subject = await openSchema(url, { schema, host: systemHost, idsMade: 0 });
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    const { rows } = await client.query<{ name: string }>(
      `select table_name || '.' || column_name as name from information_schema.columns where table_schema = $1`,
      [schema],
    );
    await client.end();
    await subject.close();
    const all = rows.map(({ name }) => name);
    const out = LEFT_OUT.postgres;
    const isOut = (column: string) => column in out || column.split(".")[0]! in out; // it has a table
    const tables = await withSqlite(readCopiedTables);
    const written = tables.flatMap(({ name, columns }) => Object.keys(columns).map((column) => `${name}.${column}`));

    const forgotten = all.filter((column) => !written.includes(column) && !isOut(column));
    const named = written.filter((column) => !all.includes(column) || isOut(column));

    assert.ok(all.length > 100);
    assert.deepEqual(forgotten, [], "copy these columns, or say in LEFT_OUT why not");
    assert.deepEqual(named, [], "these do not exist, or are both copied and left out");
  },
});
