import process from "node:process";
import { createEngine, defineJob, SqliteStore } from "@holdfast/jobs";
import { z } from "zod";
import { Counter } from "../counter.ts";
import { benchInput } from "../engines/holdfast.ts";
import { pause } from "../pause.ts";
import { percentile } from "../statistics.ts";
import type { Setting } from "../setting.ts";
import { stock } from "../stock.ts";
import type { Workload } from "../workload.ts";

const RUNS = 60;
const IDLE_MS = 4_000;

/** How soon an idle engine notices what another process does to its file, and what its looking out costs. */
export const notice: Workload = {
  name: "notice",
  title: "Another process triggers or signals",
  about:
    "From before the call in the other process until the job goes on here; default settings, pauses of 20 to 70 ms " +
    "in between. There is nothing that raw SQLite would do.",
  trials: [
    {
      name: "a trigger is noticed",
      figures: [{ name: "p50", unit: "ms", goals: [{ below: 10 }] }, {
        name: "p99",
        unit: "ms",
        goals: [{ below: 15 }],
      }],
      rounds: 2,
      contenders: { holdfast: (setting) => measureNotice("trigger", setting) },
    },
    {
      name: "a signal is noticed",
      figures: [{ name: "p50", unit: "ms", goals: [{ below: 10 }] }, {
        name: "p99",
        unit: "ms",
        goals: [{ below: 15 }],
      }],
      rounds: 2,
      contenders: { holdfast: (setting) => measureNotice("signal", setting) },
    },
    {
      name: "an idle engine uses",
      figures: [{ name: "", unit: "% of a core", goals: [{ below: 1 }] }],
      rounds: 2,
      contenders: { holdfast: (setting) => measureIdle(`${setting.folder}/jobs.db`, setting) },
    },
    {
      name: "an idle engine with 100,000 waiting runs uses",
      figures: [{ name: "", unit: "% of a core", goals: [{ below: 1 }] }],
      rounds: 2,
      contenders: {
        holdfast: async (setting) =>
          measureIdle(await stock(setting, "waiting", setting.size(100_000, 1_000)), setting),
      },
    },
  ],
};

// What each process calls the same instant.
const now = () => performance.timeOrigin + performance.now();

const latencies: number[] = [];
let told = new Counter();
const note = (sentAt: number) => {
  latencies.push(now() - sentAt);
  told.add();
};
const triggered = defineJob({ name: "triggered", input: benchInput, run: (_step, { n }) => note(n) });
const signalled = defineJob({
  name: "signalled",
  input: benchInput,
  async run(step) {
    const answer = await step.wait("answer", {});
    if (answer.outcome === "signal") note(z.number().parse(answer.payload));
  },
});
const jobs = { triggered, signalled };

async function measureNotice(what: "trigger" | "signal", { folder, size }: Setting): Promise<number[]> {
  const count = size(RUNS, 3);
  const path = `${folder}/jobs.db`;
  latencies.length = 0;
  told = new Counter();
  await using store = await SqliteStore.open(path);
  await using engine = createEngine({ store, jobs });
  await engine.start();
  if (what === "signal") {
    await engine.jobs.signalled.batchTrigger(Array.from({ length: count }, (_, n) => ({ input: { n } })));
    while ((await engine.getRuns({ status: "waiting", limit: 0 })).total < count) await pause(10);
  }
  const other = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", import.meta.url, what, path, String(count)],
    stdout: "null",
  }).spawn();
  const { success } = await other.status;
  if (!success) throw new Error("The other process has failed");
  await told.reached(count);
  return [percentile(latencies, 0.5), percentile(latencies, 0.99)];
}

async function measureIdle(path: string, { size }: Setting): Promise<number[]> {
  await using store = await SqliteStore.open(path);
  await using engine = createEngine({ store, jobs });
  await engine.start();
  await pause(200);
  const before = process.cpuUsage();
  const startedAt = performance.now();
  await pause(size(IDLE_MS, 100));
  const { user, system } = process.cpuUsage(before);
  return [(user + system) / 10 / (performance.now() - startedAt)];
}

/** What the other process does. */
async function act([what, path, count]: readonly string[]): Promise<void> {
  await using store = await SqliteStore.open(path!);
  await using engine = createEngine({ store, jobs });
  const waiting = what === "trigger" ? [] : (await engine.getRuns({ status: "waiting", limit: Number(count) })).runs;
  for (let n = 0; n < Number(count); n++) {
    await pause(20 + Math.random() * 50);
    if (what === "trigger") await engine.jobs.triggered.trigger({ n: now() });
    else {
      const [wait] = await engine.getWaits(waiting[n]!.id);
      await engine.signal(wait!.id, { signalId: "other", payload: now() });
    }
  }
}

if (import.meta.main) await act(Deno.args);
