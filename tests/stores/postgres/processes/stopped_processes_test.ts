import assert from "node:assert/strict";
import pg from "pg";
import { createEngine } from "../../../../mod.ts";
import { PostgresStore } from "../../../../src/stores/postgres/postgres_store.ts";
import { Child } from "../../../processes/child.ts";
import { until } from "../../../processes/deadline.ts";
import { type StormInput, stormJobs } from "./storm_jobs.ts";
import type { WorkerKind } from "./worker_kinds.ts";
import { startServer } from "../server.ts";

const server = startServer({ fsync: true, isOwn: true });
const WORKERS = 3;
const STOPS = 8;
// Shorter than the leases of the workers.
const STOP_MS = 1_000;
// One that keeps a lock holds the others up for the whole stop.
const MAX_MEDIAN_MS = 500;
const KIND: WorkerKind = { version: 1, clockOffsetMs: 0, jobs: null };

// A process that is stopped between two statements of a transaction keeps its locks: the others stand still as long.
Deno.test({
  name: "while a process is stopped the others go on",
  ignore: server === null,
  async fn() {
    const { url } = server!; // ignored without a server
    const schema = `stopped_processes_${Deno.pid}`;
    const folder = await Deno.makeTempDir({ prefix: "holdfast_stopped_" });
    await using store = await PostgresStore.open(url, { schema });
    await store.migrate();
    await using client = await connect(url);
    const program = new URL("storm_worker.ts", import.meta.url).href;
    const workers = Array.from(
      { length: WORKERS },
      () => new Child(program, url, schema, `${folder}/ledger`, JSON.stringify(KIND)),
    );
    await using _workers = {
      [Symbol.asyncDispose]: async () => {
        await Promise.all(workers.map((worker) => worker[Symbol.asyncDispose]()));
        await Deno.remove(folder, { recursive: true });
      },
    };
    await Promise.all(workers.map((worker) => worker.hear("ready")));
    const engine = createEngine({ store, jobs: stormJobs(1, () => {}), logger: null });
    let isOver = false;
    const triggering = (async () => {
      for (let n = 0; !isOver; n++) {
        const input: StormInput = { n, stepMs: 20 };
        if (n % 4 === 0) await engine.jobs.keyed.trigger(input, { concurrencyKey: `key ${n % 5}` });
        else await engine.jobs.plain.trigger(input);
        await pause(15);
      }
    })();
    const countSteps = async () => Number((await client.query(`select count(*) from ${schema}.steps`)).rows[0].count);
    await until(async () => await countSteps() > 100, "the workers were to execute runs");

    const standstills: number[] = [];
    let inTransaction = 0;
    for (let n = 0; n < STOPS; n++) {
      await pause(Math.random() * 300);
      const worker = workers[n % WORKERS]!;
      worker.signal("SIGSTOP");
      const stoppedAt = performance.now();
      let [count, changedAt, longest] = [await countSteps(), stoppedAt, 0];
      while (performance.now() - stoppedAt < STOP_MS) {
        await pause(3);
        const now = await countSteps();
        if (now === count) continue;
        longest = Math.max(longest, performance.now() - changedAt);
        [count, changedAt] = [now, performance.now()];
      }
      const { rows } = await client.query(
        "select 1 from pg_stat_activity where application_name = 'holdfast' and state like 'idle in transaction%'",
      );
      inTransaction += rows.length;
      worker.signal("SIGCONT");
      standstills.push(Math.max(longest, performance.now() - changedAt));
    }
    isOver = true;
    await triggering;
    await engine.stop();
    if (Deno.env.has("HOLDFAST_POSTGRES_SECONDS")) {
      console.log("longest standstills, in ms:", standstills.map(Math.round));
    }

    assert.equal(inTransaction, 0);
    const median = standstills.toSorted((a, b) => a - b)[STOPS / 2]!;
    assert.ok(median < MAX_MEDIAN_MS, `standstills of ${standstills.map(Math.round)} ms`);
  },
});

async function connect(url: string): Promise<AsyncDisposable & pg.Client> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  return Object.assign(client, { [Symbol.asyncDispose]: () => client.end() });
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
