import assert from "node:assert/strict";
import pg from "pg";
import { PostgresStore } from "../../../src/stores/postgres/postgres_store.ts";
import { FACTS_PER_ROW } from "../../../src/stores/postgres/sql/names.ts";
import { FakeHost } from "../../support/fake_host.ts";
import { aRun } from "../../support/fixtures.ts";
import { type Server, startServer } from "./server.ts";

const server = startServer();

interface Fixture {
  store: PostgresStore;
  /** Opens a connection of its own. */
  connect(): Promise<pg.Client>;
  /** The statement that notes a fact of a run. */
  note(run: number): string;
}

function test(name: string, body: (fixture: Fixture) => Promise<void>): void {
  Deno.test({
    name: `PostgresStore: ${name}`,
    ignore: server === null,
    fn: async () => {
      const clients: pg.Client[] = [];
      const { store, schema } = await openStore(server!);
      const connect = async () => {
        const client = new pg.Client({ connectionString: server!.url });
        await client.connect();
        clients.push(client);
        return client;
      };
      try {
        await store.migrate();
        await body({
          store,
          connect,
          note: (run) => `select "${schema}".lock_journal_v1(); select "${schema}".note_v1(${run}, '"resumed"]', 1)`,
        });
      } finally {
        await Promise.all(clients.map((client) => client.end()));
        await store.close();
      }
    },
  });
}

async function openStore({ url }: Server): Promise<{ store: PostgresStore; schema: string }> {
  const schema = `journal_${crypto.randomUUID().replaceAll("-", "")}`;
  return { store: await PostgresStore.open(url, { schema, durability: "relaxed" }), schema };
}

/** The numbers of the rows after a position, counted from 1. */
async function numbers(store: PostgresStore, after = 0): Promise<number[]> {
  return (await store.readJournal(after, 1_000_000))!.rows.map(({ position }) => position / FACTS_PER_ROW);
}

test("readJournal() waits for a commit that comes later than one with a higher number", async (fixture) => {
  const { store, connect, note } = fixture;
  const [early, late] = [await connect(), await connect()];
  await early.query("begin");
  await early.query(note(1));
  await late.query(note(2));

  const before = await store.readJournal(0, 1_000_000);
  const reading = numbers(store);
  await early.query("commit");

  assert.deepEqual(before, { rows: [], end: { position: 0, at: 0 } });
  assert.deepEqual(await reading, [1, 2]);
});

test("readJournal() passes a number whose transaction was rolled back", async ({ store, connect, note }) => {
  const [early, late] = [await connect(), await connect()];
  await early.query("begin");
  await early.query(note(1));
  await late.query(note(2));
  await early.query("rollback");

  assert.deepEqual(await numbers(store), [2]);
});

test("readJournal() goes on while a foreign transaction writes", async ({ store, connect, note }) => {
  const [foreign, early, late] = [await connect(), await connect(), await connect()];
  await foreign.query("begin");
  await foreign.query("create temporary table foreign_rows as select 1 as one");
  await early.query("begin");
  await early.query(note(1));
  await late.query(note(2));
  await early.query("rollback");

  assert.deepEqual(await numbers(store), [2]);
  await foreign.query("rollback");
});

test("findCursor() waits for commits that may have lower numbers", async ({ store, connect, note }) => {
  const [early, late] = [await connect(), await connect()];
  await early.query("begin");
  await early.query(note(1));
  await late.query(note(2));

  const finding = store.findCursor(null);
  const first = await Promise.race([finding, new Promise((resolve) => setTimeout(resolve, 100, "waits"))]);
  await early.query("commit");

  assert.equal(first, "waits");
  assert.deepEqual(await finding, { position: 2 * FACTS_PER_ROW, at: 1 });
});

test("getRunState() answers no state between the commits of others", async ({ store, connect, note }) => {
  const [added] = await store.enqueue([aRun()]);
  const { id } = added!.run;
  const { seq } = (await store.getRunState(id))!;
  const [early, late] = [await connect(), await connect()];
  await early.query("begin");
  const [table] = note(seq).match(/"\w+"/)!;
  await early.query(`update ${table}.runs set interruptions = 5 where seq = ${seq}`);
  await early.query(note(seq));
  await late.query(note(99));

  const reading = store.getRunState(id);
  const first = await Promise.race([reading, new Promise((resolve) => setTimeout(resolve, 100, "waits"))]);
  await early.query("commit");

  assert.equal(first, "waits");
  const state = (await reading)!;
  assert.equal(state.execution, 6);
  assert.deepEqual(await numbers(store, state.place.position), []);
});

