import assert from "node:assert/strict";
import { PGlite } from "@electric-sql/pglite";
import pg from "pg";
import postgres from "postgres";
import { StoreError } from "../../../../src/model/error.ts";
import type { PostgresClient, PostgresListen } from "../../../../src/stores/postgres/mod.ts";
import { PostgresStore } from "../../../../src/stores/postgres/postgres_store.ts";
import { until } from "../../../processes/deadline.ts";
import { aClaimRequest, aRun, aStep } from "../../../support/fixtures.ts";
import { startServer } from "../server.ts";
import { getRun, getSteps } from "../../../../src/store/reads.ts";

/** A client of a driver, as its users open it. */
interface Opened {
  client: PostgresClient;
  /** How the driver listens. */
  listen: PostgresListen;
  /** Calls a function in a transaction, which is rolled back. */
  begin(work: (tx: PostgresClient) => Promise<void>): Promise<void>;
  /** Asks one statement without parameters, with the driver itself. */
  ask(sql: string): Promise<Record<string, unknown>[]>;
  close(): Promise<void>;
}

interface Driver {
  name: string;
  /** Whether its connections go over a network. */
  hasConnections: boolean;
  open(url: string): Promise<Opened>;
}

const server = startServer();
const NAME = "holdfast_driver_test";

const DRIVERS: readonly Driver[] = [
  {
    name: "npm:pg",
    hasConnections: true,
    open: async (url) => {
      const pool = new pg.Pool({ connectionString: url, application_name: NAME });
      pool.on("error", () => {});
      pool.on("connect", (client) => client.on("error", () => {}));
      const listening = new pg.Client({ connectionString: url });
      await listening.connect();
      return {
        client: pool,
        listen: async (channel, onNotify) => {
          listening.on("notification", (message) => message.channel === channel && onNotify());
          await listening.query(`listen ${channel}`);
          return () => listening.query(`unlisten ${channel}`);
        },
        begin: async (work) => {
          const connected = await pool.connect();
          await connected.query("begin");
          await work(connected);
          await connected.query("rollback");
          connected.release();
        },
        ask: async (sql) => (await pool.query(sql)).rows,
        close: async () => void await Promise.all([pool.end(), listening.end()]),
      };
    },
  },
  {
    name: "npm:postgres",
    hasConnections: true,
    open: (url) => {
      // It converts names and values unless it is told not to: here it is told to do more.
      const sql = postgres(url, {
        connection: { application_name: NAME },
        transform: postgres.camel,
        types: { bigint: postgres.BigInt },
        onnotice: () => {},
      });
      return Promise.resolve({
        client: sql,
        listen: (channel, onNotify) => sql.listen(channel, onNotify).then(({ unlisten }) => unlisten),
        begin: async (work) => {
          const reserved = await sql.reserve();
          await reserved.unsafe("begin");
          await work(reserved);
          await reserved.unsafe("rollback");
          reserved.release();
        },
        ask: async (text) => [...await sql.unsafe(text)],
        // Without a limit it waits for connections that were cut.
        close: () => sql.end({ timeout: 1 }),
      });
    },
  },
  {
    name: "PGlite",
    hasConnections: false,
    open: async () => {
      const pglite = await PGlite.create();
      return {
        client: pglite,
        listen: (channel, onNotify) => pglite.listen(channel, onNotify),
        begin: (work) =>
          pglite.transaction(async (tx) => {
            await work(tx);
            await tx.rollback();
          }),
        ask: async (sql) => (await pglite.query<Record<string, unknown>>(sql)).rows,
        close: () => pglite.close(),
      };
    },
  },
];

/** What a case is given: a store in a schema of its own. */
interface Place extends Opened {
  store: PostgresStore;
  schema: string;
}

interface Case {
  does: string;
  /** Whether it breaks connections. */
  needsConnections?: boolean;
  body(place: Place): Promise<void>;
}

const HOSTILE = [
  "'; drop table runs; --",
  '"quoted" \\ back\\\\slash',
  "$1 $2::text {schema} fn.claim",
  "nul \0 and \\u0000",
  "lone \ud800 and \udfff",
  "😀 \u2028 ümläut 漢字",
  "null",
  "[1,2]",
  "",
];

