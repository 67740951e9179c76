import process from "node:process";
import { createEngine, createHandler, defineJob, type Engine, type RunEvent, SqliteStore } from "@holdfast/jobs";
import { z } from "zod";
import { benchInput } from "../engines/holdfast.ts";
import { longestGap } from "../longest_gap.ts";
import { pause } from "../pause.ts";
import type { Setting } from "../setting.ts";
import { percentile } from "../statistics.ts";
import type { Figure, Trial, Workload } from "../workload.ts";

const STEPS = 5_000;
const SLOW_STEPS = 400;
const SLOW_STEP_MS = 10;
const RUNS = 100;
const CANCELLED = 40;

/** What it costs to watch what another process executes, and how soon it is known here. */
export const watch: Workload = {
  name: "watch",
  title: "Watching what another process executes",
  about:
    "One event stream over HTTP of a run that another process executes. How long the event loop is held is measured " +
    "apart, by a timer that itself takes processor time; other processes of the machine hold it, too. Latencies: from " +
    "when something was said, or committed, until a reader of engine.subscribe() has the event; ms are whole ones.",
  trials: [
    watchTrial("a run of 5,000 steps at full speed", STEPS, 0),
    watchTrial("a run of a step every 10 ms", SLOW_STEPS, SLOW_STEP_MS),
    {
      name: "known in another process",
      figures: [
        ...["step:start", "run:progress", "log:write", "step:complete"].flatMap((type) => latency(type, 250)),
        ...latency("run:complete", 60),
        ...latency("a cancel", 250),
      ],
      rounds: 2,
      contenders: { holdfast: async (setting) => [...await measureLatency(setting), ...await measureCancel(setting)] },
    },
  ],
};

function watchTrial(name: string, steps: number, stepMs: number): Trial {
  return {
    name,
    figures: [
      { name: "watching takes", unit: "% of a core", goals: [{ below: 3 }] },
      { name: "an event takes", unit: "µs", goals: [] },
      { name: "held", unit: "ms", goals: [{ below: 20 }] },
    ],
    rounds: 3,
    contenders: {
      holdfast: async (setting) => {
        const count = setting.size(steps, 50);
        const { cpuMs, ms, events } = await watchOne(`${setting.folder}/cpu.db`, count, stepMs, (work) => work());
        let held = 0;
        await watchOne(`${setting.folder}/held.db`, count, stepMs, async (work) => {
          held = (await longestGap(() => 0, work)).longestMs;
        });
        return [100 * cpuMs / ms, 1_000 * cpuMs / events, held];
      },
    },
  };
}

function latency(what: string, goal: number): Figure[] {
  return [
    { name: `${what}, p50`, unit: "ms", goals: [] },
    { name: `${what}, p99`, unit: "ms", goals: [{ below: goal }] },
  ];
}

const noInput = z.object({});
const steps = defineJob({
  name: "steps",
  input: benchInput,
  async run(step, { n }) {
    for (let k = 0; k < n; k++) await step.run(`step ${k}`, () => pauseMs > 0 ? pause(pauseMs) : null);
  },
});
const talks = defineJob({
  name: "talks",
  input: noInput,
  run: (step) =>
    step.run("talk", async () => {
      await pause(100 + Math.random() * 50);
      step.progress(1, 2);
      await pause(100 + Math.random() * 50);
      step.log.info("Half of it is done");
      await pause(100 + Math.random() * 50);
    }),
});
const hangs = defineJob({
  name: "hangs",
  input: noInput,
  run: (step) =>
    step.run("hang", ({ abortSignal }) =>
      new Promise((resolve) => {
        abortSignal.onabort = () => {
          console.log(Date.now());
          resolve(null);
        };
      })),
});
const jobs = { steps, talks, hangs };
// How long a step takes in the other process.
let pauseMs = 0;

/** Executes jobs in another process until it is ended. */
function execute(path: string, stepMs: number): Deno.ChildProcess {
  return new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", import.meta.url, path, String(stepMs)],
    stdout: "piped",
  }).spawn();
}

