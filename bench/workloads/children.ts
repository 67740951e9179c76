import { createEngine, defineJob, SqliteStore, systemHost } from "@holdfast/jobs";
import type { NewRun } from "@holdfast/jobs/store";
import { PLAIN_FLOW } from "../../src/model/flow.ts";
import { BENCH_WORKER, benchInput } from "../engines/holdfast.ts";
import { longestGap } from "../longest_gap.ts";
import type { Setting } from "../setting.ts";
import { TimedDriver } from "../timed_driver.ts";
import type { Workload } from "../workload.ts";

const CHILDREN = 10_000;
const SLICE = 100;
const TOGETHER = 40;
const CONCURRENCY = 100;
const LEASE_MS = 600_000;
// As in src/execution/calls/child_calls.ts.
const PAGE_LENGTH = 262_144;

/** What child runs cost. */
export const children: Workload = {
  name: "children",
  title: "A run with 10,000 children",
  about:
    "The time of the store: the children are added 100 in a call, claimed and ended 40 at once, and their results are " +
    "read in pages. Then an engine does it by step.invokeAll() at concurrency 100: the longest time the event loop is " +
    "held, without the time in COMMIT and the time in which other processes had the processor.",
  trials: [
    {
      name: "store",
      figures: [
        { name: "100 children are added", unit: "ms", goals: [] },
        { name: "a child ends", unit: "µs", goals: [] },
        { name: "the parent is claimed", unit: "ms", goals: [] },
        { name: "all results are read", unit: "ms", goals: [] },
      ],
      rounds: 5,
      contenders: { holdfast: storeCalls },
    },
    {
      name: "engine",
      figures: [
        { name: "all", unit: "ms", goals: [] },
        { name: "held", unit: "ms", goals: [{ below: 20 }] },
      ],
      rounds: 3,
      contenders: { holdfast: invokeAll },
    },
  ],
};

async function storeCalls({ folder, size }: Setting): Promise<number[]> {
  const total = size(CHILDREN, 2 * SLICE);
  await using store = await SqliteStore.open(`${folder}/jobs.db`);
  await store.migrate();
  const claim = (jobName: string) =>
    store.claim({
      workerId: "bench",
      worker: BENCH_WORKER,
      claimId: systemHost.newId(),
      jobs: [{ name: jobName, names: [jobName], version: 1, print: "print-1", concurrency: null, rate: null }],
      triesHeld: false,
      isAlone: false,
      holding: [],
      limit: TOGETHER,
      leaseMs: LEASE_MS,
      maxAbandonments: 10,
    });
  await store.enqueue([aRun("parent")]);
  const { claims: [parent] } = await claim("parent");
  const pauseId = systemHost.newId();

  const adding = await timed(async () => {
    for (let from = 0; from < total; from += SLICE) {
      const runs = Array.from({ length: SLICE }, () => aRun("child"));
      const pause = {
        id: pauseId,
        kind: "children",
        name: "all",
        children: { total, from, runs },
        deadline: null,
        metadata: null,
        prepared: false,
      } as const;
      const park = from + SLICE === total;
      await store.pause(parent!.lease, { pauses: [pause], retryAt: null, park, reports: [] }); // the only run
    }
  });
  let ending = 0;
  for (let ended = 0; ended < total;) {
    const { claims } = await claim("child");
    if (claims.length === 0) throw new Error(`Only ${ended} of ${total} children could be claimed`);
    ending += await timed(() =>
      Promise.all(
        claims.map(({ lease }) =>
          store.finish(lease, { status: "completed", output: '{"pages":3}', durationMs: 1 }, [])
        ),
      )
    );
    ended += claims.length;
  }
  const claiming = await timed(() => claim("parent"));
  const reading = await timed(async () => {
    for (let read = 0; read < total;) {
      const part = await store.readChildren(pauseId, read, PAGE_LENGTH);
      if (part === null) throw new Error("The results could not be read");
      read += part.items.length;
    }
  });
  return [adding / (total / SLICE), ending / total * 1_000, claiming, reading];
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now();
  await work();
  return performance.now() - startedAt;
}

function aRun(jobName: string): NewRun {
  return {
    id: systemHost.newId(),
    jobName,
    version: 1,
    aliases: [],
    schemaPrint: null,
    payload: '{"n":1}',
    input: '{"n":1}',
    labels: { org: "acme" },
    idempotencyKey: null,
    concurrencyKey: null,
    coalesce: null,
    retriggerOf: null,
    schedule: null,
    trace: null,
    flow: PLAIN_FLOW,
  };
}

const child = defineJob({ name: "child", input: benchInput, run: (_step, { n }) => ({ pages: n }) });
const parent = defineJob({
  name: "parent",
  input: benchInput,
  async run(step, { n }) {
    const results = await step.invokeAll("all", child, Array.from({ length: n }, (_, n) => ({ input: { n } })));
    return results.length;
  },
});

async function invokeAll({ folder, size }: Setting): Promise<number[]> {
  using driver = new TimedDriver(`${folder}/jobs.db`);
  await using store = await SqliteStore.from(driver);
  await using engine = createEngine({ store, jobs: { parent, child }, worker: { concurrency: CONCURRENCY } });
  await engine.start();
  const n = size(CHILDREN, 2 * SLICE);
  let ms = 0;
  const { longestOwnMs } = await longestGap(() => driver.commitMs, async () => {
    ms = await timed(() => engine.jobs.parent.triggerAndWait({ n }));
  });
  return [ms, longestOwnMs];
}
