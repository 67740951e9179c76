import { createEngine, defineJob, SqliteStore, systemHost } from "@holdfast/jobs";
import type { NewRun } from "@holdfast/jobs/store";
import { type Flow, type KnownJob, PLAIN_FLOW } from "../../src/model/flow.ts";
import { Counter } from "../counter.ts";
import { BENCH_WORKER, benchInput } from "../engines/holdfast.ts";
import { pause } from "../pause.ts";
import type { Setting } from "../setting.ts";
import { LIMITED_JOB, mixedStock, STOCK_JOB } from "../stock.ts";
import type { Figure, Measure, Trial, Workload } from "../workload.ts";

const RUNS = 4_000;
const TOGETHER = 40;
const IDLE_CLAIMS = 1_000;
const LEASE_MS = 600_000;
const AS_EMPTY = [{ atLeast: 0.8, of: "empty" }] as const;

const OTHERS = 100_000;
const LATE = 10;
const LATE_RUN = 1;
const SLOTS = 10;
const RUN_MS = 50;
const SETTLE_MS = 500;

/** What the options of flow control cost, and whether a full database makes them slower. */
export const flow: Workload = {
  name: "flow",
  title: "Flow control, in an empty and in a full database",
  about:
    "The time of the store for 4,000 runs: triggered, claimed and ended 40 at once. The full database has 1,000,000 " +
    "finished runs, and 100,000 of each: waiting, pending behind the full limit of a job, behind a full key, delayed. " +
    "The worker knows all jobs. Fairness: an engine at concurrency 10 with runs of 50 ms.",
  trials: [
    flowTrial("no options", {}),
    flowTrial("priority", { flow: (n) => ({ priority: n % 7 - 3 }) }),
    flowTrial("concurrency key", { key: (n) => `key-${n % TOGETHER}` }),
    flowTrial("3 holders of a key", { key: (n) => `key-${n % TOGETHER}`, flow: () => ({ keyConcurrency: 3 }) }),
    flowTrial("limit of the job", { limits: { concurrency: TOGETHER, rate: null } }),
    flowTrial("rate of the job", { limits: { concurrency: null, rate: { limit: 100_000, period: 1_000 } } }),
    flowTrial("100 fairness keys", { flow: (n) => ({ fairnessKey: `tenant-${n % 100}` }) }),
    flowTrial("startWithin and finishWithin", { flow: () => ({ startWithin: LEASE_MS, finishWithin: LEASE_MS }) }),
    {
      name: "100,000 pending of one tenant, then 10 of another",
      figures: [{ name: "until all 10 have started", unit: "ms", goals: [{ below: 1_000 }] }],
      rounds: 3,
      contenders: { holdfast: fairness },
    },
  ],
};

/** How the runs of a trial differ from plain ones; `n` counts them. */
interface Variant {
  flow?: (n: number) => Partial<Flow>;
  key?: (n: number) => string;
  limits?: Pick<KnownJob, "concurrency" | "rate">;
}

function flowTrial(name: string, variant: Variant): Trial {
  const figures: Figure[] = [
    { name: "trigger", unit: "µs", goals: [] },
    { name: "claim", unit: "µs", goals: AS_EMPTY },
    { name: "end", unit: "µs", goals: AS_EMPTY },
    { name: "claim that finds nothing, each", unit: "µs", goals: AS_EMPTY },
  ];
  return {
    name,
    figures,
    rounds: 7,
    contenders: {
      empty: storeCalls(variant, ({ folder }) => Promise.resolve(`${folder}/jobs.db`)),
      holdfast: storeCalls(variant, fullDatabase),
    },
  };
}

function fullDatabase(setting: Setting): Promise<string> {
  const many = setting.size(100_000, 100);
  return mixedStock(setting, [
    ["finished", setting.size(1_000_000, 1_000)],
    ["waiting", many],
    ["limited", many],
    ["behind", many],
    ["delayed", many],
  ]);
}

