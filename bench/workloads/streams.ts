import process from "node:process";
import { DatabaseSync } from "node:sqlite";
import { createEngine, defineJob, defineStream, type Engine, SqliteStore } from "@holdfast/jobs";
import { PostgresStore } from "@holdfast/jobs/postgres";
import pg from "pg";
import { benchInput } from "../engines/holdfast.ts";
import { pause } from "../pause.ts";
import { newDatabase } from "../postgres/new_database.ts";
import { serverCpu } from "../postgres/server_cpu.ts";
import { serverUrl } from "../postgres/server_url.ts";
import type { Setting } from "../setting.ts";
import { percentile } from "../statistics.ts";
import type { Workload } from "../workload.ts";

const RUNS = 100;
const TOKENS = 400;
const TOKEN_MS = 10;
const FIRST_TOKENS = 60;
const TOKEN = "token";

/** What it costs to stream items from steps, and how soon they are known in another process. */
export const streams: Workload = {
  name: "streams",
  title: "Steps that stream tokens",
  about:
    "100 runs, each with a step that writes 100 tokens of five letters a second. Its control is the same loop that " +
    "writes nothing; its processor time, journal, or time of a step is taken from, or divides, that of the streams. " +
    "Other processes of the machine slow what is measured in ms.",
  trials: [
    {
      name: "SQLite, a token",
      figures: [
        { name: "CPU, less its control", unit: "µs", goals: [{ below: 10 }] },
        { name: "CPU of the control", unit: "µs", goals: [] },
        { name: "journal, less its control", unit: "B", goals: [{ below: 4 }] },
        { name: "a step of another run meanwhile", unit: "times", goals: [{ below: 1.2 }] },
      ],
      rounds: 3,
      contenders: { holdfast: measureSqlite },
    },
    {
      name: "SQLite, the first token in another process",
      figures: [{ name: "p50", unit: "ms", goals: [{ below: 25 }] }, {
        name: "p99",
        unit: "ms",
        goals: [{ below: 60 }],
      }],
      rounds: 2,
      contenders: { holdfast: measureFirst },
    },
    {
      name: "PostgreSQL, a token",
      figures: [
        { name: "CPU of the client, less its control", unit: "µs", goals: [{ below: 15 }] },
        { name: "CPU of the server, less its control", unit: "µs", goals: [{ below: 25 }] },
      ],
      rounds: 3,
      contenders: { holdfast: measurePostgres },
    },
  ],
};

// What each process calls the same instant.
const now = () => performance.timeOrigin + performance.now();
const tokens = defineStream<string>("tokens");
const firsts = defineStream<number>("firsts");

/** Does something every 10 ms, as often as it is told. */
async function inTime(count: number, act: () => unknown): Promise<void> {
  const startedAt = performance.now();
  for (let n = 0; n < count; n++) {
    const late = performance.now() - startedAt - n * TOKEN_MS;
    if (late < 0) await pause(-late);
    await act();
  }
}

const writes = defineJob({
  name: "writes",
  input: benchInput,
  run: (step, { n }) =>
    step.run("say", ({ stream }) => {
      const writer = stream(tokens);
      return inTime(n, () => writer.write(TOKEN));
    }),
});
const silent = defineJob({
  name: "silent",
  input: benchInput,
  run: (step, { n }) => step.run("say", () => inTime(n, () => Promise.resolve())),
});
const other = defineJob({
  name: "other",
  input: benchInput,
  async run(step, { n }) {
    for (let k = 0; k < n; k++) await step.run(`step ${k}`, () => 1);
  },
});
const first = defineJob({
  name: "first",
  input: benchInput,
  run: (step) =>
    step.run("say", async ({ stream }) => {
      await pause(100 + Math.random() * 50);
      await stream(firsts).write(now());
      await pause(100);
    }),
});
const jobs = { writes, silent, other, first };

/** Executes runs of a job, each with so many tokens. */
async function execute(engine: Engine<typeof jobs>, name: "writes" | "silent", runs: number, count: number) {
  await Promise.all(Array.from({ length: runs }, () => engine.jobs[name].triggerAndWait({ n: count })));
}

