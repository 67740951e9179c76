import assert from "node:assert/strict";
import pg from "pg";
import { defineJob } from "../../src/model/job/define_job.ts";
import { PostgresStore } from "../../src/stores/postgres/postgres_store.ts";
import { anything } from "../processes/anything.ts";
import { until } from "../processes/deadline.ts";
import { startServer } from "../stores/postgres/server.ts";
import { createEngine } from "../support/quiet_engine.ts";

const server = startServer();
const note = defineJob({ name: "note", input: anything<{ n: number }>(), run: () => null });

/** A test with a schema of its own, and the connection of somebody who knows no engine. */
function test(title: string, body: (place: { schema: string; psql: pg.Client }) => Promise<void>): void {
  Deno.test({
    name: title,
    ignore: server === null,
    fn: async () => {
      const psql = new pg.Client({ connectionString: server!.url });
      await psql.connect();
      try {
        await body({ schema: `outbox_${crypto.randomUUID().replaceAll("-", "")}`, psql });
      } finally {
        await psql.end();
      }
    },
  });
}

test("a row of the outbox in the store's own database is relayed at once, although the engine polls once an hour", async ({ schema, psql }) => {
  await using store = await PostgresStore.open(server!.url, { schema, durability: "relaxed" });
  await using app = store.dataSource();
  let isLive = () => false;
  const { watch } = store;
  Object.assign(store, {
    watch: (listener: Parameters<NonNullable<typeof watch>>[0]) => {
      const one = watch!(listener);
      isLive = () => one.isLive;
      return one;
    },
  });
  await using engine = createEngine({
    store,
    jobs: { note },
    dataSources: { app },
    worker: { pollingInterval: 3_600_000 },
  });
  await engine.start();
  await until(isLive, "the store was to listen");

  await psql.query(`SELECT ${schema}.trigger('note', '{"n": 1}')`);
  await until(async () => (await engine.getRuns({ status: "completed" })).total === 1, "the function was to trigger");
  await psql.query(`INSERT INTO ${schema}.outbox (kind, name, value) VALUES ('trigger', 'note', '{"n": 2}')`);
  await until(async () => (await engine.getRuns({ status: "completed" })).total === 2, "the row was to trigger");

  const { runs } = await engine.getRuns();
  assert.deepEqual(runs.map(({ input }) => input), [{ n: 2 }, { n: 1 }]);
});

test("transactions that add rows while a new one waits send no notification, and somebody with INSERT alone may add one", async ({ schema, psql }) => {
  await using store = await PostgresStore.open(server!.url, { schema, durability: "relaxed" });
  await using app = store.dataSource();
  await using engine = createEngine({ store, jobs: { note }, dataSources: { app } });
  await engine.migrate(); // nobody relays
  let notifications = 0;
  const listening = new pg.Client({ connectionString: server!.url });
  await listening.connect();
  listening.on("notification", () => void (notifications += 1));
  await listening.query(`LISTEN hf_outbox_${schema}`);
  const settled = () => listening.query("SELECT 1"); // notifications come before the answer
  const role = `clerk_${schema}`;
  await psql.query(`CREATE ROLE ${role}; GRANT USAGE ON SCHEMA ${schema} TO ${role};
    GRANT INSERT ON ${schema}.outbox TO ${role}; SET ROLE ${role}`);
  const add = (at: string) =>
    psql.query(`INSERT INTO ${schema}.outbox (kind, name, value, at) VALUES ('trigger', 'note', '{"n": 1}', ${at})`);

  // The clock of the row is that of the test, so that a slow machine changes nothing.
  const soon = "4102444800000";
  for (let n = 0; n < 50; n++) await add(soon);
  await settled();
  const { rows: [{ id }] } = await psql.query(`SELECT ${schema}.trigger('note', '{"n": 1}') AS id`);
  const whileWaiting = notifications;
  await psql.query("RESET ROLE");
  const { rowCount } = await psql.query(`SELECT FROM ${schema}.outbox WHERE id = $1`, [id]);
  assert.equal(rowCount, 1);
  await psql.query(`UPDATE ${schema}.outbox SET at = 0`);
  await add(soon); // nobody has looked for long
  await settled();
  await psql.query(`UPDATE ${schema}.outbox SET error = 'refused'`);
  await add(soon); // the newest row waits for nobody
  await settled();

  assert.deepEqual([whileWaiting, notifications], [1, 3]);
  await psql.query(`REVOKE ALL ON ${schema}.outbox FROM ${role}; REVOKE ALL ON SCHEMA ${schema} FROM ${role};
    DROP ROLE ${role}`);
  await listening.end();
});