const CASES: readonly Case[] = [
  {
    does: "executes a run with a step from its trigger to its end",
    async body({ store }) {
      const run = aRun();
      await store.enqueue([run]);
      const { claims: [claim] } = await store.claim(aClaimRequest());
      await store.saveStep(claim!.lease, aStep({ name: "a", result: { status: "completed", output: '"out"' } }), []);
      await store.finish(claim!.lease, { status: "completed", output: null, durationMs: 1 }, []);

      assert.equal((await getRun(store, run.id))!.status, "completed");
      assert.deepEqual((await getSteps(store, run.id)).map(({ output }) => output), ["out"]);
      assert.ok((await store.readJournal(0, 100_000))!.rows.length >= 4);
    },
  },
  {
    does: "keeps hostile strings",
    async body({ store }) {
      const runs = HOSTILE.map((text, n) =>
        aRun({
          id: `hostile-${n}`,
          payload: JSON.stringify(text),
          labels: { text },
          concurrencyKey: `key ${text}`,
          idempotencyKey: `idempotent ${text}`,
        })
      );

      await store.enqueue(runs);

      for (const [n, text] of HOSTILE.entries()) {
        const run = (await getRun(store, `hostile-${n}`))!;
        assert.deepEqual(
          [run.payload, run.labels.text, run.concurrencyKey, run.idempotencyKey],
          [text, text, `key ${text}`, `idempotent ${text}`],
        );
        assert.equal((await store.findRuns({ labels: { text } })).ids.length, 1);
      }
    },
  },
  {
    does: "keeps large numbers exactly",
    async body({ store, ask, schema }) {
      const large = 2 ** 40 + 1;
      await ask(`alter table ${schema}.runs alter column seq restart with ${large}`);
      await store.enqueue([aRun()]);

      const { claims: [claim], now } = await store.claim(aClaimRequest({ leaseMs: 2 ** 33 }));
      const { seqs: [seq] } = await store.findRuns({});

      assert.equal(seq, large);
      assert.equal(typeof now, "number");
      assert.equal(claim!.leaseExpiresAt - now, 2 ** 33);
    },
  },
  {
    does: "keeps JSON text as it was given",
    async body({ store }) {
      const texts = ['{"b":1.0,"a":[1e2,{"c":null}]}', '"{}"', '"\\"quoted\\""', "12345678901234567890", "null", "[]"];
      await store.enqueue(texts.map((payload, n) => aRun({ id: `json-${n}`, payload })));

      const read = await store.readRuns(texts.map((_, n) => `json-${n}`), Infinity);

      assert.deepEqual(read.map((run) => run!.payload), texts);
    },
  },
  {
    does: "keeps a value of a megabyte",
    async body({ store }) {
      const payload = JSON.stringify("é".repeat(500_000));
      await store.enqueue([aRun({ payload, input: payload })]);

      const { claims: [claim] } = await store.claim(aClaimRequest());

      assert.equal(claim!.input, payload);
    },
  },
  {
    does: "performs many calls at once",
    async body({ store }) {
      const runs = Array.from({ length: 60 }, (_, n) => aRun({ id: `many-${n}` }));

      const added = await Promise.all(runs.map((run) => store.enqueue([run])));
      const read = await Promise.all(runs.map(({ id }) => getRun(store, id)));

      assert.deepEqual(added.map(([one]) => one!.disposition), runs.map(() => "created"));
      assert.deepEqual(read.map((run) => run!.id), runs.map(({ id }) => id));
    },
  },
  {
    does: "tells a statement that the server refuses from a connection that fails",
    async body({ store, ask, schema }) {
      await ask(`alter table ${schema}.inputs add check (payload <> '"bad"')`);

      const [good, bad] = await Promise.allSettled([
        store.enqueue([aRun({ id: "good" })]),
        store.enqueue([aRun({ id: "bad", payload: '"bad"' })]),
      ]);

      const { reason } = bad as PromiseRejectedResult;
      assert.equal(good.status, "fulfilled");
      assert.ok(reason instanceof StoreError);
      assert.deepEqual([reason.code, reason.outcomeUnknown], ["internal", false]);
    },
  },
  {
    does: "refuses what a store refuses",
    async body({ store }) {
      await store.enqueue([aRun()]);
      const { claims: [claim] } = await store.claim(aClaimRequest());
      await store.release(claim!.lease, []);

      const saved = store.saveStep(claim!.lease, aStep(), []);

      await assert.rejects(saved, { name: "LeaseLostError" });
      assert.equal(await store.cancel("none", "request", null), null);
    },
  },
  {
    does: "reports changes by the driver's own way to listen",
    async body({ store, client, listen, schema }) {
      await using listening = PostgresStore.from(client, { schema, durability: "relaxed", listen });
      let changes = 0;
      const errors: unknown[] = [];
      const watch = listening.watch!({ onChange: () => void (changes += 1), onError: (error) => errors.push(error) });
      await until(() => watch.isLive, "the watch was to be live");
      changes = 0;

      await store.enqueue([aRun()]);
      await until(() => changes > 0, "the change was to be reported");

      watch.stop();
      assert.deepEqual(errors, []);
    },
  },
  {
    does: "leaves the client open and its settings unchanged",
    async body({ store, ask }) {
      const settings = "select name, setting from pg_settings where source in ('session', 'client') order by name";
      const before = await ask(settings);
      await store.enqueue([aRun()]);
      await store.claim(aClaimRequest());

      await store.close();

      assert.deepEqual(await ask(settings), before);
      assert.deepEqual(await ask("select 1 as one"), [{ one: 1 }]);
    },
  },
  {
    does: "refuses to write inside a transaction of the user, and leaves nothing",
    async body({ client, begin, schema, store }) {
      const inside = async (tx: PostgresClient) => {
        const lent = PostgresStore.from(tx, { schema, durability: "relaxed" });
        const both = [lent.enqueue([aRun({ id: "inside" })]), lent.enqueue([aRun()])]; // one group
        for (const { reason } of await Promise.allSettled(both) as PromiseRejectedResult[]) {
          assert.ok(reason instanceof StoreError);
          assert.match(
            reason.message,
            /Holdfast was called inside a transaction of yours, .*: use engine.transaction\(\)/,
          );
        }
        await lent.close();
      };

      await begin(inside);

      assert.equal(await getRun(store, "inside"), null);
      const after = PostgresStore.from(client, { schema, durability: "relaxed" });
      assert.deepEqual((await after.enqueue([aRun()])).map(({ disposition }) => disposition), ["created"]);
    },
  },
  {
    does: "goes on after its connections were cut while they were idle",
    needsConnections: true,
    async body({ store }) {
      const run = aRun();
      await store.enqueue([run]);
      await kill("state = 'idle'");

      // A driver finds out of each of its connections by itself: an engine repeats the call, too.
      let disposition: string | null = null;
      await until(async () => {
        const [found] = await store.enqueue([run]).catch((error) => {
          assert.equal(error.code, "unavailable");
          return [];
        });
        disposition = found?.disposition ?? null;
        return disposition !== null;
      }, "the store was to go on");

      assert.equal(disposition, "created");
    },
  },
  {
    does: "does not know the outcome of a write whose connection is cut",
    needsConnections: true,
    async body({ store, schema }) {
      const client = new pg.Client({ connectionString: server!.url });
      await client.connect();
      await client.query(`begin; lock table ${schema}.inputs`);

      const writing = store.enqueue([aRun()]).catch((error) => error);
      await until(async () => await kill("wait_event_type = 'Lock'") > 0, "the write was to wait");
      const error = await writing;
      await client.query("rollback");
      await client.end();

      assert.ok(error instanceof StoreError);
      assert.deepEqual([error.code, error.outcomeUnknown], ["unavailable", true]);
    },
  },
];

