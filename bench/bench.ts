// deno task bench [workload ...] [--peers] [--rounds N] [--json FILE] [--svg FILE] [--quick]
//
// Measures ours beside raw SQLite (and, with --peers, beside other engines) and says which goals are reached. The
// names are those of the files in bench/workloads/; without one everything is measured.

import { parseArgs } from "node:util";
import { loadOther } from "./load_other.ts";
import { describeMachine } from "./machine.ts";
import { measure, type Result } from "./measure.ts";
import { Progress } from "./progress.ts";
import { describeGoal, table } from "./table.ts";
import { workloads } from "./workloads.ts";

/** The module `bench/picture.ts`. */
interface Drawing {
  /** Draws the results. */
  picture(...parameters: [typeof wanted, typeof results, typeof machine]): string;
}

const { values: options, positionals: names } = parseArgs({
  args: Deno.args,
  allowPositionals: true,
  options: {
    peers: { type: "boolean", default: false },
    quick: { type: "boolean", default: false },
    rounds: { type: "string" },
    json: { type: "string" },
    svg: { type: "string" },
  },
});
const unknown = names.filter((name) => !workloads.some((workload) => workload.name === name));
if (unknown.length > 0) {
  console.error(
    `There is no workload ${unknown.join(", ")}; there are ${workloads.map(({ name }) => name).join(", ")}`,
  );
  Deno.exit(2);
}
const rounds = options.rounds === undefined ? null : Number(options.rounds);
if (rounds !== null && !(Number.isInteger(rounds) && rounds > 0)) {
  console.error(`--rounds has to be a number from 1, not ${options.rounds}`);
  Deno.exit(2);
}

const wanted = workloads.filter(({ name }) => names.length === 0 || names.includes(name));
const startedAt = new Date();
const progress = new Progress();
const shared = await Deno.makeTempDir({ prefix: "holdfast_bench_" });
const machine = describeMachine(shared);
const results: Result[] = [];
const failures: string[] = [];
if (options.quick) console.log("Tried in small, only to see whether everything works: the numbers mean nothing.\n");
try {
  for (const workload of wanted) {
    try {
      results.push(...await measure(workload, { ...options, rounds, shared, progress }));
      // Each is told at once: a run that is cut off has told what it measured.
      progress.end();
      console.log(`${table([workload], results)}\n`);
      await writeReport();
    } catch (error) {
      // What the others tell is not lost.
      failures.push(`${workload.name} could not be measured: ${error instanceof Error ? error.stack : error}`);
    }
  }
} finally {
  progress.end();
  await Deno.remove(shared, { recursive: true });
}

console.log(
  `Each number is the median of its rounds (and the range); a ratio is the median of the rounds' ratios, 1 is as fast. ` +
    `${machine.cores} cores, load ${
      machine.load.toFixed(1)
    } at the beginning, Deno ${machine.deno}, SQLite ${machine.sqlite}, ${secondsSince(startedAt)} s`,
);
for (const { workload, trial, figure, missed } of results) {
  const what = [workload, trial, figure.name].filter((name) => name !== "").join(", ");
  for (const { goal, factor } of missed) {
    console.log(`Missed: ${what} (${describeGoal(goal)}): would have to be ${factor.toFixed(2)} times better`);
  }
}
if (options.svg !== undefined) {
  const { picture } = await loadOther<Drawing>("picture.ts");
  await Deno.writeTextFile(options.svg, picture(wanted, results, machine));
}
for (const failure of failures) console.error(failure);
if (failures.length > 0) Deno.exit(1);

/** Writes what was measured so far to the file of `--json`. */
async function writeReport(): Promise<void> {
  if (options.json === undefined) return;
  const report = { startedAt: startedAt.toISOString(), seconds: secondsSince(startedAt), machine, results };
  await Deno.writeTextFile(options.json, JSON.stringify(report, null, 2) + "\n");
}

function secondsSince(start: Date): number {
  return Math.round((Date.now() - start.getTime()) / 1_000);
}