/** Ends the other process and answers the lines that it has written. */
async function endOther(other: Deno.ChildProcess): Promise<string[]> {
  other.kill("SIGTERM");
  const { stdout } = await other.output();
  return new TextDecoder().decode(stdout).split("\n").filter((line) => line !== "");
}

async function withEngine<T>(path: string, work: (engine: Engine<typeof jobs>) => Promise<T>): Promise<T> {
  await using store = await SqliteStore.open(path);
  await using engine = createEngine({ store, jobs });
  await engine.migrate();
  return await work(engine);
}

/** Watches a run from its first event to its last, and answers what that took. */
function watchOne(path: string, count: number, stepMs: number, around: (work: () => Promise<void>) => Promise<void>) {
  return withEngine(path, async (engine) => {
    const handler = createHandler(engine);
    const { id } = await engine.jobs.steps.trigger({ n: count });
    const response = await handler.fetch(
      new Request(`http://localhost/subscribe?runId=${id}`, { headers: { accept: "text/event-stream" } }),
    );
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    const other = execute(path, stepMs);
    let text = (await reader.read()).value!; // of a run that waits for a worker there is nothing to show
    const startedAt = performance.now();
    const before = process.cpuUsage();
    await around(async () => {
      for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read()) text += chunk.value;
    });
    const { user, system } = process.cpuUsage(before);
    const ms = performance.now() - startedAt;
    await endOther(other);
    const events = text.split("\ndata: ").length;
    const completed = text.split('"type":"step:complete"').length - 1;
    if (completed < count - 1) throw new Error(`Only ${completed} of ${count} steps were shown`);
    return { cpuMs: (user + system) / 1_000, ms, events };
  });
}

function measureLatency({ folder, size }: Setting): Promise<number[]> {
  const types = ["step:start", "run:progress", "log:write", "step:complete", "run:complete"] as const;
  const latencies = new Map<RunEvent["type"], number[]>(types.map((type) => [type, []]));
  return withEngine(`${folder}/latency.db`, async (engine) => {
    const inputs = Array.from({ length: size(RUNS, 3) }, () => ({ input: {} }));
    const watched = (await engine.jobs.talks.batchTrigger(inputs)).map(async ({ id }) => {
      for await (const event of engine.subscribe(id)) {
        latencies.get(event.type)?.push(Date.now() - Date.parse(event.timestamp));
      }
    });
    const other = execute(`${folder}/latency.db`, 0);
    await Promise.all(watched);
    await endOther(other);
    return types.flatMap((type) => percentiles(latencies.get(type)!));
  });
}

function measureCancel({ folder, size }: Setting): Promise<number[]> {
  return withEngine(`${folder}/cancel.db`, async (engine) => {
    const other = execute(`${folder}/cancel.db`, 0);
    const cancelledAt: number[] = [];
    for (let n = 0; n < size(CANCELLED, 3); n++) {
      const { id } = await engine.jobs.hangs.trigger({});
      for await (const event of engine.subscribe(id)) {
        if (event.type !== "step:start") continue;
        await pause(Math.random() * 50);
        cancelledAt.push(Date.now());
        await engine.cancel(id);
      }
    }
    await pause(500);
    const noticedAt = (await endOther(other)).map(Number);
    return percentiles(noticedAt.map((at, n) => at - cancelledAt[n]!));
  });
}

function percentiles(times: readonly number[]): number[] {
  return [percentile(times, 0.5), percentile(times, 0.99)];
}

/** What the other process does. */
async function act([path, stepMs]: readonly string[]): Promise<void> {
  pauseMs = Number(stepMs);
  await using store = await SqliteStore.open(path!);
  await using engine = createEngine({ store, jobs, worker: { concurrency: 10 } });
  await engine.start();
  await new Promise<void>((resolve) => void process.on("SIGTERM", () => resolve()));
}

if (import.meta.main) {
  await act(Deno.args);
  Deno.exit();
}
