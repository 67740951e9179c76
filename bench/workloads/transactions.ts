import { createEngine, type DataSource, defineJob, sqliteDataSource, SqliteStore } from "@holdfast/jobs";
import type { SqliteTransaction } from "@holdfast/jobs";
import { DatabaseSync } from "node:sqlite";
import { Counter } from "../counter.ts";
import { benchInput } from "../engines/holdfast.ts";
import type { Setting } from "../setting.ts";
import type { Slice } from "../slices.ts";
import { ratioOf, takeTurns } from "../take_turns.ts";
import type { Workload } from "../workload.ts";

const STEPS = 5;
const CONCURRENCY = 100;
const ROUNDS = 9;
const INSERT = "INSERT INTO user_rows (n) VALUES (?)";

/** What it costs that a step writes a row of the user in the commit of its record. */
export const transactions: Workload = {
  name: "transactions",
  title: "Rows of yours in one commit with a step, or with a run",
  about:
    "Runs of 5 steps, each of which writes a row, one way after the other in turn. `plain`: no row; `named`: no row, " +
    "in an engine with a data source; `joined`: `step.transaction()`, row and record in one commit; `effects`: " +
    "`step.transaction()` in another file; `own commit`: the row by another connection, then the record, which is not " +
    "exactly once. Then a row and a run: `trigger` alone; `joined`: `engine.transaction()` in the file of the store; " +
    "`relayed`: in another file, through the outbox; `own commit`: the row, then the trigger. Medians of the ratios of 9 rounds.",
  trials: [
    {
      name: "100 runs at once",
      figures: [
        { name: "joined, of plain", unit: "of the first", goals: [{ above: 0.75 }] },
        { name: "joined, of an own commit", unit: "of the first", goals: [{ above: 3 }] },
        { name: "effects, of joined", unit: "of the first", goals: [{ above: 0.85 }] },
        { name: "named, of plain (0.98 to 1.02)", unit: "of the first", goals: [{ above: 0.98 }] },
      ],
      rounds: 1,
      contenders: { holdfast: (setting) => compareSteps(setting, CONCURRENCY, setting.size(100, 10)) },
    },
    {
      name: "one run at a time",
      figures: [
        { name: "joined, of plain", unit: "of the first", goals: [{ above: 0.85 }] },
        { name: "joined, of an own commit", unit: "of the first", goals: [{ above: 1 }] },
        { name: "effects, of joined", unit: "of the first", goals: [] },
        { name: "named, of plain", unit: "of the first", goals: [] },
      ],
      rounds: 1,
      contenders: { holdfast: (setting) => compareSteps(setting, 1, setting.size(30, 2)) },
    },
    ...[CONCURRENCY, 1].map((atOnce) => ({
      name: atOnce === 1 ? "a row and a run, one at a time" : "a row and a run, 100 at once",
      figures: [
        { name: "joined, of a trigger", unit: "of the first", goals: [] },
        { name: "joined, of an own commit", unit: "of the first", goals: [{ above: atOnce === 1 ? 1 : 3 }] },
        { name: "relayed, of an own commit", unit: "of the first", goals: [] },
      ],
      rounds: 1,
      contenders: {
        holdfast: (setting: Setting) => compareTriggers(setting, atOnce, setting.size(atOnce === 1 ? 100 : 10, 1)),
      },
    } as const)),
  ],
};

async function compareSteps({ folder, size }: Setting, concurrency: number, runs: number): Promise<number[]> {
  const ways = ["plain", "named", "joined", "effects", "own"] as const;
  const slices = await Promise.all(ways.map((way) => steps(way, `${folder}/${way}.db`, concurrency, runs)));
  const [plain, named, joined, effects, own] = await takeTurns(slices, size(ROUNDS, 2));
  return [
    ratioOf(plain!, joined!, "time").median,
    ratioOf(own!, joined!, "time").median,
    ratioOf(joined!, effects!, "time").median,
    ratioOf(plain!, named!, "work").median,
  ];
}

async function compareTriggers({ folder, size }: Setting, atOnce: number, rounds: number): Promise<number[]> {
  const ways = ["plain", "joined", "effects", "own"] as const;
  const slices = await Promise.all(ways.map((way) => triggers(way, `${folder}/${way}.db`, atOnce, rounds)));
  const [plain, joined, relayed, own] = await takeTurns(slices, size(ROUNDS, 2));
  return [
    ratioOf(plain!, joined!, "time").median,
    ratioOf(own!, joined!, "time").median,
    ratioOf(own!, relayed!, "time").median,
  ];
}

type Way = "plain" | "named" | "joined" | "effects" | "own";

/** A store with a table of the user: in its file, or in another one. */
async function open(way: Way, path: string) {
  const store = await SqliteStore.open(path);
  const place = way === "effects" ? `${path}.rows` : path;
  const own = new DatabaseSync(place);
  own.exec(
    "PRAGMA busy_timeout = 10000; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE user_rows (n INTEGER)",
  );
  const app: DataSource<SqliteTransaction> = way === "effects" ? await sqliteDataSource(place) : store.dataSource();
  const dataSources: Record<string, DataSource> = way === "plain" || way === "own" ? {} : { app };
  return { store, own, app, dataSources };
}

/** Executes so many runs in each turn, whose steps write a row in one of the ways. */
async function steps(way: Way, path: string, concurrency: number, runs: number): Promise<Slice> {
  const { store, own, app, dataSources } = await open(way, path);
  const insert = own.prepare(INSERT);
  const job = defineJob({
    name: way,
    input: benchInput,
    async run(step) {
      for (let n = 0; n < STEPS; n++) {
        if (way === "joined" || way === "effects") {
          await step.transaction(`step ${n}`, app, (tx) => tx.run(INSERT, n).changes);
        } else if (way === "own") await step.run(`step ${n}`, () => Number(insert.run(n).changes));
        else await step.run(`step ${n}`, () => 1);
      }
    },
  });
  const engine = createEngine({ store, jobs: { job }, dataSources, worker: { concurrency } });
  const completed = new Counter();
  engine.on("run:complete", () => completed.add());
  await engine.start();
  return {
    work: async () => {
      const goal = completed.count + runs;
      if (concurrency === 1) { for (let n = 0; n < runs; n++) await engine.jobs.job.triggerAndWait({ n }); }
      else await engine.jobs.job.batchTrigger(Array.from({ length: runs }, (_, n) => ({ input: { n } })));
      await completed.reached(goal);
    },
    end: async () => {
      await engine.stop();
      own.close();
      await store.close();
    },
  };
}

/** Adds a row and a run so many times in each turn, `atOnce` side by side. No worker executes them. */
async function triggers(way: Way, path: string, atOnce: number, rounds: number): Promise<Slice> {
  const { store, own, app } = await open(way, path);
  const insert = own.prepare(INSERT);
  const job = defineJob({ name: way, input: benchInput, run() {} });
  const engine = createEngine({ store, jobs: { job }, dataSources: { app } });
  const add = async (n: number) => {
    if (way === "own") insert.run(n);
    if (way === "plain" || way === "own") return void await engine.jobs.job.trigger({ n });
    await engine.transaction(app, (tx) => {
      tx.run(INSERT, n);
      tx.trigger(job, { n });
    });
  };
  await engine.migrate();
  return {
    work: async () => {
      for (let round = 0; round < rounds; round++) await Promise.all(Array.from({ length: atOnce }, (_, n) => add(n)));
    },
    end: async () => {
      own.close();
      await store.close();
    },
  };
}
