import assert from "node:assert/strict";
import pg from "pg";
import postgres from "postgres";
import { StoreError } from "../../../../src/model/error.ts";
import { openPool } from "../../../../src/stores/postgres/database/client.ts";
import { PostgresStore } from "../../../../src/stores/postgres/postgres_store.ts";
import { postgresDataSource } from "../../../../src/stores/postgres/transactions/postgres_data_source.ts";
import { aClaimRequest, aRun } from "../../../support/fixtures.ts";
import { startServer } from "../server.ts";
import { getRuns } from "../../../../src/store/reads.ts";

const server = startServer();
let schemas = 0;

function test(name: string, body: (place: { url: string; schema: string }) => Promise<void>): void {
  Deno.test({
    name,
    ignore: server === null,
    fn: () => body({ url: server!.url, schema: `connections_${++schemas}` }), // ignored without a server
  });
}

/** Asks the server something beside the store. */
async function ask(url: string, sql: string): Promise<Record<string, unknown>[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query(sql)).rows;
  } finally {
    await client.end();
  }
}

test("a statement with long parameters has more time", async ({ url }) => {
  const connection = await openPool(url, { leases: 100, writes: 100, reads: 100 });
  const measure = (length: number) =>
    connection.query("select length($1)::text as r from pg_sleep(0.4)", ["x".repeat(length)]);

  await assert.rejects(measure(1_000), /timeout/);
  const rows = await measure(1_500_000);

  await connection.close();
  assert.deepEqual(rows, [{ r: "1500000" }]);
});

const KILL = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'holdfast'";

test("open() refuses a server that may lose what it has acknowledged, unless it is asked not to", async ({ url, schema }) => {
  const lossy = `${url}?options=-c%20synchronous_commit%3Doff`;

  await assert.rejects(
    PostgresStore.open(lossy, { schema }),
    (error) => error instanceof StoreError && /synchronous_commit/.test(error.message),
  );

  await using store = await PostgresStore.open(lossy, { schema, durability: "relaxed" });
  await store.migrate();
});

test("migrate() refuses a server that may lose what it has acknowledged, also through a client of its caller", async ({ url, schema }) => {
  const pool = new pg.Pool({ connectionString: `${url}?options=-c%20synchronous_commit%3Doff` });
  const store = PostgresStore.from(pool, { schema });

  await assert.rejects(
    store.migrate(),
    (error) => error instanceof StoreError && /synchronous_commit/.test(error.message),
  );

  await pool.end();
});

test("open() and migrate() refuse a server where a backslash in a string is an escape", async ({ url, schema }) => {
  const odd = `${url}?options=-c%20standard_conforming_strings%3Doff`;
  const pool = new pg.Pool({ connectionString: odd });
  const store = PostgresStore.from(pool, { schema, durability: "relaxed" });

  const refusal = { name: "StoreError", code: "internal", message: /standard_conforming_strings is off/ };
  await assert.rejects(PostgresStore.open(odd, { schema, durability: "relaxed" }), refusal);
  await assert.rejects(store.migrate(), refusal);

  await pool.end();
});

test("a client of npm:postgres that renames the columns of the store is refused", async ({ url }) => {
  const renaming = postgres(url, { transform: postgres.pascal });
  const message = /cannot use a client of npm:postgres whose `transform` renames columns of one lower-case word/;

  assert.throws(() => PostgresStore.from(renaming), { name: "TypeError", message });
  assert.throws(() => postgresDataSource(renaming), { name: "TypeError", message });

  await renaming.end();
});

test("open() leaves no connection behind when it refuses a server", async ({ url, schema }) => {
  const name = `refused_${schema}`;
  const options = encodeURIComponent("-c synchronous_commit=off");

  await assert.rejects(
    PostgresStore.open(`${url}?options=${options}&application_name=${name}`, { schema }),
    StoreError,
  );

  const open = `select count(*)::int as open from pg_stat_activity where application_name = '${name}'`;
  for (let tries = 0; tries < 100 && (await ask(url, open))[0]!.open !== 0; tries++) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  assert.deepEqual(await ask(url, open), [{ open: 0 }]);
});

for (const isolation of ["repeatable read", "serializable"]) {
  test(`migrate() and writes refuse a role whose transactions are ${isolation}`, async ({ url, schema }) => {
    const options = encodeURIComponent(`-c default_transaction_isolation=${isolation.replace(" ", "\\ ")}`);
    await using store = await PostgresStore.open(`${url}?options=${options}`, { schema, durability: "relaxed" });
    await using other = await PostgresStore.open(url, { schema, durability: "relaxed" });
    const isRefusal = (error: unknown) => error instanceof StoreError && /READ COMMITTED/.test(error.message);

    await assert.rejects(store.migrate(), isRefusal);
    await other.migrate();
    await assert.rejects(store.migrate(), isRefusal);
    await assert.rejects(store.enqueue([aRun()]), isRefusal);
    await assert.rejects(store.enqueue([aRun({ concurrencyKey: "key" })]), isRefusal);
    assert.equal((await getRuns(other, { limit: 10, offset: 0 })).total, 0);
  });
}

