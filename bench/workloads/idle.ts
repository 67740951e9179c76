import type { OpenEngine } from "../engine.ts";
import { openHoldfast } from "../engines/holdfast.ts";
import { pause } from "../pause.ts";
import { openPeer } from "../peers.ts";
import { RawDatabase } from "../raw_database.ts";
import { percentile } from "../statistics.ts";
import type { Figure, Measure, Workload } from "../workload.ts";

const RUNS = 300;
const POLLED_RUNS = 15;
const SETTLE_MS = 200;
const LONGEST_PAUSE_MS = 20;
// So that a trigger falls anywhere between two looks of a peer that polls every second.
const POLLED_PAUSE_MS = 1_000;

/** How soon a started worker that has nothing to do begins and ends a run that is triggered in its process. */
export const idle: Workload = {
  name: "idle",
  title: "An idle worker gets a run",
  about:
    "From the trigger until the job's function is entered, and until triggerAndWait has the result; 300 runs with " +
    "pauses in between. Raw commits the trigger, the claim and the end, and reads the result. A peer that polls has 15 " +
    "runs, so that its p99 is nearly its worst.",
  trials: [
    {
      name: "default settings",
      figures: figures(true),
      rounds: 3,
      peerRounds: 1,
      contenders: {
        raw,
        holdfast: worker(openHoldfast, RUNS),
        durably: worker(openPeer("durably"), POLLED_RUNS, POLLED_PAUSE_MS),
        openworkflow: worker(openPeer("openworkflow"), POLLED_RUNS, POLLED_PAUSE_MS),
      },
    },
    {
      name: "polling every millisecond",
      figures: figures(false),
      rounds: 2,
      peerRounds: 1,
      contenders: { durably: worker((options) => openPeer("durably")({ ...options, fastest: true }), RUNS) },
    },
  ],
};

function figures(hasGoals: boolean): Figure[] {
  const bound = (below: number) => hasGoals ? [{ below }] : [];
  return [
    { name: "to the job, p50", unit: "ms", goals: bound(1) },
    { name: "to the job, p99", unit: "ms", goals: bound(5) },
    { name: "to the result, p50", unit: "ms", goals: bound(2) },
    { name: "to the result, p99", unit: "ms", goals: bound(5) },
  ];
}

async function raw({ folder, size }: Parameters<Measure>[0]): Promise<number[]> {
  using raw = new RawDatabase(`${folder}/raw.db`);
  const result = raw.connection.prepare("SELECT output FROM runs WHERE seq = ?");
  const toJob: number[] = [];
  const toResult: number[] = [];
  for (let n = 0; n < size(RUNS, 5); n++) {
    await pause(Math.random() * LONGEST_PAUSE_MS);
    const startedAt = performance.now();
    raw.transaction(() => raw.insertRun("nothing", '{"n":1}'));
    const [run] = raw.transaction(() => raw.claim("nothing", 1));
    toJob.push(performance.now() - startedAt);
    raw.transaction(() => raw.complete(run!, null));
    result.get(run!.seq);
    toResult.push(performance.now() - startedAt);
  }
  return percentiles(toJob, toResult);
}

function worker(open: OpenEngine, runs: number, longestPauseMs = LONGEST_PAUSE_MS): Measure {
  return async ({ folder, size }) => {
    let enteredAt = 0;
    const jobs = { nothing: () => void (enteredAt = performance.now()) };
    await using engine = await open({ path: `${folder}/jobs.db`, jobs });
    await engine.start();
    await pause(SETTLE_MS);
    const toJob: number[] = [];
    const toResult: number[] = [];
    for (let n = 0; n < size(runs, 3); n++) {
      await pause(Math.random() * longestPauseMs);
      const startedAt = performance.now();
      await engine.triggerAndWait("nothing", { n });
      toResult.push(performance.now() - startedAt);
      toJob.push(enteredAt - startedAt);
    }
    return percentiles(toJob, toResult);
  };
}

function percentiles(toJob: readonly number[], toResult: readonly number[]): number[] {
  return [toJob, toResult].flatMap((times) => [percentile(times, 0.5), percentile(times, 0.99)]);
}
