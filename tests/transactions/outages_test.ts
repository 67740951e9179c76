import assert from "node:assert/strict";
import pg from "pg";
import type { DataSource } from "../../src/model/data_source.ts";
import { LeaseLostError } from "../../src/model/error.ts";
import type { StepContext } from "../../src/model/job.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import type { Store } from "../../src/store/store.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { PostgresStore } from "../../src/stores/postgres/postgres_store.ts";
import type { PostgresPool } from "../../src/stores/postgres/transactions/drivers.ts";
import {
  postgresDataSource,
  type PostgresTransaction,
} from "../../src/stores/postgres/transactions/postgres_data_source.ts";
import { startRun } from "../../src/testing/contract/arrange.ts";
import { FactReader } from "../../src/testing/contract/fact_reader.ts";
import { until } from "../processes/deadline.ts";
import { startServer } from "../stores/postgres/server.ts";
import { FakeHost } from "../support/fake_host.ts";
import { createEngine } from "../support/quiet_engine.ts";
import { anything } from "../support/stores/for_each_store.ts";

type Gate = PromiseWithResolvers<void>;

const server = startServer();

function test(name: string, body: () => Promise<void>): void {
  Deno.test({ name, ignore: server === null, fn: body, sanitizeOps: false, sanitizeResources: false }); // of connections that were cut
}

/** When a connection is cut: before a statement is sent, while the server executes it, or when it has answered. */
const MOMENTS = ["before", "during", "after"] as const;

/** Cuts one connection, once. */
interface Cut {
  when: typeof MOMENTS[number];
  /** How many statements are executed before; `null`: it is not armed. */
  left: number | null;
}

/** A pool whose connections are cut. */
function cutting(pool: pg.Pool, cut: Cut): PostgresPool {
  const query = async (client: pg.PoolClient, given: [string, unknown[]?]) => {
    if (cut.left === null || cut.left-- > 0) return await client.query(...given);
    cut.left = null;
    const { stream } = (client as unknown as { connection: { stream: { destroy(): void } } }).connection;
    if (cut.when === "before") stream.destroy();
    if (cut.when === "during") setImmediate(() => stream.destroy());
    const answer = await client.query(...given);
    stream.destroy();
    throw cut.when === "after"
      ? new Error("Connection terminated unexpectedly")
      : new Error(`answered: ${answer.command}`);
  };
  return {
    connect: async () => {
      const client = await pool.connect();
      return {
        query: (...given: [string, unknown[]?]) => query(client, given),
        release: (destroy?: boolean) => client.release(destroy),
      };
    },
  };
}

const PLACES: Record<string, (pool: PostgresPool) => Promise<{ store: Store; app: DataSource }>> = {
  "the store's own database": async (pool) => {
    const store = await server!.open();
    return { store, app: store.dataSource(pool) as DataSource };
  },
  "another database": (pool) =>
    Promise.resolve({ store: new MemoryStore(), app: postgresDataSource(pool) as DataSource }),
};

for (const [where, open] of Object.entries(PLACES)) {
  for (const when of MOMENTS) {
    test(`${where}: a transaction takes effect once, whichever of its statements the connection is cut ${when}`, async () => {
      const pool = new pg.Pool({ connectionString: server!.url, max: 4 });
      pool.on("error", () => {});
      pool.on("connect", (client) => void client.on("error", () => {}));
      const table = `cut_${crypto.randomUUID().replaceAll("-", "")}`;
      await pool.query(`CREATE TABLE ${table} (at int, execution int)`);
      const cut: Cut = { when, left: null };
      const { store, app } = await open(cutting(pool, cut));
      let executions = 0;
      const move = defineJob({
        name: "move",
        input: anything,
        retry: { maxAttempts: 5, delay: 0 },
        run: (step: StepContext, at: number) =>
          step.transaction("move", app, async (tx) => {
            const execution = ++executions;
            const { client } = tx as PostgresTransaction;
            await client.query(`INSERT INTO ${table} VALUES ($1, $2)`, [at, execution]);
            return execution;
          }),
      });
      const engine = createEngine({ store, jobs: { move }, dataSources: { app } });
      await engine.migrate();

      let cuts = 0;
      for (let at = 0;; at++) {
        cut.left = at;
        const { id } = await engine.trigger(move, at);
        await engine.runUntilIdle();
        const { status, output, error } = (await engine.getRun(id))!;
        const { rows } = await pool.query(`SELECT execution FROM ${table} WHERE at = $1`, [at]);
        assert.equal(status, "completed", `statement ${at}: ${error}`);
        assert.deepEqual(rows, [{ execution: output }], `statement ${at}: the record is that of another execution`);
        if (cut.left !== null) break; // it has fewer statements
        cuts += 1;
      }

      assert.ok(cuts >= 3, `${cuts} statements were cut`);
      await engine.stop();
      await store.close();
      await pool.query(`DROP TABLE ${table}`);
      await pool.end();
    });
  }
}