Deno.test("open() refuses an address that is not valid, without showing its password", async () => {
  for (const url of ["postgres://user:sec/secret@host/db", "postgres://user:secret@[host/db"]) {
    await assert.rejects(PostgresStore.open(url), (error) => {
      assert.ok(error instanceof TypeError);
      assert.doesNotMatch(Deno.inspect(error), /sec/);
      return true;
    });
  }
});

Deno.test("open() refuses what is no address, such as a variable of the environment that is not set", async () => {
  for (const odd of [undefined, null, 5, {}]) {
    await assert.rejects(PostgresStore.open(odd as never), {
      name: "TypeError",
      message: /^PostgresStore\.open\(\) needs the address of a database, not /,
    });
  }
});

test("open() refuses the name of a schema that would have to be quoted, and unknown options", async ({ url }) => {
  await assert.rejects(PostgresStore.open(url, { schema: 'a"b' }), TypeError);
  await assert.rejects(PostgresStore.open(url, { durability: "none" } as object), TypeError);
  await assert.rejects(PostgresStore.open(url, { schem: "a" } as object), TypeError);
});

Deno.test("from() refuses what is no client", () => {
  for (const odd of [undefined, null, {}, { query: "select 1" }, "postgres://localhost/app"]) {
    assert.throws(() => PostgresStore.from(odd as never), {
      name: "TypeError",
      message: /^PostgresStore\.from\(\) needs a client of npm:pg, /,
    });
  }
});

test("from() uses a pool of the caller, and leaves it open", async ({ url, schema }) => {
  const pool = new pg.Pool({ connectionString: url, idleTimeoutMillis: 0 });
  const store = PostgresStore.from(pool, { schema, durability: "relaxed" });
  await store.migrate();

  const [added] = await store.enqueue([aRun()]);
  await store.close();

  const { rows: [row] } = await pool.query(`select id from ${schema}.runs`);
  assert.deepEqual(row, { id: added!.run.id });
  await pool.end();
});

test("a store goes on after its connections were cut while they were idle", async ({ url, schema }) => {
  await using store = await PostgresStore.open(url, { schema, durability: "relaxed" });
  await store.migrate();
  const run = aRun();
  await store.enqueue([run]);
  await ask(url, KILL);

  // The pool may not have noticed yet: then the outcome of one call is unknown, and it is repeated.
  const again = async () => await store.enqueue([run]);
  const [found] = await again().catch(again);

  assert.equal(found!.disposition, "created");
  assert.equal((await store.claim(aClaimRequest())).claims.length, 1);
});

test("a call that waits when its connection is cut has an unknown outcome if it writes", async ({ url, schema }) => {
  await using store = await PostgresStore.open(url, { schema, durability: "relaxed" });
  await store.migrate();
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query(`begin; lock table ${schema}.inputs`);

  const writing = store.enqueue([aRun()]).catch((error) => error);
  while ((await ask(url, `${KILL} and wait_event_type = 'Lock'`)).length === 0);
  const error = await writing;
  await client.query("rollback");
  await client.end();

  assert.ok(error instanceof StoreError);
  assert.deepEqual([error.code, error.outcomeUnknown], ["unavailable", true]);
});

test("a call has certainly done nothing if nobody answers at the address", async () => {
  await using store = await PostgresStore.open("postgres://holdfast@127.0.0.1:1/none");

  const error = await store.enqueue([aRun()]).catch((error) => error);

  assert.ok(error instanceof StoreError);
  assert.deepEqual([error.code, error.outcomeUnknown], ["unavailable", false]);
});

test("a write that the server refuses does not take the others of its group with it", async ({ url, schema }) => {
  await using store = await PostgresStore.open(url, { schema, durability: "relaxed" });
  await store.migrate();
  await ask(url, `alter table ${schema}.inputs add check (payload <> '"bad"')`);

  const [good, bad, other] = await Promise.allSettled([
    store.enqueue([aRun()]),
    store.enqueue([aRun({ payload: '"bad"' })]),
    store.enqueue([aRun({ concurrencyKey: "key" })]),
  ]);

  assert.deepEqual([good.status, bad.status, other.status], ["fulfilled", "rejected", "fulfilled"]);
  const { reason } = bad as PromiseRejectedResult;
  assert.deepEqual([reason.code, reason.outcomeUnknown], ["internal", false]);
});
