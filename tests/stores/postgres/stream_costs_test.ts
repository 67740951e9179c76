import assert from "node:assert/strict";
import pg from "pg";
import { createEngine } from "../../../src/engine/create_engine.ts";
import type { StepTools } from "../../../src/model/job/step_calls.ts";
import { PostgresStore } from "../../../src/stores/postgres/postgres_store.ts";
import { aJob } from "../../support/jobs.ts";
import { startServer } from "./server.ts";

const server = startServer();
const RUNS = 20;

Deno.test({
  name: "runs that stream nothing never touch the table of chunks in PostgreSQL",
  ignore: server === null,
  fn: async () => {
    const plain = await accessesOf("plain", () => Promise.resolve(1));
    const streaming = await accessesOf("streaming", ({ stream }) => stream("tokens").write("a"));

    // Making the table and its index reads it, too.
    assert.ok(plain <= 2, `${plain} accesses`);
    assert.ok(streaming >= RUNS, `${streaming} accesses`);
  },
});

/** Executes runs of a step, and returns how often the table of chunks was read or written. */
async function accessesOf(name: string, act: (tools: StepTools) => Promise<unknown>): Promise<number> {
  const schema = `streams_${name}_${Deno.pid}`;
  const store = await PostgresStore.open(server!.url, { schema, durability: "relaxed" }); // ignored without a server
  const engine = createEngine({ store, jobs: { job: aJob((step) => step.run("say", act)) }, logger: null });
  await engine.migrate();
  await engine.start();
  await Promise.all(Array.from({ length: RUNS }, () => engine.jobs.job.triggerAndWait(null)));
  await engine.stop();
  await store.close(); // the server adds up what a connection has done when it ends
  const client = new pg.Client({ connectionString: server!.url });
  await client.connect();
  const read = async (): Promise<{ runs: number; chunks: number }> => {
    const { rows: [row] } = await client.query(`
      select max(n_tup_ins) filter (where relname = 'runs')::int as runs,
        max(coalesce(seq_scan, 0) + coalesce(idx_scan, 0) + n_tup_ins + n_tup_upd) filter (where relname = 'chunks')::int as chunks
      from pg_stat_user_tables where schemaname = '${schema}'`);
    return row;
  };
  for (let tries = 0; (await read()).runs < RUNS; tries++) {
    assert.ok(tries < 400, "the server has not counted the runs");
    await client.query("select pg_sleep(0.05)");
  }
  const { chunks } = await read();
  await client.query(`drop schema ${schema} cascade`);
  await client.end();
  return chunks;
}