test("a reader misses nothing of writers that commit in another order, and sees nothing twice", async (fixture) => {
  const { store, connect, note } = fixture;
  const writers = await Promise.all(Array.from({ length: 8 }, connect));
  const written: string[] = [];
  let open = writers.length;

  const writing = Promise.all(writers.map(async (writer: pg.Client, n: number) => {
    for (let at = 0; at < 60; at++) {
      await writer.query("begin");
      await writer.query(note(n * 1_000 + at));
      if (at % 7 === n) await writer.query("select pg_sleep(0.01)");
      if (at % 10 === n) await writer.query("rollback");
      else {
        await writer.query("commit");
        written.push(`${n * 1_000 + at}`);
      }
    }
    open--;
  }));
  const read: string[] = [];
  for (let position = 0, more = true; more;) {
    more = open > 0;
    const page = (await store.readJournal(position, 2_000))!;
    read.push(...page.rows.flatMap(({ facts }) => facts.map(([run]) => `${run}`)));
    position = page.rows.at(-1)?.position ?? position;
    more ||= position < page.end.position;
  }
  await writing;

  assert.deepEqual(read.toSorted(), written.toSorted());
  const ofOne = (run: string) => Math.floor(Number(run) / 1_000) === 3;
  assert.deepEqual(read.filter(ofOne), written.filter(ofOne));
});

test("getRunState() answers for a run that changes all the time, while others write", async (fixture) => {
  const { store, connect, note } = fixture;
  const [added] = await store.enqueue([aRun()]);
  const { id } = added!.run;
  const { seq } = (await store.getRunState(id))!;
  const [table] = note(seq).match(/"\w+"/)!;
  let isOver = false;
  const write = async (run: number) => {
    const client = await connect();
    for (let count = 1; !isOver; count++) {
      await client.query("begin");
      await client.query(`update ${table}.runs set interruptions = interruptions + 1 where seq = ${run}`);
      await client.query(note(run));
      await client.query("select pg_sleep(0.003)");
      await client.query("commit");
    }
  };
  const writing = [seq, 1_001, 1_002, 1_003].map(write);

  const states = [];
  for (let n = 0; n < 20; n++) states.push((await store.getRunState(id))!);
  isOver = true;
  await Promise.all(writing);

  // Each of its changes has noted one fact.
  const { rows } = (await store.readJournal(0, 10_000_000))!;
  for (const { execution, place } of states) {
    const before = rows.filter(({ position, facts }) => position <= place.position && facts[0]![0] === seq);
    assert.equal(before.length, execution, `at ${place.position}`);
  }
});

Deno.test({
  name: "PostgresStore: purge() removes old rows of the journal, but not the newest of them",
  ignore: server === null,
  fn: async () => {
    const host = new FakeHost();
    await using store = await server!.open(host); // ignored without a server
    await store.migrate();
    for (let n = 0; n < 3; n++) await store.enqueue([aRun()]);
    const { rows } = (await store.readJournal(0, 10_000))!;
    const cursors = rows.map(({ position, at }) => ({ position, at }));
    host.advance(3_600_000);
    await store.enqueue([aRun()]);

    await store.purge({}, 10);

    assert.equal(await store.readJournal(0, 10_000), null);
    assert.equal(await store.readJournal(cursors[0]!.position, 10_000), null);
    assert.equal((await store.readJournal(cursors[1]!.position, 10_000))!.rows.length, 2);
    const found = await Promise.all([{ position: 0, at: 0 }, ...cursors].map((cursor) => store.findCursor(cursor)));
    assert.deepEqual(found, [null, null, null, cursors[2]]);
  },
});

test("purge() shortens a long journal, and keeps what was added last", async ({ store, connect, note }) => {
  const client = await connect();
  const [schema] = note(1).match(/"\w+"/)!;
  await client.query(`insert into ${schema}.journal (at, facts)
    select 9e12, '[' || n || ',"coalesced","pending","' || repeat('x', 100000) || '",{}]' from generate_series(1, 400) n`);

  await store.purge({}, 10);

  assert.equal(await store.readJournal(0, 10), null);
  const { rows } = await client.query(
    `select min(position) / ${FACTS_PER_ROW} as min, max(position) / ${FACTS_PER_ROW} as max, sum(length(facts)) from ${schema}.journal`,
  );
  assert.equal(Number(rows[0].max), 400);
  assert.ok(Math.abs(rows[0].sum - 33_554_432) < 400_000, `it has ${rows[0].sum} characters`);
  assert.equal((await store.readJournal((rows[0].min - 1) * FACTS_PER_ROW, 10))!.rows.length, 1);
});
