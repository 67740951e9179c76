import { createEngine, type DataSource, defineJob } from "@holdfast/jobs";
import { postgresDataSource, PostgresStore, type PostgresTransaction } from "@holdfast/jobs/postgres";
import pg from "pg";
import { Counter } from "../counter.ts";
import { benchInput } from "../engines/holdfast.ts";
import { serverUrl } from "../postgres/server_url.ts";
import type { Setting } from "../setting.ts";
import type { Slice } from "../slices.ts";
import { percentile } from "../statistics.ts";
import { ratioOf, takeTurns } from "../take_turns.ts";
import type { Workload } from "../workload.ts";

const STEPS = 5;
const CONCURRENCY = 20;
const ROUNDS = 7;
const OPEN_MS = 1_000;
const INSERT = "INSERT INTO user_rows (n) VALUES ($1)";

/** What transactions of steps cost on PostgreSQL, and what a transaction of a user that is open costs others. */
export const postgresTransactions: Workload = {
  name: "postgres_transactions",
  title: "PostgreSQL: rows of yours in one commit with a step",
  about:
    "Runs of 5 steps with a row each, 20 at once, a pool of 10. `joined`: row and record in one message; `effects`: an " +
    "effect row, then the record; `own commit`: the row, then the record, which is not exactly once. Then triggers of others " +
    "while a transaction of a user with a row of the outbox is open for a second, and the time from the commit of such a row " +
    "to the start of its run. Medians of the ratios of 7 rounds.",
  trials: [
    {
      name: "20 runs at once",
      figures: [
        { name: "joined, of effects", unit: "of the first", goals: [{ above: 0.95 }] },
        { name: "effects, of an own commit", unit: "of the first", goals: [{ above: 0.9 }] },
      ],
      rounds: 1,
      contenders: { holdfast: compareSteps },
    },
    {
      name: "a transaction of a user",
      figures: [
        { name: "triggers while it is open, of those while none is", unit: "times", goals: [{ below: 1.5 }] },
        { name: "from its commit to the start of its run, of a trigger", unit: "times", goals: [{ below: 2 }] },
      ],
      rounds: 1,
      contenders: { holdfast: measureOthers },
    },
  ],
};

async function compareSteps({ size }: Setting): Promise<(number | null)[]> {
  const ways = ["own", "effects", ...(isJoinable() ? ["joined"] : [])];
  const slices: Slice[] = [];
  for (const way of ways) slices.push(await steps(way, size(60, 2)));
  const [own, effects, joined] = await takeTurns(slices, size(ROUNDS, 2));
  return [
    joined === undefined ? null : ratioOf(effects!, joined, "time").median,
    ratioOf(own!, effects!, "time").median,
  ];
}

function isJoinable(): boolean {
  return "dataSource" in PostgresStore.prototype;
}

async function open(schema: string, isJoined: boolean) {
  const pool = new pg.Pool({ connectionString: serverUrl(), max: 10 });
  await pool.query(`DROP SCHEMA IF EXISTS ${schema} CASCADE; CREATE TABLE IF NOT EXISTS user_rows (n int)`);
  const store = await PostgresStore.open(serverUrl(), { schema });
  await store.migrate();
  const joinable = store as unknown as { dataSource(pool: pg.Pool): DataSource<PostgresTransaction> };
  const app = isJoined ? joinable.dataSource(pool) : postgresDataSource(pool, { schema: `${schema}_data` });
  return { pool, store, app };
}

async function steps(way: string, runs: number): Promise<Slice> {
  const { pool, store, app } = await open(`transactions_${way}`, way === "joined");
  const job = defineJob({
    name: way,
    input: benchInput,
    async run(step) {
      for (let n = 0; n < STEPS; n++) {
        if (way === "own") await step.run(`step ${n}`, async () => void await pool.query(INSERT, [n]));
        else await step.transaction(`step ${n}`, app, async (tx) => void await tx.client.query(INSERT, [n]));
      }
    },
  });
  const engine = createEngine({ store, jobs: { job }, dataSources: { app }, worker: { concurrency: CONCURRENCY } });
  const completed = new Counter();
  engine.on("run:complete", () => completed.add());
  await engine.start();
  return {
    work: async () => {
      const goal = completed.count + runs;
      await engine.jobs.job.batchTrigger(Array.from({ length: runs }, (_, n) => ({ input: { n } })));
      await completed.reached(goal);
    },
    end: async () => {
      await engine.stop();
      await store.close();
      await pool.end();
    },
  };
}

async function measureOthers({ size }: Setting): Promise<number[]> {
  const { pool, store, app } = await open("transactions_others", false);
  const job = defineJob({ name: "other", input: benchInput, run() {} });
  const engine = createEngine({ store, jobs: { job }, dataSources: { app } });
  const started = new Map<string, () => void>();
  engine.on("run:start", ({ runId }) => started.get(runId)?.());
  await engine.start();
  const rounds = size(5, 1);
  const [usual, meanwhile, plain, relayed]: number[][] = [[], [], [], []];
  for (let round = 0; round < rounds; round++) {
    usual!.push(...await triggerFor(size(OPEN_MS, 50)));
    const client = await pool.connect();
    await client.query("BEGIN");
    await engine.inTransaction(app, client).trigger(job, { n: 0 });
    meanwhile!.push(...await triggerFor(size(OPEN_MS, 50)));
    await client.query("COMMIT");
    client.release();
    for (let n = 0; n < size(20, 1); n++) {
      plain!.push(await untilStart(async () => (await engine.trigger(job, { n })).id));
      relayed!.push(
        await untilStart(async () => {
          const client = await pool.connect();
          await client.query("BEGIN");
          const { runId } = await engine.inTransaction(app, client).trigger(job, { n });
          await client.query("COMMIT");
          client.release();
          return runId;
        }),
      );
    }
  }
  await engine.stop();
  await store.close();
  await pool.end();
  return [percentile(meanwhile!, 0.99) / percentile(usual!, 0.99), percentile(relayed!, 0.5) / percentile(plain!, 0.5)];

  async function triggerFor(ms: number): Promise<number[]> {
    const waits: number[] = [];
    for (const since = performance.now(); performance.now() - since < ms;) {
      const at = performance.now();
      await engine.trigger(job, { n: 1 });
      waits.push(performance.now() - at);
    }
    return waits;
  }

  async function untilStart(add: () => Promise<string>): Promise<number> {
    const heard = new Map<string, number>();
    const off = engine.on("run:start", ({ runId }) => void heard.set(runId, performance.now()));
    const since = performance.now();
    const id = await add();
    if (!heard.has(id)) await new Promise<void>((resolve) => started.set(id, resolve));
    off();
    return (heard.get(id) ?? performance.now()) - since;
  }
}
