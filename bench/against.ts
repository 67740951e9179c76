// deno task bench:against PATH [part of a name ...] [--times N] [--threshold SPEED]
//
// Compares this checkout with another one, its base: both do the same in one process, in small slices in turn, each on a
// file of its own with `synchronous=FULL`. A copy of the base takes part as the control: what differs there is noise.
// Ends with status 1 if a goal is missed by more than randomness and the control explain. `--threshold 0.9` is then the
// goal of each: nine tenths of the speed of the base.

import { parseArgs } from "node:util";
import { cp } from "node:fs/promises";
import { resolve } from "node:path";
import process from "node:process";
import { pathToFileURL } from "node:url";
import type { SqliteStore } from "@holdfast/jobs";
import { type Holdfast, type Slice, type Sliced, sliced } from "./slices.ts";
import { percentile } from "./statistics.ts";
import { judge, type Speed, type Verdict } from "./verdict.ts";

const NOTES: Record<Verdict, string> = { reached: "", perhaps: "  missed, perhaps", missed: "  missed" };

const { values: options, positionals: [basePath, ...names] } = parseArgs({
  allowPositionals: true,
  options: { times: { type: "string", default: "1" }, threshold: { type: "string" } },
});
if (basePath === undefined) {
  console.error("Usage: deno task bench:against PATH [part of a name ...] [--times N] [--threshold SPEED]");
  Deno.exit(2);
}
const threshold = options.threshold === undefined ? null : Number(options.threshold);
if (threshold !== null && !(threshold > 0 && threshold <= 1)) {
  console.error(`The threshold is a part of the speed of the base, such as 0.9, not "${options.threshold}"`);
  Deno.exit(2);
}

/** What a slice has cost, in milliseconds. */
interface Cost {
  time: number;
  /** Of the processor. */
  work: number;
}

interface Contender {
  store: SqliteStore;
  slice: Slice;
  costs: Cost[];
}

const folder = await Deno.makeTempDir({ prefix: "holdfast_bench_" });
let isMissed = false;
try {
  await cp(`${basePath}/mod.ts`, `${folder}/copy/mod.ts`);
  await cp(`${basePath}/src`, `${folder}/copy/src`, { recursive: true });
  const [base, copy, ours] = await Promise.all([basePath, `${folder}/copy`, `${import.meta.dirname}/..`].map(load));
  console.log(`${"speed, the base is 1".padEnd(36)}  this checkout          control                goal  work`);
  for (const one of sliced.filter(({ name }) => names.length === 0 || names.some((part) => name.includes(part)))) {
    const [ofBase, ofCopy, ofOurs] = await measure(one, [base!, copy!, ours!]);
    const speed = ratio(ofBase!, ofOurs!, "time");
    const control = ratio(ofBase!, ofCopy!, "time");
    const goal = threshold ?? one.goal;
    const verdict = judge(speed, control, goal);
    isMissed ||= verdict === "missed";
    const work = 1 / ratio(ofBase!, ofOurs!, "work").median;
    console.log(
      `${one.name.padEnd(36)}  ${text(speed)}    ${text(control)}    ${goal}  ${work.toFixed(2)}${NOTES[verdict]}`,
    );
  }
} finally {
  await Deno.remove(folder, { recursive: true });
}
Deno.exit(isMissed ? 1 : 0);

function load(path: string): Promise<Holdfast> {
  return import(pathToFileURL(resolve(path, "mod.ts")).href);
}

/** Lets each do a slice in turn, who was first last, and answers what each slice has cost. */
async function measure({ name, slices, prepare }: Sliced, all: readonly Holdfast[]): Promise<Cost[][]> {
  const contenders: Contender[] = [];
  for (const holdfast of all) {
    const store = await holdfast.SqliteStore.open(`${folder}/${name} ${contenders.length}.db`);
    await store.migrate();
    contenders.push({ store, slice: await prepare(holdfast, store), costs: [] });
  }
  const rounds = Math.ceil(slices * Number(options.times));
  for (let round = -Math.ceil(rounds / 10); round < rounds; round++) {
    for (let turn = 0; turn < contenders.length; turn++) {
      const { slice, costs } = contenders[(round + rounds + turn) % contenders.length]!;
      await slice.before?.();
      (globalThis as { gc?: () => void }).gc?.();
      const cost = await costOf(slice.work);
      if (round >= 0) costs.push(cost); // the first ones are slower
    }
  }
  for (const { slice, store } of contenders) {
    await slice.end();
    await store.close();
  }
  return contenders.map(({ costs }) => costs);
}

async function costOf(work: () => Promise<unknown>): Promise<Cost> {
  const before = process.cpuUsage();
  const startedAt = performance.now();
  await work();
  const time = performance.now() - startedAt;
  const { user, system } = process.cpuUsage(before);
  return { time, work: (user + system) / 1_000 };
}

/** How much less the others cost: the median of the rounds' ratios, and between what it is with 95 % certainty. */
function ratio(base: readonly Cost[], others: readonly Cost[], kind: keyof Cost): Speed {
  const ratios = base.map((cost, round) => cost[kind] / others[round]![kind]);
  const spread = Math.min(0.5, 0.98 / Math.sqrt(ratios.length)); // of the order statistics around the median
  const [from, median, to] = [0.5 - spread, 0.5, 0.5 + spread].map((part) => percentile(ratios, part));
  return { from: from!, median: median!, to: to! };
}

function text({ from, median, to }: Speed): string {
  return `${median.toFixed(3)} (${from.toFixed(2)} to ${to.toFixed(2)})`;
}
