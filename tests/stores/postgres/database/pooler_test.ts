import assert from "node:assert/strict";
import pg from "pg";
import { createEngine, defineJob } from "../../../../mod.ts";
import type { PostgresStoreOptions } from "../../../../src/stores/postgres/mod.ts";
import { PostgresStore } from "../../../../src/stores/postgres/postgres_store.ts";
import { anything } from "../../../processes/anything.ts";
import { until } from "../../../processes/deadline.ts";
import { storeContract } from "../../../../src/testing/contract/store_contract.ts";
import { startPooler } from "./pooler.ts";
import { startServer } from "../server.ts";

const server = startServer();
const url = server === null ? null : await startPooler(server);
const RUNS = 200;
const SESSIONS = 8; // that the pooler has

// HOLDFAST_POOLER=contract: all that a store promises, which takes minutes.
if (url !== null && Deno.env.get("HOLDFAST_POOLER") === "contract") {
  storeContract("PostgresStore through a pooler", (host) => {
    const schema = `pooled_${crypto.randomUUID().replaceAll("-", "")}`;
    return PostgresStore.open(url, { schema, durability: "relaxed", listenUrl: null, host });
  });
}

const job = defineJob({
  name: "pooled",
  input: anything<number>(),
  async run(step, n) {
    const doubled = await step.run("double", () => 2 * n);
    await step.sleep("nap", 1);
    return doubled;
  },
});

/** Two engines in front of one schema, whose stores have the pooler in between. */
async function twoEngines(schema: string, options: PostgresStoreOptions) {
  const errors: string[] = [];
  const stores = await Promise.all(
    [1, 2].map(() => PostgresStore.open(url!, { schema, durability: "relaxed", ...options })), // ignored without one
  );
  const engines = stores.map((store) => createEngine({ store, jobs: { job }, logger: null }));
  for (const engine of engines) {
    engine.on("worker:error", ({ error }) => void errors.push(String(error)));
    await engine.start();
  }
  return {
    errors,
    engines,
    stores,
    [Symbol.asyncDispose]: async () => {
      for (const engine of engines) await engine.stop();
      for (const store of stores) await store.close();
    },
  };
}

Deno.test({
  name: "two engines execute runs through a pooler in transaction mode, and listen at the server itself",
  ignore: url === null,
  async fn() {
    await using pooled = await twoEngines(`pooled_${Deno.pid}_1`, { listenUrl: server!.url });
    const { engines, stores, errors } = pooled;
    const watch = stores[0]!.watch!({ onChange: () => {}, onError: () => {} });
    await until(() => watch.isLive, "the store was to listen");

    const outputs = await Promise.all(
      Array.from({ length: RUNS }, (_, n) => engines[n % 2]!.jobs.job.triggerAndWait(n)),
    );

    assert.deepEqual(outputs.map(({ output }) => output), Array.from({ length: RUNS }, (_, n) => 2 * n));
    assert.deepEqual(errors, []);
    watch.stop();
  },
});

Deno.test({
  name: "a store leaves nothing behind in the sessions of the pooler: no setting, statement, lock or channel",
  ignore: url === null,
  async fn() {
    {
      await using pooled = await twoEngines(`pooled_${Deno.pid}_2`, { listenUrl: server!.url });
      await Promise.all(Array.from({ length: 50 }, (_, n) => pooled.engines[n % 2]!.jobs.job.triggerAndWait(n)));
    }

    const sessions = await Promise.all(Array.from({ length: SESSIONS }, () => inspectSession()));

    // Those who ask at once have a session each.
    assert.equal(new Set(sessions.map(({ pid }) => pid)).size, SESSIONS);
    assert.deepEqual(sessions.flatMap(({ left }) => left), []);
  },
});

/** What is left in a session of the pooler, whose process id it returns. */
async function inspectSession(): Promise<{ pid: number; left: string[] }> {
  const client = new pg.Client({ connectionString: url! }); // ignored without one
  await client.connect();
  const { rows: [row] } = await client.query(`
    select pg_backend_pid() as pid, pg_sleep(0.5), array(
      select 'statement ' || name from pg_prepared_statements
      union all select 'channel ' || c from pg_listening_channels() c
      union all select 'setting ' || name from pg_settings where source = 'session'
        and name not in ('application_name', 'client_encoding', 'DateStyle', 'TimeZone', 'standard_conforming_strings')
      union all select 'lock' from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()) as left`);
  await client.end();
  return row;
}

Deno.test({
  name: "a store that can only listen through the pooler says so, and polls",
  ignore: url === null,
  async fn() {
    await using pooled = await twoEngines(`pooled_${Deno.pid}_3`, {});
    const { engines, stores, errors } = pooled;
    const watch = stores[0]!.watch!({ onChange: () => {}, onError: () => {} });

    await until(() => errors.length === 2, "both were to say that they cannot listen");
    const { output } = await engines[0]!.jobs.job.triggerAndWait(4);

    assert.equal(output, 8);
    assert.equal(watch.isLive, false);
    for (const error of errors) assert.match(error, /no notification arrives.*set listenUrl/);
    watch.stop();
  },
});
