// deno task bench:profile [PATH] [--functions N]
//
// Where the time of a run of 5 steps goes, at concurrency 1, 10 and 100, and that of a replayed step. With a path, the
// same of another checkout first. Times, promises and allocations have rounds of their own, since counting one would
// falsify the others. Files have `synchronous=FULL`. `--functions 20` adds the functions with the most time of their own.

import type { HeapProfiler } from "node:inspector";
import { Session } from "node:inspector/promises";
import process from "node:process";
import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { pathToFileURL } from "node:url";
import v8 from "node:v8";
import { defineJob } from "@holdfast/jobs";
import { CountingDriver } from "./counting_driver.ts";
import { benchInput } from "./engines/holdfast.ts";
import type { Holdfast } from "./slices.ts";
import { aligned } from "./table.ts";

const STEPS = 5;
const REPLAYED_STEPS = 10_000;
const SAMPLE_EVERY_US = 200;
const SAMPLE_EVERY_BYTES = 16_384;

/** Work that is done in rounds. */
interface Work {
  /** What a round has several of, and how many. */
  unit: string;
  count: number;
  /** Comes before a round, and is not measured. */
  before: () => Promise<unknown>;
  round: () => Promise<unknown>;
  end: () => Promise<unknown>;
}

/** The costs of one unit; times in microseconds. */
interface Profile {
  unit: string;
  costs: { [name: string]: number };
  /** The functions, each with its part of the time, in descending order. */
  functions: [name: string, part: number][];
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { functions: { type: "string", default: "0" } },
});
const listed = Number(values.functions);
if (!Number.isInteger(listed) || listed < 0) {
  console.error("--functions must be a whole number");
  Deno.exit(2);
}
const folder = await Deno.makeTempDir({ prefix: "holdfast_profile_" });
try {
  for (const path of [...positionals, resolve(import.meta.dirname!, "..")]) {
    const holdfast: Holdfast = await import(pathToFileURL(resolve(path, "mod.ts")).href);
    const profiles = [];
    for (const concurrency of [1, 10, 100]) {
      profiles.push(await profile((driver) => drain(holdfast, driver, concurrency)));
    }
    profiles.push(await profile((driver) => replay(holdfast, driver)));
    print(path, profiles);
  }
} finally {
  await Deno.remove(folder, { recursive: true });
}

async function profile(prepare: (driver: CountingDriver) => Promise<Work>): Promise<Profile> {
  using driver = new CountingDriver(`${await Deno.makeTempDir({ dir: folder })}/jobs.db`);
  const work = await prepare(driver);
  const again = async <T>(measure: (round: Work["round"]) => Promise<T>): Promise<T> => {
    await work.before();
    return await measure(work.round);
  };
  for (let warmUp = 0; warmUp < 2; warmUp++) await again((round) => round());
  const times = await again((round) => timesOf(driver, round));
  const functions = await again(functionsOf);
  const promises = await again(promisesOf);
  const kilobytes = await again(bytesOf) / 1_024;
  await work.end();
  const collector = functions.find(([name]) => name === "(garbage collector)")?.[1] ?? 0;
  const total = { ...times, promises, "allocated, kB": kilobytes };
  const costs = Object.fromEntries(Object.entries(total).map(([name, cost]) => [name, cost / work.count]));
  return { unit: work.unit, costs: { ...costs, "garbage collector, % of the time": 100 * collector }, functions };
}

async function timesOf(driver: CountingDriver, round: Work["round"]): Promise<Profile["costs"]> {
  const [counted, used, startedAt] = [driver.read(), process.cpuUsage(), performance.now()];
  await round();
  const clock = (performance.now() - startedAt) * 1_000;
  const { user, system } = process.cpuUsage(used);
  const now = driver.read();
  return {
    "by the clock, µs": clock,
    "by the processor, µs": user + system,
    "statements, µs": now.statementsUs - counted.statementsUs,
    "commits, µs": now.commitsUs - counted.commitsUs,
    statements: now.statements - counted.statements,
    commits: now.commits - counted.commits,
  };
}

