import { createEngine, type DataSource, defineJob, SqliteStore, type SqliteTransaction } from "@holdfast/jobs";
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
  title: "Steps that write a row of yours",
  about: "Runs of 5 steps, each of which writes a row, one way after the other in turn. `plain`: no row; `joined`: " +
    "`step.transaction()`, row and record in one commit; `own commit`: the row by another connection, then the record, " +
    "which is not exactly once. Medians of the ratios of 9 rounds.",
  trials: [
    {
      name: "100 runs at once",
      figures: [
        { name: "joined, of plain", unit: "of the first", goals: [{ above: 0.75 }] },
        { name: "joined, of an own commit", unit: "of the first", goals: [{ above: 3 }] },
      ],
      rounds: 1,
      contenders: { holdfast: (setting) => compare(setting, CONCURRENCY, setting.size(100, 10)) },
    },
    {
      name: "one run at a time",
      figures: [
        { name: "joined, of plain", unit: "of the first", goals: [{ above: 0.85 }] },
        { name: "joined, of an own commit", unit: "of the first", goals: [{ above: 1 }] },
      ],
      rounds: 1,
      contenders: { holdfast: (setting) => compare(setting, 1, setting.size(30, 2)) },
    },
  ],
};

async function compare({ folder, size }: Setting, concurrency: number, runs: number): Promise<number[]> {
  const ways = ["plain", "joined", "own"] as const;
  const slices = await Promise.all(ways.map((way) => aSlice(way, `${folder}/${way}.db`, concurrency, runs)));
  const [plain, joined, own] = await takeTurns(slices, size(ROUNDS, 2));
  return [ratioOf(plain!, joined!, "time").median, ratioOf(own!, joined!, "time").median];
}

/** Executes so many runs in each turn, whose steps write a row in one of the ways. */
async function aSlice(
  way: "plain" | "joined" | "own",
  path: string,
  concurrency: number,
  runs: number,
): Promise<Slice> {
  const store = await SqliteStore.open(path);
  const app: DataSource<SqliteTransaction> = store.dataSource();
  const own = new DatabaseSync(path);
  own.exec("PRAGMA busy_timeout = 10000; PRAGMA synchronous = FULL; CREATE TABLE user_rows (n INTEGER)");
  const insert = own.prepare(INSERT);
  const job = defineJob({
    name: way,
    input: benchInput,
    async run(step) {
      for (let n = 0; n < STEPS; n++) {
        if (way === "joined") await step.transaction(`step ${n}`, app, (tx) => tx.run(INSERT, n).changes);
        else if (way === "own") await step.run(`step ${n}`, () => Number(insert.run(n).changes));
        else await step.run(`step ${n}`, () => 1);
      }
    },
  });
  const engine = createEngine({ store, jobs: { job }, dataSources: { app }, worker: { concurrency } });
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
