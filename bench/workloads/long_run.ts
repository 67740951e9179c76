import type { OpenEngine } from "../engine.ts";
import { openHoldfast } from "../engines/holdfast.ts";
import { openPeer } from "../peers.ts";
import { rateFigures, Stopwatch } from "../rate.ts";
import { RawDatabase } from "../raw_database.ts";
import { percentile } from "../statistics.ts";
import type { Goal, Measure, Trial, Workload } from "../workload.ts";

const EDGE = 500;

/** How fast one run records its steps, one after another, and whether it gets slower the longer it is. */
export const longRun: Workload = {
  name: "long_run",
  title: "One run of many steps",
  about: "Raw inserts the step and updates its run, a transaction each. openworkflow allows 1,000 steps: it has 900. " +
    "The median of the last 500 steps is compared with that of the first 500 of the same run.",
  trials: [longTrial(2_000, [{ atLeast: 0.8, of: "raw" }], 5, 3), longTrial(10_000, [], 3, 1)],
};

function longTrial(steps: number, goals: readonly Goal[], rounds: number, peerRounds: number): Trial {
  const hasOpenworkflow = steps <= 2_000;
  return {
    name: `${steps.toLocaleString("en")} steps`,
    figures: [
      ...rateFigures("steps", "a step", goals),
      { name: "the last 500", unit: "of the first", goals: [{ above: 0.9 }] },
    ],
    rounds,
    peerRounds,
    contenders: {
      raw: raw(steps),
      holdfast: oneRun(openHoldfast, steps),
      durably: oneRun(openPeer("durably"), steps),
      ...(hasOpenworkflow ? { openworkflow: oneRun(openPeer("openworkflow"), 900) } : {}),
    },
  };
}

function raw(steps: number): Measure {
  return ({ folder, size }) => {
    const count = size(steps, 100);
    using raw = new RawDatabase(`${folder}/raw.db`);
    raw.insertRun("long", "null");
    const [run] = raw.claim("long", 1);
    const watch = new Stopwatch();
    const times = [performance.now()];
    for (let n = 0; n < count; n++) {
      raw.transaction(() => raw.recordStep(run!, `step ${n}`, JSON.stringify(n)));
      times.push(performance.now());
    }
    return Promise.resolve([...watch.rate(count), speedAtEnd(times)]);
  };
}

function oneRun(open: OpenEngine, steps: number): Measure {
  return async ({ folder, size }) => {
    const count = size(steps, 100);
    const times: number[] = [];
    let watch = new Stopwatch();
    await using engine = await open({
      path: `${folder}/jobs.db`,
      jobs: {
        long: async ({ step }) => {
          watch = new Stopwatch();
          times.push(performance.now());
          for (let n = 0; n < count; n++) {
            await step(`step ${n}`, () => n);
            times.push(performance.now());
          }
        },
      },
    });
    await engine.trigger("long", { n: 1 });
    await engine.start();
    await engine.completed(1);
    return [...watch.rate(count), speedAtEnd(times)];
  };
}

/** How much of the first steps' speed the last ones have. */
function speedAtEnd(times: readonly number[]): number {
  const each = times.slice(1).map((time, n) => time - times[n]!);
  const edge = Math.min(EDGE, Math.floor(each.length / 2));
  const first = percentile(each.slice(0, edge), 0.5);
  const last = percentile(each.slice(-edge), 0.5);
  return first / last;
}
