import type { BenchJob, OpenEngine } from "../engine.ts";
import { openHoldfast } from "../engines/holdfast.ts";
import { openPeer } from "../peers.ts";
import { rateFigures, Stopwatch } from "../rate.ts";
import { RawDatabase } from "../raw_database.ts";
import { rawDrain } from "../raw_drain.ts";
import type { Goal, Measure, Trial, Workload } from "../workload.ts";

const RUNS = 2_000;
const PEER_RUNS = 400;
const STEPS = 5;

const fiveSteps: BenchJob = async ({ step }) => {
  for (let n = 0; n < STEPS; n++) await step(`step ${n}`, () => n);
};

/** How fast a started worker works off runs that were triggered before. */
export const drain: Workload = {
  name: "drain",
  title: "2,000 runs of 5 steps",
  about:
    "Raw claims as many runs as go side by side, and records what they do at the same moment in one transaction: " +
    "with 1 each write has its own. Peers have 400 runs (fewer pending ones make them faster).",
  trials: [
    drainTrial(1, [{ atLeast: 0.7, of: "raw" }], 3),
    drainTrial(10, [], 5),
    drainTrial(100, [{ atLeast: 0.5, of: "raw" }], 5),
  ],
};

function drainTrial(concurrency: number, goals: readonly Goal[], rounds: number): Trial {
  return {
    name: `concurrency ${concurrency}`,
    figures: [...rateFigures("runs", "a run", goals), {
      name: "steps a second and core",
      unit: "per second",
      goals: [],
    }],
    rounds,
    peerRounds: 2,
    contenders: {
      raw: raw(concurrency),
      holdfast: worker(openHoldfast, concurrency, RUNS),
      durably: worker(openPeer("durably"), concurrency, PEER_RUNS),
      openworkflow: worker(openPeer("openworkflow"), concurrency, PEER_RUNS),
    },
  };
}

function raw(concurrency: number): Measure {
  return async ({ folder, size }) => {
    const count = size(RUNS, 50);
    using raw = new RawDatabase(`${folder}/raw.db`);
    raw.transaction(() => {
      for (let n = 0; n < count; n++) raw.insertRun("steps", JSON.stringify({ n }));
    });
    const watch = new Stopwatch();
    await rawDrain(raw, { job: "steps", steps: STEPS, concurrency });
    return withSteps(watch.rate(count));
  };
}

/** The same, and how many steps a second a core of its own would execute. */
function withSteps([perSecond, cpuUs]: readonly [number, number]): number[] {
  return [perSecond, cpuUs, STEPS / cpuUs * 1_000_000];
}

function worker(open: OpenEngine, concurrency: number, runs: number): Measure {
  return async ({ folder, size }) => {
    const count = size(runs, 50);
    await using engine = await open({ path: `${folder}/jobs.db`, jobs: { steps: fiveSteps }, concurrency });
    const inputs = Array.from({ length: count }, (_, n) => ({ n }));
    if (engine.batchTrigger !== null) await engine.batchTrigger("steps", inputs);
    else for (const input of inputs) await engine.trigger("steps", input);
    const watch = new Stopwatch();
    await engine.start();
    await engine.completed(count);
    return withSteps(watch.rate(count));
  };
}
