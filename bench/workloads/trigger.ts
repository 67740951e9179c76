import type { OpenEngine } from "../engine.ts";
import { openHoldfast } from "../engines/holdfast.ts";
import { openPeer } from "../peers.ts";
import { rateFigures, Stopwatch } from "../rate.ts";
import { RawDatabase } from "../raw_database.ts";
import type { Measure, Workload } from "../workload.ts";

const INPUT = { n: 1 };
const INPUT_TEXT = JSON.stringify(INPUT);
const TOGETHER = 100;
const jobs = { nothing: () => {} };

/** How fast runs are triggered while no worker is started. */
export const trigger: Workload = {
  name: "trigger",
  title: "Triggering runs",
  about: "Raw inserts one row a run: one in each transaction, or 100. Peers: 2,000 runs at most.",
  trials: [
    {
      name: "one after another",
      figures: rateFigures("", "a run", [{ atLeast: 0.8, of: "raw" }]),
      rounds: 5,
      peerRounds: 3,
      contenders: {
        raw: rawInTransactions(2_000, 1),
        holdfast: oneByOne(openHoldfast, 2_000),
        durably: oneByOne(openPeer("durably"), 1_000),
        openworkflow: oneByOne(openPeer("openworkflow"), 1_000),
      },
    },
    {
      name: "100 at once, each awaited",
      figures: rateFigures("", "a run", [{ atLeast: 0.5, of: "raw" }]),
      rounds: 5,
      peerRounds: 3,
      contenders: {
        raw: rawInTransactions(20_000, TOGETHER),
        holdfast: atOnce(openHoldfast, 20_000),
        durably: atOnce(openPeer("durably"), 2_000),
        openworkflow: atOnce(openPeer("openworkflow"), 2_000),
      },
    },
    {
      name: "batches of 100",
      figures: rateFigures("", "a run", [{ atLeast: 0.5, of: "raw" }]),
      rounds: 5,
      peerRounds: 3,
      contenders: {
        raw: rawInTransactions(20_000, TOGETHER),
        holdfast: inBatches(openHoldfast, 20_000),
        durably: inBatches(openPeer("durably"), 2_000),
      },
    },
  ],
};

function rawInTransactions(runs: number, each: number): Measure {
  return ({ folder, size }) => {
    const count = size(runs, TOGETHER);
    using raw = new RawDatabase(`${folder}/raw.db`);
    const watch = new Stopwatch();
    for (let done = 0; done < count; done += each) {
      raw.transaction(() => {
        for (let n = 0; n < each; n++) raw.insertRun("nothing", INPUT_TEXT);
      });
    }
    return Promise.resolve(watch.rate(count));
  };
}

function oneByOne(open: OpenEngine, runs: number): Measure {
  return async ({ folder, size }) => {
    const count = size(runs, TOGETHER);
    await using engine = await open({ path: `${folder}/jobs.db`, jobs });
    const watch = new Stopwatch();
    for (let done = 0; done < count; done++) await engine.trigger("nothing", INPUT);
    return watch.rate(count);
  };
}

function atOnce(open: OpenEngine, runs: number): Measure {
  return async ({ folder, size }) => {
    const count = size(runs, TOGETHER);
    await using engine = await open({ path: `${folder}/jobs.db`, jobs });
    const watch = new Stopwatch();
    for (let done = 0; done < count; done += TOGETHER) {
      await Promise.all(Array.from({ length: TOGETHER }, () => engine.trigger("nothing", INPUT)));
    }
    return watch.rate(count);
  };
}

function inBatches(open: OpenEngine, runs: number): Measure {
  return async ({ folder, size }) => {
    const count = size(runs, TOGETHER);
    await using engine = await open({ path: `${folder}/jobs.db`, jobs });
    const batch = Array.from({ length: TOGETHER }, () => INPUT);
    const watch = new Stopwatch();
    for (let done = 0; done < count; done += TOGETHER) await engine.batchTrigger!("nothing", batch);
    return watch.rate(count);
  };
}
