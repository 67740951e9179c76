import assert from "node:assert/strict";
import pg from "pg";
import { createEngine } from "../../../mod.ts";
import { PostgresStore } from "../../../src/stores/postgres/postgres_store.ts";
import { queueName } from "../../../src/stores/queue_name.ts";
import { Child } from "../../processes/child.ts";
import { inTime } from "../../processes/deadline.ts";
import { Ledger } from "../../processes/ledger.ts";
import { findFault } from "./postgres_faults.ts";
import { FAULTS, Proxy } from "./processes/proxy.ts";
import { STEPS, type StormInput, stormJobs } from "./processes/storm_jobs.ts";
import { type Server, startServer } from "./server.ts";

// HOLDFAST_POSTGRES_SECONDS=300 makes each storm longer.
const SECONDS = Number(Deno.env.get("HOLDFAST_POSTGRES_SECONDS") ?? 8);
const KEYS = 5;
const SAMPLE_EVERY_MS = 5;
const WORKERS = [
  { version: 1, clockOffset: 0 },
  { version: 1, clockOffset: 60_000 },
  { version: 2, clockOffset: -60_000 },
];

const server = startServer({ fsync: true, isOwn: true });
const ignore = server === null;

Deno.test({
  name: "PostgresStore keeps what it has acknowledged while processes are killed and connections fail",
  ignore,
  async fn() {
    const { deadlocks } = await storm(server!, async (world) => {
      await pause(150 + Math.random() * 300);
      if (Math.random() < 0.2) return await world.killWorker();
      const fault = FAULTS[Math.floor(Math.random() * FAULTS.length)]!;
      world.proxy.fail(fault, Math.random());
    });

    assert.equal(deadlocks, 0);
  },
});

Deno.test({
  name: "PostgresStore keeps what it has acknowledged while the server is restarted without a shutdown",
  ignore,
  async fn() {
    await storm(server!, async (world) => {
      await pause(1_500 + Math.random() * 1_000);
      if (Math.random() < 0.3) await world.killWorker();
      else await server!.restart();
    });
  },
});

interface World {
  proxy: Proxy;
  /** Kills a worker, and starts another one. */
  killWorker(): Promise<void>;
}

/** Lets workers execute runs while `harm` is done over and over, and checks everything when all has ended. */
async function storm({ url }: Server, harm: (world: World) => Promise<void>): Promise<{ deadlocks: number }> {
  const schema = `storm_${crypto.randomUUID().replaceAll("-", "")}`;
  const folder = await Deno.makeTempDir({ prefix: "holdfast_storm_" });
  const ledger = new Ledger(`${folder}/ledger`);
  const { port } = new URL(url);
  await using proxy = new Proxy({ hostname: "127.0.0.1", port: Number(port) });
  const address = new URL(url);
  address.port = String(proxy.port);
  await using store = await PostgresStore.open(address, { schema });
  await store.migrate();
  const start = (at: number) => {
    const { version, clockOffset } = WORKERS[at]!;
    const program = new URL("processes/storm_worker.ts", import.meta.url).href;
    return new Child(program, address.href, schema, `${folder}/ledger`, String(version), String(clockOffset));
  };
  const workers = WORKERS.map((_, at) => start(at));
  await using _workers = {
    [Symbol.asyncDispose]: async () => {
      await Promise.all(workers.map((worker) => worker[Symbol.asyncDispose]()));
      await Deno.remove(folder, { recursive: true });
    },
  };
  await Promise.all(workers.map((worker) => worker.hear("ready")));
  let victim = 0;
  const world: World = {
    proxy,
    async killWorker() {
      const at = victim++ % workers.length;
      await workers[at]![Symbol.asyncDispose](); // SIGKILL
      workers[at] = start(at);
    },
  };
  const sampler = new KeySampler(url, schema);
  const endAt = performance.now() + SECONDS * 1_000;
  const isOver = () => performance.now() > endAt;

  const triggering = triggerUntil(isOver, store);
  while (!isOver()) await harm(world);
  const ids = await triggering;
  await untilDrained(url, schema);
  await sampler.end();

  const client = await connect(url);
  try {
    const { rows: runs } = await client.query<RunRow>(
      `select id, seq::int as seq, job, queue, status, concurrency_key as key from ${schema}.runs order by seq`,
    );
    const { rows: steps } = await client.query<StepRow>(
      `select r.id, s.name, s.output from ${schema}.steps s join ${schema}.runs r on r.seq = s.run_seq`,
    );
    assert.deepEqual(ids.filter((id) => !runs.some((run) => run.id === id)), [], "triggers that were acknowledged");
    assert.equal(runs.length, ids.length, "a trigger that was repeated has made one run");
    assert.deepEqual(runs.filter(({ status }) => status !== "completed"), []);
    checkLedger(ledger.read(), runs, steps);
    assert.ok(sampler.samples > SECONDS * 10, `${sampler.samples} samples`);
    assert.deepEqual(sampler.doubled, [], "two leases of one key");
    assert.equal(await findFault(client, schema), null);
    const { rows: [row] } = await client.query("select sum(deadlocks)::int as deadlocks from pg_stat_database");
    return { deadlocks: row.deadlocks };
  } finally {
    await client.end();
  }
}

