import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import pg from "pg";
import { COPIED_TABLES, LEFT_OUT } from "../../../src/stores/copy/copied_tables.ts";
import type { SqliteDriver } from "../../../src/stores/sqlite/sqlite_database.ts";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { newSchema, openSchema } from "../postgres/open_subject.ts";
import { startServer } from "../postgres/server.ts";
import { systemHost } from "../../../src/model/host.ts";

const server = startServer();

/** `table.column` of all columns of a `SqliteStore`. */
async function sqliteColumns(): Promise<string[]> {
  const database = new DatabaseSync(":memory:");
  const store = await SqliteStore.from(database as unknown as SqliteDriver);
  await store.migrate();
  const rows = database.prepare(
    `SELECT t.name || '.' || c.name AS name FROM sqlite_schema t, pragma_table_info(t.name) c
     WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%'`,
  ).all();
  await store.close();
  database.close();
  return rows.map(({ name }) => String(name));
}

/** `table.column` of all columns that an expression, or the way in which tables are joined, names by their alias. */
function readColumns(): Set<string> {
  return new Set(COPIED_TABLES.flatMap(({ from, columns }) => {
    const aliases = new Map([...from.matchAll(/(holdfast_\w+) (\w+)/g)].map(([, table, alias]) => [alias!, table!]));
    const text = [from, ...Object.values(columns)].join(" ");
    return [...text.matchAll(/\b(\w+)\.(\w+)\b/g)].map(([, alias, column]) => `${aliases.get(alias!)}.${column}`);
  }));
}

Deno.test("COPIED_TABLES reads each column of SqliteStore that LEFT_OUT does not name", async () => {
  const [all, read, out] = [await sqliteColumns(), readColumns(), LEFT_OUT.sqlite];
  const isOut = (column: string) => column in out || column.split(".")[0]! in out; // it has a table

  const forgotten = all.filter((column) => !read.has(column) && !isOut(column));
  const named = [...read].filter((column) => !all.includes(column) || isOut(column));

  assert.ok(all.length > 100);
  assert.deepEqual(forgotten, [], "copy these columns, or say in LEFT_OUT why not");
  assert.deepEqual(named, [], "these do not exist, or are both copied and left out");
});

Deno.test({
  name: "COPIED_TABLES writes each column of PostgresStore that LEFT_OUT does not name",
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
    const written = COPIED_TABLES.flatMap(({ to, columns }) => Object.keys(columns).map((column) => `${to}.${column}`));

    const forgotten = all.filter((column) => !written.includes(column) && !isOut(column));
    const named = written.filter((column) => !all.includes(column) || isOut(column));

    assert.ok(all.length > 100);
    assert.deepEqual(forgotten, [], "copy these columns, or say in LEFT_OUT why not");
    assert.deepEqual(named, [], "these do not exist, or are both copied and left out");
  },
});
