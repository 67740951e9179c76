import { createEngine, defineJob, type Engine, type Retention, SqliteStore } from "@holdfast/jobs";
import { copyFile } from "node:fs/promises";
import { setImmediate } from "node:timers";
import { Counter } from "../counter.ts";
import { benchInput } from "../engines/holdfast.ts";
import { type Gaps, longestGap } from "../longest_gap.ts";
import { pause } from "../pause.ts";
import { RawDatabase } from "../raw_database.ts";
import { rawDrain } from "../raw_drain.ts";
import type { Setting } from "../setting.ts";
import { stock, STOCK_JOB, stockRaw } from "../stock.ts";
import { TimedDriver } from "../timed_driver.ts";
import type { Trial, Workload } from "../workload.ts";

const STEPS = 5;
const CONCURRENCY = 100;
const LISTS = 10;
const PURGED_TOGETHER = 50;

/** For how long our work holds the event loop, so that nothing else in the process can happen. */
export const blocking: Workload = {
  name: "blocking",
  title: "The longest time the event loop is held",
  about:
    "A timer every millisecond tells. `own` leaves out the time in COMMIT, when SQLite writes to the disk and waits " +
    "for it, and the time in which other processes had the processor. Raw does the same work, and lets the timer run after each transaction or list.",
  trials: [
    blockingTrial("2,000 runs of 5 steps at concurrency 100", drainOurs, drainRaw),
    blockingTrial("1,000 deadlines at once", deadlines, null),
    blockingTrial("10,000 runs are purged", purgeOurs, purgeRaw),
    blockingTrial("lists of 1,000 runs, of 1,000,000", listOurs, listRaw),
  ],
};

type Work = (setting: Setting) => Promise<Gaps>;

function blockingTrial(name: string, ours: Work, raw: Work | null): Trial {
  const measure = (work: Work) => async (setting: Setting) => {
    const { longestMs, longestOwnMs } = await work(setting);
    return [longestMs, longestOwnMs];
  };
  return {
    name,
    figures: [{ name: "", unit: "ms", goals: [] }, { name: "own", unit: "ms", goals: [{ below: 20 }] }],
    rounds: 3,
    contenders: { ...(raw === null ? {} : { raw: measure(raw) }), holdfast: measure(ours) },
  };
}

const steps = defineJob({
  name: "steps",
  input: benchInput,
  async run(step) {
    for (let n = 0; n < STEPS; n++) await step.run(`step ${n}`, () => n);
  },
});
const sleeper = defineJob({
  name: "sleeper",
  input: benchInput,
  run: (step, { n }) => step.sleepUntil("nap", new Date(n)),
});
const stocked = defineJob({ name: STOCK_JOB, input: benchInput, run: () => {} });
const jobs = { steps, sleeper, stocked };

/** What is measured of an engine. */
interface Watched {
  engine: Engine<typeof jobs>;
  /** Resolves when so many runs have completed. */
  completed(count: number): Promise<void>;
  /** Resolves when so many runs were deleted. */
  deleted(count: number): Promise<void>;
  /** How long commits have taken. */
  diskMs(): number;
}

async function withEngine(
  path: string,
  work: (watched: Watched) => Promise<Gaps>,
  retention: Retention = {},
): Promise<Gaps> {
  using driver = new TimedDriver(path);
  await using store = await SqliteStore.from(driver);
  await using engine = createEngine({ store, jobs, worker: { concurrency: CONCURRENCY }, retention });
  const completed = new Counter();
  const deleted = new Counter();
  engine.on("run:complete", () => completed.add());
  engine.on("run:delete", () => deleted.add());
  await engine.migrate();
  return await work({
    engine,
    completed: (count) => completed.reached(count),
    deleted: (count) => deleted.reached(count),
    diskMs: () => driver.commitMs,
  });
}

function drainOurs({ folder, size }: Setting): Promise<Gaps> {
  const count = size(2_000, 100);
  return withEngine(`${folder}/jobs.db`, async ({ engine, completed, diskMs }) => {
    await engine.jobs.steps.batchTrigger(Array.from({ length: count }, (_, n) => ({ input: { n } })));
    return await longestGap(diskMs, async () => {
      await engine.start();
      await completed(count);
    });
  });
}

async function drainRaw({ folder, size }: Setting): Promise<Gaps> {
  using raw = new RawDatabase(`${folder}/raw.db`);
  raw.transaction(() => {
    for (let n = 0; n < size(2_000, 100); n++) raw.insertRun("steps", JSON.stringify({ n }));
  });
  const options = { job: "steps", steps: STEPS, concurrency: CONCURRENCY, between: letTimersRun };
  return await longestGap(() => raw.commitMs, () => rawDrain(raw, options));
}

function deadlines({ folder, size }: Setting): Promise<Gaps> {
  const count = size(1_000, 50);
  return withEngine(`${folder}/jobs.db`, async ({ engine, completed, diskMs }) => {
    await engine.start();
    const due = Date.now() + size(3_000, 300);
    await engine.jobs.sleeper.batchTrigger(Array.from({ length: count }, () => ({ input: { n: due } })));
    await pause(due - Date.now() - 10);
    return await longestGap(diskMs, () => completed(count));
  });
}

async function purgeOurs(setting: Setting): Promise<Gaps> {
  const count = setting.size(10_000, 200);
  const path = `${setting.folder}/jobs.db`;
  await copyFile(await stock(setting, "finished", count), path);
  return await withEngine(path, ({ engine, deleted, diskMs }) =>
    longestGap(diskMs, async () => {
      await engine.start();
      await deleted(count);
    }), { completed: 1 });
}

async function purgeRaw(setting: Setting): Promise<Gaps> {
  const path = `${setting.folder}/raw.db`;
  await copyFile(stockRaw(setting, setting.size(10_000, 200)), path);
  using raw = new RawDatabase(path);
  const purge = raw.connection.prepare(
    `DELETE FROM runs WHERE seq IN (SELECT seq FROM runs WHERE status = 'completed' ORDER BY seq LIMIT ?) RETURNING seq`,
  );
  const forget = raw.connection.prepare("DELETE FROM labels WHERE run_seq = ?");
  return await longestGap(() => raw.commitMs, async () => {
    let purged = 0;
    do {
      purged = raw.transaction(() => {
        const rows = purge.all(PURGED_TOGETHER);
        for (const { seq } of rows) forget.run(seq!);
        return rows.length;
      });
      await letTimersRun();
    } while (purged > 0);
  });
}

async function listOurs(setting: Setting): Promise<Gaps> {
  const path = await stock(setting, "finished", setting.size(1_000_000, 2_000));
  return await withEngine(path, ({ engine, diskMs }) =>
    longestGap(diskMs, async () => {
      for (let n = 0; n < LISTS; n++) {
        await engine.getRuns({ limit: 1_000 });
        await letTimersRun();
      }
    }));
}

async function listRaw(setting: Setting): Promise<Gaps> {
  using raw = new RawDatabase(stockRaw(setting, setting.size(1_000_000, 2_000)));
  const query = raw.connection.prepare("SELECT * FROM runs ORDER BY seq DESC LIMIT 1000");
  return await longestGap(() => raw.commitMs, async () => {
    for (let n = 0; n < LISTS; n++) {
      query.all().map(({ input, ...row }) => ({ ...row, input: JSON.parse(input as string) }));
      await letTimersRun();
    }
  });
}

/** The timer and whatever else waits for its turn. */
async function letTimersRun(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
}