/** Which functions took which part of the time, the garbage collector included. */
async function functionsOf(round: Work["round"]): Promise<Profile["functions"]> {
  const session = new Session();
  session.connect();
  await session.post("Profiler.enable");
  await session.post("Profiler.setSamplingInterval", { interval: SAMPLE_EVERY_US });
  await session.post("Profiler.start");
  await round();
  const { profile: { nodes, samples = [], timeDeltas = [] } } = await session.post("Profiler.stop");
  session.disconnect();
  const names = new Map(nodes.map(({ id, callFrame: { functionName, url, lineNumber } }) => {
    const place = url === "" ? "" : ` ${url.split("/").at(-1)}:${lineNumber + 1}`;
    return [id, `${functionName || "(anonymous)"}${place}`];
  }));
  const times = new Map<string, number>();
  let total = 0;
  for (const [at, id] of samples.entries()) {
    const name = names.get(id)!; // each sample is of one of the nodes
    if (name.startsWith("post inspector")) continue; // the session itself
    total += timeDeltas[at]!; // as many as there are samples
    times.set(name, (times.get(name) ?? 0) + timeDeltas[at]!);
  }
  const parts = [...times].map(([name, time]): [string, number] => [name, time / total]);
  return parts.sort(([, one], [, other]) => other - one);
}

async function promisesOf(round: Work["round"]): Promise<number> {
  let count = 0;
  const stop = v8.promiseHooks.onInit(() => void count++);
  await round();
  stop();
  return count;
}

/** How many bytes of objects are allocated, also of those that are garbage at once. */
async function bytesOf(round: Work["round"]): Promise<number> {
  const session = new Session();
  session.connect();
  await session.post("HeapProfiler.startSampling", {
    samplingInterval: SAMPLE_EVERY_BYTES,
    includeObjectsCollectedByMajorGC: true,
    includeObjectsCollectedByMinorGC: true,
  });
  await round();
  const { profile } = await session.post("HeapProfiler.stopSampling");
  session.disconnect();
  return sizeOf(profile.head);
}

function sizeOf({ selfSize, children }: HeapProfiler.SamplingHeapProfileNode): number {
  return children.reduce((sum, child) => sum + sizeOf(child), selfSize);
}

/** Runs that were triggered before. */
async function drain(holdfast: Holdfast, driver: CountingDriver, concurrency: number): Promise<Work> {
  const steps = defineJob({
    name: "steps",
    input: benchInput,
    async run(step) {
      for (let n = 0; n < STEPS; n++) await step.run(`step ${n}`, () => n);
    },
  });
  const store = await holdfast.SqliteStore.from(driver);
  const engine = holdfast.createEngine({ store, jobs: { steps }, worker: { concurrency } });
  const count = concurrency === 1 ? 1_000 : 4_000;
  return {
    unit: `a run, concurrency ${concurrency}`,
    count,
    before: async () => {
      for (let n = 0; n < count; n += 100) {
        await engine.jobs.steps.batchTrigger(Array.from({ length: 100 }, () => ({ input: { n } })));
      }
    },
    round: () => engine.runUntilIdle(),
    end: async () => {
      await engine.stop();
      await store.close();
    },
  };
}

/** One run that replays all its steps each time that its wait gets a signal. */
async function replay(holdfast: Holdfast, driver: CountingDriver): Promise<Work> {
  const replayed = defineJob({
    name: "replayed",
    input: benchInput,
    async run(step) {
      for (let n = 0; n < REPLAYED_STEPS; n++) await step.run(`step ${n}`, () => ({ n }));
      while (true) await step.wait("next", {});
    },
  });
  const store = await holdfast.SqliteStore.from(driver);
  const engine = holdfast.createEngine({ store, jobs: { replayed } });
  const run = await engine.jobs.replayed.trigger({ n: 0 });
  await engine.runUntilIdle();
  return {
    unit: "a replayed step",
    count: REPLAYED_STEPS,
    before: async () => {
      const next = (await engine.getWaits(run.id)).find(({ status }) => status === "pending")!; // the run waits
      await engine.signal(next.id, { signalId: next.id, payload: null });
    },
    round: () => engine.runUntilIdle(),
    end: async () => {
      await engine.stop();
      await store.close();
    },
  };
}

function print(path: string, profiles: readonly Profile[]): void {
  const names = Object.keys(profiles[0]!.costs);
  const rows = names.map((name) => [name, ...profiles.map(({ costs }) => costs[name]!.toPrecision(3))]);
  console.log(`${path}\n\n${aligned([["", ...profiles.map(({ unit }) => unit)], ...rows])}\n`);
  if (listed === 0) return;
  for (const { unit, functions } of profiles) {
    const lines = functions.slice(0, listed).map(([name, part]) => `${(100 * part).toFixed(1).padStart(5)} %  ${name}`);
    console.log(`${unit}\n${lines.join("\n")}\n`);
  }
}
