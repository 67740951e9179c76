// Measures how soon a process executes what another one triggers. As a program it is the other process.

import { fileURLToPath } from "node:url";
import { createEngine, defineJob } from "@holdfast/jobs";
import { PostgresStore } from "@holdfast/jobs/postgres";
import pg from "pg";
import { Counter } from "../counter.ts";
import { benchInput } from "../engines/holdfast.ts";
import { pause } from "../pause.ts";
import { percentile } from "../statistics.ts";
import { newDatabase } from "./new_database.ts";

// What each process calls the same instant.
const now = () => performance.timeOrigin + performance.now();

const anEngine = (store: PostgresStore, note: (sentAt: number) => void) =>
  createEngine({
    store,
    jobs: { triggered: defineJob({ name: "triggered", input: benchInput, run: (_step, { n }) => note(n) }) },
  });

/** Measures from before the trigger until the job begins: p50 and p99, in milliseconds. */
export async function measureNotice(url: string, count: number): Promise<number[]> {
  await using database = await newDatabase(url);
  const latencies: number[] = [];
  const noted = new Counter();
  await using store = await PostgresStore.open(database.url);
  await using engine = anEngine(store, (sentAt) => {
    latencies.push(now() - sentAt);
    noted.add();
  });
  await engine.start();
  const other = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", fileURLToPath(import.meta.url), database.url, String(count)],
    stdout: "null",
  }).spawn();
  if (!(await other.status).success) throw new Error("The other process has failed");
  await noted.reached(count);
  return [percentile(latencies, 0.5), percentile(latencies, 0.99)];
}

/** Counts the statements of an idle process, each of which is a transaction. */
export async function measureIdle(url: string, ms: number): Promise<number[]> {
  await using database = await newDatabase(url);
  await using store = await PostgresStore.open(database.url);
  await using engine = anEngine(store, () => {});
  await engine.start();
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  const name = new URL(database.url).pathname.slice(1);
  const read = async () => {
    const sql = "select xact_commit + xact_rollback as count from pg_stat_database where datname = $1";
    return Number((await client.query(sql, [name])).rows[0].count);
  };
  await pause(Math.min(ms, 12_000)); // a session that is idle reports its counts after ten seconds
  const before = await read();
  await pause(ms);
  const after = await read();
  await client.end();
  return [(after - before) / ms * 1_000];
}

if (import.meta.main) {
  const [url, count] = Deno.args as [string, string];
  await using store = await PostgresStore.open(url);
  await using engine = anEngine(store, () => {});
  await engine.migrate();
  for (let n = 0; n < Number(count); n++) {
    await pause(20 + Math.random() * 50);
    await engine.jobs.triggered.trigger({ n: now() });
  }
}