/** Microseconds for each run, in the calls that trigger, claim and end; then for a claim when no run is left. */
function storeCalls({ flow, key, limits }: Variant, prepare: (setting: Setting) => Promise<string>): Measure {
  return async (setting) => {
    const count = setting.size(RUNS, 2 * TOGETHER);
    await using store = await SqliteStore.open(await prepare(setting));
    await store.migrate();
    const jobName = "measured";
    const jobs = [
      { ...LIMITED_JOB, name: jobName, concurrency: null, ...limits },
      { ...LIMITED_JOB, name: STOCK_JOB, concurrency: null },
      LIMITED_JOB,
    ];
    const claim = () =>
      store.claim({
        workerId: "bench",
        worker: BENCH_WORKER,
        claimId: systemHost.newId(),
        jobs,
        holding: [],
        triesHeld: false,
        isAlone: false,
        limit: TOGETHER,
        leaseMs: LEASE_MS,
        maxAbandonments: 10,
      });

    const triggeredAt = performance.now();
    for (let done = 0; done < count; done += TOGETHER) {
      const numbers = Array.from({ length: TOGETHER }, (_, n) => done + n);
      await Promise.all(numbers.map((n) => store.enqueue([aRun(jobName, key?.(n) ?? null, flow?.(n) ?? {})])));
    }
    const triggering = performance.now() - triggeredAt;

    let claiming = 0;
    let ending = 0;
    for (let ended = 0; ended < count;) {
      const claimedAt = performance.now();
      const { claims } = await claim();
      const endingAt = performance.now();
      await Promise.all(
        claims.map(({ lease }) => store.finish(lease, { status: "completed", output: "1", durationMs: 1 }, [])),
      );
      claiming += endingAt - claimedAt;
      ending += performance.now() - endingAt;
      if (claims.length === 0) throw new Error(`Only ${ended} of ${count} runs could be claimed`);
      if (claims.some(({ run }) => run.jobName !== jobName)) throw new Error("A run of the stock was claimed");
      ended += claims.length;
    }

    const idle = setting.size(IDLE_CLAIMS, 10);
    const idleAt = performance.now();
    for (let n = 0; n < idle; n++) await claim();
    const idling = performance.now() - idleAt;
    return [triggering / count, claiming / count, ending / count, idling / idle].map((ms) => ms * 1_000);
  };
}

function aRun(jobName: string, concurrencyKey: string | null, flow: Partial<Flow>): NewRun {
  return {
    id: systemHost.newId(),
    jobName,
    version: 1,
    aliases: [],
    schemaPrint: null,
    payload: '{"n":1}',
    input: '{"n":1}',
    labels: {},
    idempotencyKey: null,
    concurrencyKey,
    coalesce: null,
    retriggerOf: null,
    schedule: null,
    trace: null,
    flow: { ...PLAIN_FLOW, ...flow },
  };
}

/** How soon the runs of a second tenant start while the first one has a long queue. */
async function fairness({ folder, size }: Setting): Promise<number[]> {
  await using store = await SqliteStore.open(`${folder}/jobs.db`);
  const started = new Counter();
  const nap = defineJob({
    name: "nap",
    input: benchInput,
    async run(_step, { n }) {
      if (n === LATE_RUN) started.add();
      await pause(RUN_MS);
    },
  });
  await using engine = createEngine({
    store,
    jobs: { nap },
    fairnessLabel: "org",
    worker: { concurrency: SLOTS },
  });
  const batch = (org: string, length: number, n = 0) =>
    engine.jobs.nap.batchTrigger(Array.from({ length }, () => ({ input: { n }, labels: { org } })));
  const others = size(OTHERS, 500);
  for (let done = 0; done < others; done += 500) await batch("early", 500);
  await engine.start();
  await pause(SETTLE_MS);
  const triggeredAt = performance.now();
  await batch("late", LATE, LATE_RUN);
  await started.reached(LATE);
  const ms = performance.now() - triggeredAt;
  await engine.stop({ timeout: 0 });
  return [ms];
}