test("a pool of a copy of the store's database commits nothing there under a lease of the store", async () => {
  const admin = new pg.Client({ connectionString: server!.url });
  await admin.connect();
  const names = ["original", "copy"].map((name) => `${name}_${Deno.pid}`);
  const [original, copy] = names.map((name) => Object.assign(new URL(server!.url), { pathname: `/${name}` }).href);
  const open = () => PostgresStore.open(original!, { durability: "relaxed", listenUrl: null });
  await admin.query(`CREATE DATABASE ${names[0]}`);
  const first = await open();
  await first.migrate();
  await first.close();
  await until(
    async () => (await admin.query("SELECT FROM pg_stat_activity WHERE datname = $1", [names[0]])).rowCount === 0,
    "the connections were to end",
  );
  await admin.query(`CREATE DATABASE ${names[1]} TEMPLATE ${names[0]}`);
  const pool = new pg.Pool({ connectionString: copy!, max: 2 });
  await pool.query("CREATE TABLE rows (name text)");
  const store = await open();
  await store.migrate();
  const app = store.dataSource(pool);
  const { lease } = await startRun(store);
  let calls = 0;

  const transacting = store.transact(app, { name: "book", lease: () => lease }, async (tx) => {
    calls += 1;
    await (tx as PostgresTransaction).client.query("INSERT INTO rows VALUES ('a')");
    return { step: null, runs: [], signals: [] };
  });

  await assert.rejects(transacting, LeaseLostError);
  assert.equal(calls, 0);
  assert.equal((await pool.query("SELECT FROM rows")).rowCount, 0);
  await store.close();
  await pool.end();
  for (const name of names) await admin.query(`DROP DATABASE ${name} WITH (FORCE)`);
  await admin.end();
});

test("lines beside a transaction of 4 s are stored within 500 ms, and it commits under the lease as renewed meanwhile", async () => {
  const host = new FakeHost();
  const store = await server!.open(host);
  const pool = new pg.Pool({ connectionString: server!.url, max: 2 });
  const app = store.dataSource(pool);
  const [begun, logged, gate] = Array.from({ length: 3 }, () => Promise.withResolvers<void>()) as [Gate, Gate, Gate];
  const both = defineJob({
    name: "both",
    input: anything,
    run: async (step: StepContext) => {
      await Promise.all([
        step.transaction("long", app, async (tx) => {
          await tx.client.query("SELECT 1");
          begun.resolve();
          await gate.promise;
        }),
        step.run("talk", async () => {
          await begun.promise;
          step.log.info("a line");
          logged.resolve();
          await gate.promise;
        }),
      ]);
    },
  });
  const engine = createEngine({
    store,
    host,
    jobs: { both },
    dataSources: { app },
    worker: { staleThreshold: 6_000, heartbeatInterval: 2_000 },
  });
  const { id } = await engine.trigger(both, null);
  await engine.start();
  await logged.promise;
  const facts = new FactReader(store);
  const leaseOf = async () => (await engine.getRun(id))!.leaseExpiresAt;
  const firstLease = await leaseOf();

  await host.advance(500);
  // Time stands still until it is there, and no lease is renewed but for it.
  await until(async () => /"a line"/.test(JSON.stringify(await facts.read())), "the line was to be stored");
  for (let beat = 0; beat < 2; beat++) {
    const before = await leaseOf();
    await host.advance(2_000);
    await until(async () => await leaseOf() !== before, "the lease was to be renewed");
  }
  gate.resolve();
  const run = await engine.waitForRun(id);

  assert.notEqual(await leaseOf(), firstLease);
  assert.deepEqual([run.status, run.leaseGeneration], ["completed", 1]);
  await engine.stop();
  await store.close();
  await pool.end();
});
