// deno task bench:pauses
//
// What pauses cost: memory and processor time while 10,000 runs wait, how long the event loop is held when 1,000 of
// them become due at once, and what a replay costs for each recorded step and wait.

import process from "node:process";
import { createEngine, defineJob, type Engine, SqliteStore, type Store } from "@holdfast/jobs";
import { z } from "zod";

const WAITING = 10_000;
const DUE_AT_ONCE = 1_000;
const IDLE_MS = 5_000;

const input = z.object({ until: z.number() });
const sleeper = defineJob({
  name: "sleeper",
  input,
  run: (step, { until }) => step.sleepUntil("nap", new Date(until)),
});
const long = defineJob({
  name: "long",
  input: z.object({ steps: z.number(), waits: z.number() }),
  async run(step, { steps, waits }) {
    for (let i = 0; i < steps; i++) await step.run("step", () => i);
    for (let i = 0; i < waits; i++) await step.prepareWait("wait");
    await step.wait("last");
  },
});

const folder = await Deno.makeTempDir();
try {
  await using store = await SqliteStore.open(`${folder}/jobs.db`);
  await using engine = createEngine({ store, jobs: { sleeper, long }, worker: { concurrency: 100 } });
  await engine.start();
  await measureWaiting(engine);
  await measureDueAtOnce(engine);
  for (const [steps, waits] of [[1_000, 100], [5_000, 500]] as const) await measureReplay(store, steps, waits);
} finally {
  await Deno.remove(folder, { recursive: true });
}

async function measureWaiting(engine: Engine): Promise<void> {
  const { idle: idleBefore } = await idle();
  const memoryBefore = usedMemory();
  const until = Date.now() + 3_600_000;
  await triggerAll(engine, WAITING, until);
  await untilWaiting(engine, WAITING);
  const { idle: idleAfter } = await idle();
  const megabytes = (usedMemory() - memoryBefore) / 2 ** 20;
  console.log(`${WAITING} runs asleep: ${megabytes.toFixed(1)} MB more on the heap`);
  console.log(`processor while idle: ${percent(idleBefore)} of a core before, ${percent(idleAfter)} with them`);
}

async function measureDueAtOnce(engine: Engine): Promise<void> {
  const until = Date.now() + 4_000;
  const runs = await triggerAll(engine, DUE_AT_ONCE, until);
  await untilWaiting(engine, WAITING + DUE_AT_ONCE);
  let longest = 0;
  let last = performance.now();
  const watch = setInterval(() => {
    longest = Math.max(longest, performance.now() - last);
    last = performance.now();
  }, 1);
  await Promise.all(runs.map(({ id }) => engine.waitForRun(id)));
  clearInterval(watch);
  console.log(`${DUE_AT_ONCE} due at once: the last has completed ${Date.now() - until} ms later`);
  console.log(`the event loop was held for ${longest.toFixed(1)} ms at the longest`);
}

/** Measures the second execution of a run: all that it did before is replayed. */
async function measureReplay(store: Store, steps: number, waits: number): Promise<void> {
  const calls: string[] = [];
  const counting = new Proxy(store, {
    get(target, name) {
      const member = target[name as keyof Store] as unknown;
      if (typeof member !== "function") return member;
      return (...parameters: unknown[]) => {
        calls.push(String(name));
        return member.apply(target, parameters);
      };
    },
  });
  await using engine = createEngine({ store: counting, jobs: { long } });
  const { id } = await engine.trigger(long, { steps, waits });
  await engine.runUntilIdle();
  const last = (await engine.getWaits(id)).at(-1)!;
  await engine.signal(last.id, { signalId: "go", payload: null });
  calls.length = 0;

  const startedAt = performance.now();
  await engine.runUntilIdle();

  const each = (performance.now() - startedAt) * 1_000 / (steps + waits);
  const others = calls.filter((name) => name !== "claim");
  console.log(
    `replay of ${steps} steps and ${waits} waits: ${each.toFixed(1)} us each; besides claims: ${others.join(", ")}`,
  );
}

async function triggerAll(engine: Engine, count: number, until: number): Promise<{ id: string }[]> {
  const runs: { id: string }[] = [];
  for (let done = 0; done < count; done += 500) {
    const batch = Array.from({ length: Math.min(500, count - done) }, () => engine.trigger(sleeper, { until }));
    runs.push(...await Promise.all(batch));
  }
  return runs;
}

async function untilWaiting(engine: Engine, count: number): Promise<void> {
  while ((await engine.getRuns({ status: "waiting", limit: 0 })).total < count) {
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Which part of a core an idle engine uses. */
async function idle(): Promise<{ idle: number }> {
  const before = process.cpuUsage();
  await new Promise((resolve) => setTimeout(resolve, IDLE_MS));
  const { user, system } = process.cpuUsage(before);
  return { idle: (user + system) / 1_000 / IDLE_MS };
}

function usedMemory(): number {
  // @ts-ignore: there with --v8-flags=--expose-gc
  globalThis.gc?.();
  return Deno.memoryUsage().heapUsed;
}

function percent(part: number): string {
  return `${(part * 100).toFixed(1)} %`;
}
