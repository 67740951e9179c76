import { copyFile } from "node:fs/promises";
import type { OpenEngine } from "../engine.ts";
import { openHoldfast } from "../engines/holdfast.ts";
import { openPeer } from "../peers.ts";
import { rateFigures, Stopwatch } from "../rate.ts";
import { RawDatabase } from "../raw_database.ts";
import { rawDrain } from "../raw_drain.ts";
import type { Setting } from "../setting.ts";
import { stock, STOCK_JOB, stockRaw } from "../stock.ts";
import { stockPeer } from "../stock_peer.ts";
import type { Figure, Measure, Trial, Workload } from "../workload.ts";

const RUNS = 4_000;
const PEER_RUNS = 400;
const TOGETHER = 100;
const RUNS_OF_ONE_KEY = 200;
const AS_EMPTY = [{ atLeast: 0.9, of: "empty" }] as const;

/** Whether runs that have ended, wait or are blocked slow down those that are triggered and executed meanwhile. */
export const growth: Workload = {
  name: "growth",
  title: "Triggering and working off 4,000 runs without steps, in a full database",
  about:
    "In batches of 100, then by a worker with concurrency 100, and compared with a database that is empty otherwise. " +
    "Raw does the same in a full database of its own; it has no waits and no concurrency keys. Peers: 400 runs.",
  trials: [
    growthTrial("finished", 100_000),
    growthTrial("finished", 1_000_000),
    growthTrial("waiting", 100_000),
    growthTrial("behind", 100_000),
    {
      name: "100,000 runs queued for one key: the first 200 of them, one after another",
      figures: rateFigures("worked off", "a run", AS_EMPTY),
      rounds: 3,
      contenders: { empty: ofOneKey(RUNS_OF_ONE_KEY), holdfast: ofOneKey(100_000) },
    },
  ],
};

function growthTrial(what: "finished" | "waiting" | "behind", count: number): Trial {
  const names = { finished: "finished", waiting: "waiting", behind: "behind a busy key" };
  const figures: Figure[] = [
    ...rateFigures("triggered", "a trigger", []),
    ...rateFigures("claimed and completed", "a run", AS_EMPTY),
  ];
  return {
    name: `${count.toLocaleString("en")} ${names[what]}`,
    figures,
    rounds: 3,
    peerRounds: 2,
    contenders: {
      ...(what === "finished" ? { raw: raw(count) } : {}),
      empty: worker(openHoldfast, RUNS, ({ folder }) => Promise.resolve(`${folder}/jobs.db`)),
      holdfast: worker(openHoldfast, RUNS, (setting) => stock(setting, what, setting.size(count, 1_000))),
      ...(what === "finished" && count === 100_000
        ? { durably: peer("durably"), openworkflow: peer("openworkflow") }
        : {}),
    },
  };
}

function peer(name: "durably" | "openworkflow"): Measure {
  return worker(openPeer(name), PEER_RUNS, (setting) => stockPeer(name, setting, setting.size(100_000, 1_000)));
}

function worker(open: OpenEngine, runs: number, prepare: (setting: Setting) => Promise<string>): Measure {
  return async (setting) => {
    const count = setting.size(runs, TOGETHER);
    const path = await prepare(setting);
    await using engine = await open({ path, jobs: { [STOCK_JOB]: () => {} }, concurrency: TOGETHER });
    const triggering = new Stopwatch();
    const batch = Array.from({ length: TOGETHER }, () => ({ n: 1 }));
    for (let done = 0; done < count; done += TOGETHER) {
      if (engine.batchTrigger !== null) await engine.batchTrigger(STOCK_JOB, batch);
      else await Promise.all(batch.map((input) => engine.trigger(STOCK_JOB, input)));
    }
    const triggered = triggering.rate(count);
    const working = new Stopwatch();
    await engine.start();
    await engine.completed(count);
    return [...triggered, ...working.rate(count)];
  };
}

function raw(finished: number): Measure {
  return async (setting) => {
    const count = setting.size(RUNS, TOGETHER);
    using raw = new RawDatabase(stockRaw(setting, setting.size(finished, 1_000)));
    const triggering = new Stopwatch();
    for (let done = 0; done < count; done += TOGETHER) {
      raw.transaction(() => {
        for (let n = 0; n < TOGETHER; n++) raw.insertRun(STOCK_JOB, '{"n":1}');
      });
    }
    const triggered = triggering.rate(count);
    const working = new Stopwatch();
    await rawDrain(raw, { job: STOCK_JOB, steps: 0, concurrency: TOGETHER });
    return [...triggered, ...working.rate(count)];
  };
}

/** All of the same key: the worker can execute only one at a time, and each end lets the next one begin. */
function ofOneKey(runs: number): Measure {
  return async (setting) => {
    const count = setting.size(RUNS_OF_ONE_KEY, 20);
    const path = `${setting.folder}/jobs.db`;
    await copyFile(await stock(setting, "queued", setting.size(runs, 100)), path);
    await using engine = await openHoldfast({ path, jobs: { [STOCK_JOB]: () => {} } });
    const watch = new Stopwatch();
    await engine.start();
    await engine.completed(count);
    return watch.rate(count);
  };
}
