// deno task bench:against PATH [part of a name ...] [--times N] [--threshold SPEED]
//
// Compares this checkout with another one, its base: both do the same in one process, in small slices in turn, each on a
// file of its own with `synchronous=FULL`. A copy of the base takes part as the control: what differs there is noise.
// Ends with status 1 if a goal is missed by more than randomness and the control explain. `--threshold 0.9` is then the
// goal of each: nine tenths of the speed of the base.

import { parseArgs } from "node:util";
import { cp } from "node:fs/promises";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { type Holdfast, type Sliced, sliced } from "./slices.ts";
import { type Cost, type Ratio, ratioOf, takeTurns } from "./take_turns.ts";
import { judge, type Verdict } from "./verdict.ts";

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

const folder = await Deno.makeTempDir({ prefix: "holdfast_bench_" });
let isMissed = false;
try {
  await cp(`${basePath}/mod.ts`, `${folder}/copy/mod.ts`);
  await cp(`${basePath}/src`, `${folder}/copy/src`, { recursive: true });
  const [base, copy, ours] = await Promise.all([basePath, `${folder}/copy`, `${import.meta.dirname}/..`].map(load));
  console.log(`${"speed, the base is 1".padEnd(36)}  this checkout          control                goal  work`);
  for (const one of sliced.filter(({ name }) => names.length === 0 || names.some((part) => name.includes(part)))) {
    const [ofBase, ofCopy, ofOurs] = await measure(one, [base!, copy!, ours!]);
    const speed = ratioOf(ofBase!, ofOurs!, "time");
    const control = ratioOf(ofBase!, ofCopy!, "time");
    const goal = threshold ?? one.goal;
    const verdict = judge(speed, control, goal);
    isMissed ||= verdict === "missed";
    const work = 1 / ratioOf(ofBase!, ofOurs!, "work").median;
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

/** What each slice has cost each of them, on a file of its own. */
async function measure({ name, slices, prepare }: Sliced, all: readonly Holdfast[]): Promise<Cost[][]> {
  const stores = [];
  const prepared = [];
  for (const holdfast of all) {
    const store = await holdfast.SqliteStore.open(`${folder}/${name} ${stores.length}.db`);
    await store.migrate();
    stores.push(store);
    prepared.push(await prepare(holdfast, store));
  }
  const costs = await takeTurns(prepared, Math.ceil(slices * Number(options.times)));
  for (const store of stores) await store.close();
  return costs;
}

function text({ from, median, to }: Ratio): string {
  return `${median.toFixed(3)} (${from.toFixed(2)} to ${to.toFixed(2)})`;
}