interface RunRow {
  id: string;
  seq: number;
  job: string;
  queue: string;
  status: string;
  key: string | null;
}

interface StepRow {
  id: string;
  name: string;
  output: string;
}

/** Triggers one run after another, each until it is acknowledged. Returns their ids. */
async function triggerUntil(isOver: () => boolean, store: PostgresStore): Promise<string[]> {
  const engines = [1, 2].map((version) => createEngine({ store, jobs: stormJobs(version, () => {}), logger: null }));
  const ids: string[] = [];
  for (let n = 0; !isOver(); n++) {
    const { keyed, plain } = engines[n % 2]!.jobs;
    const input: StormInput = { n };
    const idempotencyKey = `trigger ${n}`;
    while (true) {
      try {
        const { id } = n % 3 === 0
          ? await plain.trigger(input, { idempotencyKey })
          : await keyed.trigger(input, { idempotencyKey, concurrencyKey: `key ${n % KEYS}` });
        ids.push(id);
        break;
      } catch {
        await pause(50); // it may have been committed: the idempotency key finds it
      }
    }
    await pause(10);
  }
  await Promise.all(engines.map((engine) => engine.stop()));
  return ids;
}

/** Compares what the store had acknowledged with what it has. */
function checkLedger(lines: string[][], runs: readonly RunRow[], steps: readonly StepRow[]): void {
  const runOf = new Map(runs.map((run) => [run.id, run]));
  const outputOf = new Map(
    steps.map(({ id, name, output }) => [`${id} ${name.replace(" ", "-")}`, JSON.parse(output)]),
  );
  const begun = new Map<string, number[]>();
  const ended = new Set<string>();
  let acknowledged = 0;
  for (const [kind, id, ...words] of lines as [string, string, ...string[]][]) {
    const run = runOf.get(id)!;
    if (kind === "step") {
      acknowledged += 1;
      assert.equal(outputOf.get(`${id} ${words[0]}`), words[1], `${words[0]} of ${id}, which was acknowledged`);
    }
    if (kind === "version") {
      assert.equal(run.queue, queueName("plain", Number(words[0])), `the version that executes ${id}`);
    }
    if (kind === "end") ended.add(id);
    if (kind === "begin" && run.key !== null) {
      assert.ok(!ended.has(id), `${id} is executed after its end`);
      const order = begun.get(run.key) ?? [];
      begun.set(run.key, order);
      if (!order.includes(run.seq)) order.push(run.seq);
    }
  }
  assert.ok(acknowledged >= runs.length, `${acknowledged} steps were acknowledged`);
  assert.equal(outputOf.size, runs.length * STEPS);
  for (const [key, order] of begun) {
    assert.deepEqual(order, order.toSorted((a, b) => a - b), `the order in which runs of "${key}" begin`);
  }
}

/** Looks over and over whether two runs of one key are under leases. */
class KeySampler {
  /** How often it has looked. */
  samples = 0;
  /** The keys that two runs held at once. */
  readonly doubled: string[] = [];
  readonly #sampling: Promise<void>;
  #isOver = false;

  constructor(url: string, schema: string) {
    this.#sampling = this.#sample(
      url,
      `select concurrency_key as key from ${schema}.runs
       where concurrency_key is not null and status = 'running'
         and lease_expires_at > extract(epoch from clock_timestamp()) * 1000
       group by 1 having count(*) > 1`,
    );
  }

  async end(): Promise<void> {
    this.#isOver = true;
    await this.#sampling;
  }

  async #sample(url: string, sql: string): Promise<void> {
    while (!this.#isOver) {
      const client = await connect(url).catch(() => null); // the server is starting
      try {
        while (client !== null && !this.#isOver) {
          this.doubled.push(...(await client.query(sql)).rows.map(({ key }) => key));
          this.samples += 1;
          await pause(SAMPLE_EVERY_MS);
        }
      } catch {
        // The server was restarted.
      }
      await client?.end().catch(() => {});
      await pause(SAMPLE_EVERY_MS);
    }
  }
}

/** Waits until the workers have ended all runs. */
async function untilDrained(url: string, schema: string): Promise<void> {
  const client = await connect(url);
  const drain = async () => {
    while (true) {
      const { rows } = await client.query(`select 1 from ${schema}.runs where completed_at is null limit 1`);
      if (rows.length === 0) return;
      await pause(50);
    }
  };
  await inTime(drain(), "the workers were to end all runs").finally(() => client.end());
}

async function connect(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url });
  client.on("error", () => {}); // what is asked next fails
  await client.connect();
  return client;
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
