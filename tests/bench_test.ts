import assert from "node:assert/strict";
import { measure, toResult } from "../bench/measure.ts";
import { percentile, speedRatio, summarize } from "../bench/statistics.ts";
import { benchInput } from "../bench/engines/holdfast.ts";
import { ratioOf, takeTurns } from "../bench/take_turns.ts";
import { loadUnobserved } from "../bench/unobserved.ts";
import { table } from "../bench/table.ts";
import type { Workload } from "../bench/workload.ts";
import { judge } from "../bench/verdict.ts";
import { workloads } from "../bench/workloads.ts";

Deno.test("summarize() and percentile() find the middle and the ends", () => {
  assert.deepEqual(summarize([3, 1, 10]), { median: 3, minimum: 1, maximum: 10 });
  assert.deepEqual(summarize([4, 1, 2, 10]).median, 3);
  assert.equal(percentile([0, 100], 0.99), 99);
});

Deno.test("speedRatio() compares round by round, and more is always better", () => {
  const disk = [1, 10, 1];

  assert.deepEqual(speedRatio(disk.map((speed) => 50 * speed), disk.map((speed) => 100 * speed), "more"), 0.5);
  assert.deepEqual(speedRatio([4, 40, 4], [2, 20, 2], "less"), 0.5);
});

Deno.test("toResult() says how far a goal is missed", () => {
  const figure = { name: "", unit: "per second", goals: [{ atLeast: 0.8, of: "raw" }, { above: 10 }] } as const;

  const reached = toResult("one", "trial", figure, [["raw", [100, 100]], ["holdfast", [80, 90]]]);
  const missed = toResult("one", "trial", figure, [["raw", [100]], ["holdfast", [40]]]);

  assert.deepEqual(reached.missed, []);
  assert.deepEqual(missed.ratios, { raw: 0.4 });
  assert.deepEqual(missed.missed, [{ goal: { atLeast: 0.8, of: "raw" }, factor: 2 }]);
});

for (
  const [name, speed, control, expected] of [
    ["as fast as it has to be", [0.85, 0.91, 0.95], [0.98, 1, 1.02], "reached"],
    ["slower with certainty", [0.7, 0.8, 0.89], [0.98, 1, 1.02], "missed"],
    ["slower, perhaps by chance", [0.7, 0.89, 0.92], [0.98, 1, 1.02], "perhaps"],
    ["slower on a machine that slows the base as much", [0.7, 0.8, 0.89], [0.8, 0.95, 1.1], "perhaps"],
  ] as const
) {
  Deno.test(`judge() says of what is ${name}: ${expected}`, () => {
    const [ours, copy] = [speed, control].map(([from, median, to]) => ({ from, median, to }));

    assert.equal(judge(ours!, copy!, 0.9), expected);
  });
}

Deno.test("table() shows the numbers, the ratio and the goal of a figure", () => {
  const figure = { name: "runs", unit: "per second", goals: [{ atLeast: 0.8, of: "raw" }] } as const;
  const workload: Workload = { name: "one", title: "A title", about: "What it is.", trials: [] };
  const result = toResult("one", "in a row", figure, [["raw", [1_000, 3_000, 2_000]], ["holdfast", [
    500,
    1_500,
    1_000,
  ]]]);

  const text = table([workload], [result]);

  assert.deepEqual(text.split("\n"), [
    "A title",
    "What it is.",
    "",
    "                      unit                     raw              holdfast  ratio to raw        goal",
    "--------------  ----------  ----------------------  --------------------  ------------  ----------  ------------------",
    "in a row, runs  per second  2,000 (1,000 to 3,000)  1,000 (500 to 1,500)          0.50  0.8 of raw  missed: 1.60 times",
  ]);
});

Deno.test("loadUnobserved() finds what it leaves out, and what is left executes runs and counts nothing", async () => {
  const folder = await Deno.makeTempDir();
  const { createEngine, defineJob, MemoryStore } = await loadUnobserved(`${folder}/copy`);
  const job = defineJob({ name: "steps", input: benchInput, run: (step) => step.run("one", () => 1) });
  const engine = createEngine({ store: new MemoryStore(), jobs: { job } });
  await engine.trigger(job, { n: 1 });

  const { executed } = await engine.runUntilIdle();
  await engine.stop();

  const { windows } = await engine.getStats();
  assert.deepEqual([executed, windows["5m"].triggered, windows["5m"].completed], [1, 0, 0]);
  await Deno.remove(folder, { recursive: true });
});

Deno.test("takeTurns() measures each slice as often, and ratioOf() says how much less another costs", async () => {
  const calls: string[] = [];
  const slice = (name: string) => ({
    work: () => Promise.resolve(calls.push(name)),
    end: () => Promise.resolve(calls.push(`end ${name}`)),
  });

  const costs = await takeTurns([slice("a"), slice("b")], 10);

  assert.deepEqual(costs.map(({ length }) => length), [10, 10]);
  assert.deepEqual([calls.filter((name) => name === "a").length, calls.slice(-2)], [15, ["end a", "end b"]]);
  const [base, others] = [[2, 4, 6], [1, 2, 3]].map((times) => times.map((time) => ({ time, work: 1 })));
  assert.deepEqual(ratioOf(base!, others!, "time"), { median: 2, from: 2, to: 2 });
});

Deno.test("every file of bench/workloads is a workload that is measured, under its name", () => {
  const folder = new URL("../bench/workloads", import.meta.url);

  const files = [...Deno.readDirSync(folder)].map(({ name }) => name.replace(/\.ts$/, ""));

  assert.deepEqual(workloads.map(({ name }) => name).sort(), files.sort());
});

Deno.test("measure() gets a number for every figure from each contender", async () => {
  const shared = await Deno.makeTempDir();
  const progress = { begin: () => {}, detail: () => {} };
  try {
    // Those that write to our tables by themselves, and so have to follow them.
    for (const workload of workloads.filter(({ name }) => ["growth", "flow", "lists"].includes(name))) {
      const results = await measure(workload, { rounds: null, peers: false, quick: true, shared, progress });

      for (const { samples } of results) {
        assert.deepEqual(Object.values(samples).flat().every((number) => number > 0), true);
        assert.deepEqual(samples.holdfast?.length, 1);
      }
    }
  } finally {
    await Deno.remove(shared, { recursive: true });
  }
});