/** Executes runs of a job, and answers the CPU time of a token, of this process, in microseconds. */
async function cpuOf(engine: Engine<typeof jobs>, name: "writes" | "silent", runs: number, count: number) {
  const before = process.cpuUsage();
  await execute(engine, name, runs, count);
  const { user, system } = process.cpuUsage(before);
  return (user + system) / (runs * count);
}

async function measureSqlite({ folder, size }: Setting): Promise<number[]> {
  const [runs, count] = [size(RUNS, 5), size(TOKENS, 5)];
  const path = `${folder}/jobs.db`;
  await using store = await SqliteStore.open(path);
  await using engine = createEngine({ store, jobs, logger: null, worker: { concurrency: runs + 1 } });
  await engine.start();
  const both = async (name: "writes" | "silent") => {
    const cpu = await cpuOf(engine, name, runs, count);
    const journal = journalOf(path);
    return { cpu, journal, stepMs: await stepMsBeside(engine, name, runs, count) };
  };
  const empty = journalOf(path);
  const control = await both("silent");
  const between = journalOf(path);
  const ours = await both("writes");
  const journal = (ours.journal - between - (control.journal - empty)) / (runs * count);
  return [ours.cpu - control.cpu, control.cpu, journal, ours.stepMs / control.stepMs];
}

/** The size of the journal, in bytes. */
function journalOf(path: string): number {
  using db = new DatabaseSync(path, { readOnly: true });
  return Number(db.prepare("SELECT coalesce(sum(length(facts)), 0) AS bytes FROM holdfast_journal").get()!.bytes);
}

/** How long a step of another run takes, one after another, while runs write: the median, in milliseconds. */
async function stepMsBeside(engine: Engine<typeof jobs>, name: "writes" | "silent", runs: number, count: number) {
  const writing = execute(engine, name, runs, count);
  await pause(count); // all of them have begun, and go on for three quarters of their time
  const times: number[] = [];
  for (const endsAt = performance.now() + count * TOKEN_MS / 2; performance.now() < endsAt;) {
    const startedAt = performance.now();
    await engine.jobs.other.triggerAndWait({ n: 20 });
    times.push((performance.now() - startedAt) / 20);
  }
  await writing;
  return percentile(times, 0.5);
}

async function measureFirst({ folder, size }: Setting): Promise<number[]> {
  const path = `${folder}/jobs.db`;
  await using store = await SqliteStore.open(path);
  await using engine = createEngine({ store, jobs, logger: null });
  await engine.migrate();
  const latencies: number[] = [];
  const inputs = Array.from({ length: size(FIRST_TOKENS, 3) }, () => ({ input: { n: 1 } }));
  const read = (await engine.jobs.first.batchTrigger(inputs)).map(async ({ id }) => {
    for await (const { items } of engine.readStream(id, firsts)) {
      for (const sentAt of items) latencies.push(now() - sentAt);
    }
  });
  const process = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", import.meta.url, path],
    stdin: "piped",
    stdout: "null",
  }).spawn();
  await Promise.all(read);
  await process.stdin.close();
  await process.status;
  return [percentile(latencies, 0.5), percentile(latencies, 0.99)];
}

async function measurePostgres({ size }: Setting): Promise<(number | null)[]> {
  const [runs, count] = [size(RUNS, 5), size(TOKENS, 5)];
  await using database = await newDatabase(serverUrl());
  await using store = await PostgresStore.open(database.url);
  await using engine = createEngine({ store, jobs, logger: null, worker: { concurrency: runs } });
  await engine.migrate();
  await engine.start();
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  const both = async (name: "writes" | "silent") => {
    const before = await serverCpu(client);
    const cpu = await cpuOf(engine, name, runs, count);
    const after = await serverCpu(client);
    return { client: cpu, server: before === null || after === null ? null : (after - before) / (runs * count) };
  };
  const control = await both("silent");
  const ours = await both("writes");
  await client.end();
  const server = ours.server === null || control.server === null ? null : ours.server - control.server;
  return [ours.client - control.client, server];
}

/** What the other process does, until its input ends. */
async function act(path: string): Promise<void> {
  await using store = await SqliteStore.open(path);
  await using engine = createEngine({ store, jobs, logger: null, worker: { concurrency: 10 } });
  await engine.start();
  for await (const _ of Deno.stdin.readable);
}

if (import.meta.main) await act(Deno.args[0]!);
