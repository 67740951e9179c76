import { createEngine, defineJob, SqliteStore } from "@holdfast/jobs";
import type { SQLInputValue } from "node:sqlite";
import type { BenchFilter } from "../engine.ts";
import { benchInput } from "../engines/holdfast.ts";
import { openPeer } from "../peers.ts";
import { RawDatabase } from "../raw_database.ts";
import { percentile } from "../statistics.ts";
import { stock, STOCK_JOB, stockRaw } from "../stock.ts";
import { stockPeer } from "../stock_peer.ts";
import type { Figure, Goal, Measure, Trial, Workload } from "../workload.ts";

const FEW = 2_000;
const CALLS = 15;

/** A list, and what raw SQLite asks for it. */
interface List {
  name: string;
  filter: BenchFilter;
  goals: readonly Goal[];
  raw: { rows: string; total: string; parameters: readonly SQLInputValue[] };
}

const BOUND: readonly Goal[] = [{ below: 5 }, { atLeast: 0.9, of: "empty" }];
const BY_LABEL = {
  rows: "SELECT r.* FROM labels l JOIN runs r ON r.seq = l.run_seq WHERE l.key = ? AND l.value = ? " +
    "ORDER BY l.run_seq DESC LIMIT 50",
  total: "SELECT count(*) FROM labels WHERE key = ? AND value = ?",
};

const LISTS: readonly List[] = [
  {
    name: "the newest",
    filter: {},
    goals: BOUND,
    raw: { rows: "SELECT * FROM runs ORDER BY seq DESC LIMIT 50", total: "SELECT sum(n) FROM counts", parameters: [] },
  },
  {
    name: "by job",
    filter: { jobName: STOCK_JOB },
    goals: BOUND,
    raw: {
      rows: "SELECT * FROM runs WHERE job = ? ORDER BY seq DESC LIMIT 50",
      total: "SELECT sum(n) FROM counts WHERE job = ?",
      parameters: [STOCK_JOB],
    },
  },
  {
    name: "by status",
    filter: { status: "completed" },
    goals: BOUND,
    raw: {
      rows: "SELECT * FROM runs WHERE status = ? ORDER BY seq DESC LIMIT 50",
      total: "SELECT sum(n) FROM counts WHERE status = ?",
      parameters: ["completed"],
    },
  },
  {
    name: "by a label that 50 have",
    filter: { labels: { batch: "b7" } },
    goals: BOUND,
    raw: { ...BY_LABEL, parameters: ["batch", "b7"] },
  },
  {
    // Its total may take longer: the goal is about totals by nothing, job or status.
    name: "by a label that every tenth has",
    filter: { labels: { tenant: "t7" } },
    goals: [],
    raw: { ...BY_LABEL, parameters: ["tenant", "t7"] },
  },
];

/** How long a list of runs takes, with its `total`, whatever else is in the database. */
export const lists: Workload = {
  name: "lists",
  title: "Listing 50 runs with their total",
  about:
    "The newest of 100,000 and of 1,000,000 finished runs, compared with 2,000 (`empty`); each run has two labels. " +
    "Medians of 15 calls. Raw reads 50 rows through an index, parses their inputs, and reads the total from a table of " +
    "counts that it has to keep, or counts along the index of the labels. The peers tell no total.",
  trials: [listTrial(100_000), listTrial(1_000_000)],
};

function listTrial(count: number): Trial {
  return {
    name: `${count.toLocaleString("en")} runs`,
    figures: LISTS.map(({ name, goals }): Figure => ({ name, unit: "ms", goals })),
    rounds: 3,
    peerRounds: 1,
    contenders: {
      raw: raw(count),
      empty: ours(FEW),
      holdfast: ours(count),
      ...(count === 100_000 ? { durably: peer("durably"), openworkflow: peer("openworkflow") } : {}),
    },
  };
}

function ours(runs: number): Measure {
  return async (setting) => {
    const count = setting.size(runs, 1_000);
    await using store = await SqliteStore.open(await stock(setting, "finished", count));
    const stocked = defineJob({ name: STOCK_JOB, input: benchInput, run: () => {} });
    await using engine = createEngine({ store, jobs: { stocked } });
    const answers: number[] = [];
    for (const { filter } of LISTS) {
      const times: number[] = [];
      for (let call = 0; call < setting.size(CALLS, 1); call++) {
        const startedAt = performance.now();
        const { runs } = await engine.getRuns({ ...filter, limit: 50 });
        times.push(performance.now() - startedAt);
        if (runs.length < 49) throw new Error(`There were ${runs.length} runs in the list`);
      }
      answers.push(percentile(times, 0.5));
    }
    return answers;
  };
}

function peer(name: "durably" | "openworkflow"): Measure {
  return async (setting) => {
    const path = await stockPeer(name, setting, setting.size(100_000, 1_000));
    await using engine = await openPeer(name)({ path, jobs: { [STOCK_JOB]: () => {} } });
    const answers: (number | null)[] = [];
    for (const { filter } of LISTS) {
      const times: number[] = [];
      for (let call = 0; call < setting.size(CALLS, 1); call++) {
        const startedAt = performance.now();
        const length = await engine.list!(filter);
        if (length === undefined) break;
        times.push(performance.now() - startedAt);
        if (length < 49) throw new Error(`There were ${length} runs in the list of ${name}`);
      }
      answers.push(times.length === 0 ? null : percentile(times, 0.5));
    }
    return answers;
  };
}

function raw(runs: number): Measure {
  return (setting) => {
    using raw = new RawDatabase(stockRaw(setting, setting.size(runs, 1_000)));
    return Promise.resolve(LISTS.map((list) => {
      const query = raw.connection.prepare(list.raw.rows);
      const total = raw.connection.prepare(list.raw.total);
      const times: number[] = [];
      for (let call = 0; call < setting.size(CALLS, 1); call++) {
        const startedAt = performance.now();
        query.all(...list.raw.parameters).map(({ input, ...row }) => ({ ...row, input: JSON.parse(input as string) }));
        total.get(...list.raw.parameters);
        times.push(performance.now() - startedAt);
      }
      return percentile(times, 0.5);
    }));
  };
}
