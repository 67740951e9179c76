import {
  type BulkResult,
  createEngine,
  defineJob,
  type Engine,
  MemoryStore,
  SqliteStore,
  type Store,
} from "@holdfast/jobs";
import { benchInput } from "../engines/holdfast.ts";
import { longestGap } from "../longest_gap.ts";
import type { Setting } from "../setting.ts";
import { TimedDriver } from "../timed_driver.ts";
import type { Figure, Trial, Workload } from "../workload.ts";

const RUNS = 10_000;
const BATCH = 500;

/** For how long bulk operations hold the event loop. */
export const bulk: Workload = {
  name: "bulk",
  title: "The longest time bulk operations hold the event loop",
  about:
    "Operations on 10,000 runs, repeated with the `next` of each result until it is null. A timer every millisecond " +
    "tells, without the time in COMMIT and the time in which other processes had the processor. All runs are " +
    "cancelled, then retriggered from their failure, then deleted.",
  trials: [
    bulkTrial("SqliteStore, a file", async ({ folder }, work) => {
      using driver = new TimedDriver(`${folder}/jobs.db`);
      await using store = await SqliteStore.from(driver);
      return await work(store, () => driver.commitMs);
    }),
    bulkTrial("MemoryStore", (_setting, work) => work(new MemoryStore(), () => 0)),
  ],
};

type Work = (store: Store, diskMs: () => number) => Promise<number[]>;
type OpenStore = (setting: Setting, work: Work) => Promise<number[]>;

function bulkTrial(name: string, open: OpenStore): Trial {
  const figures = ["cancel", "retrigger", "delete"].flatMap((operation) => [
    aFigure(`${operation}, dry run`),
    aFigure(operation),
  ]);
  const measure = (setting: Setting) =>
    open(setting, (store, diskMs) => performAll(store, diskMs, setting.size(RUNS, 100)));
  return { name, figures, rounds: 3, contenders: { holdfast: measure } };
}

function aFigure(name: string): Figure {
  return { name, unit: "ms", goals: [{ below: 20 }] };
}

type Call = (cursor: string | undefined, dryRun: boolean) => Promise<BulkResult>;

async function performAll(store: Store, diskMs: () => number, count: number): Promise<number[]> {
  const engine = createEngine({ store, jobs: { stocked }, logger: null });
  await trigger(engine, count);
  const filter = { jobName: stocked.name, labels: { org: "acme" } };
  const ended = { ...filter, status: "cancelled" } as const;
  const calls: Call[] = [
    (cursor, dryRun) => engine.cancelRuns({ filter }, { cursor, dryRun }),
    (cursor, dryRun) => engine.retriggerRuns({ filter: ended }, { cursor, dryRun, from: "failure" }),
    (cursor, dryRun) => engine.deleteRuns({ filter: ended }, { cursor, dryRun }),
  ];
  const gaps: number[] = [];
  for (const call of calls) {
    for (const dryRun of [true, false]) {
      const { longestOwnMs } = await longestGap(diskMs, () => repeat(call, dryRun, count));
      gaps.push(longestOwnMs);
    }
  }
  return gaps;
}

async function trigger(engine: Engine<{ stocked: typeof stocked }>, count: number): Promise<void> {
  for (let done = 0; done < count; done += BATCH) {
    const items = Array.from({ length: Math.min(BATCH, count - done) }, (_, n) => ({
      input: { n },
      labels: { org: "acme" },
    }));
    await engine.jobs.stocked.batchTrigger(items);
  }
}

async function repeat(call: Call, dryRun: boolean, count: number): Promise<void> {
  let met = 0;
  let cursor: string | undefined;
  do {
    const { matched, next } = await call(cursor, dryRun);
    met += matched;
    cursor = next ?? undefined;
  } while (cursor !== undefined);
  if (met !== count) throw new Error(`${met} of ${count} runs were met`);
}

const stocked = defineJob({ name: "stocked", input: benchInput, run: () => {} });