/** Cuts connections of the driver, and returns how many. */
async function kill(condition: string): Promise<number> {
  const client = new pg.Client({ connectionString: server!.url });
  await client.connect();
  const { rows } = await client.query(
    `select pg_terminate_backend(pid) from pg_stat_activity where application_name = '${NAME}' and ${condition}`,
  );
  await client.end();
  return rows.length;
}

for (const driver of DRIVERS) {
  Deno.test({
    name: `PostgresStore.from() over ${driver.name}`,
    ignore: driver.hasConnections && server === null,
    // PGlite has timers, such as those of deadlocks, some of which end after it is closed.
    sanitizeOps: driver.hasConnections,
    sanitizeResources: driver.hasConnections,
    fn: async (t) => {
      const opened = await driver.open(server?.url ?? "");
      let schemas = 0;
      for (const { does, needsConnections = false, body } of CASES) {
        await t.step({
          name: does,
          ignore: needsConnections && !driver.hasConnections,
          sanitizeOps: false, // the driver has connections that are opened by one case and used by another
          sanitizeResources: false,
          fn: async () => {
            const schema = `driver_${++schemas}_${driver.name.replaceAll(/\W/g, "_").toLowerCase()}`;
            const store = PostgresStore.from(opened.client, { schema, durability: "relaxed" });
            await store.migrate();
            await body({ ...opened, store, schema });
            await store.close();
          },
        });
      }
      await opened.close();
    },
  });
}

Deno.test("PostgresStore.from() with a client of pg that is not connected says so, and does not wait for ever", async () => {
  await using store = PostgresStore.from(new pg.Client({ connectionString: "postgres://app@127.0.0.1:1/jobs" }));

  await assert.rejects(store.migrate(), {
    name: "StoreError",
    code: "unavailable",
    message: "The database cannot answer: the client is not connected: await client.connect() first",
  });
});
