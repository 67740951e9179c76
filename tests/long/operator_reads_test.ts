import assert from "node:assert/strict";
import { MAX_COUNTED_WAITS } from "../../src/wait.ts";
import type { Store } from "../../src/store.ts";
import { SqliteStore } from "../../src/stores/sqlite/sqlite_store.ts";
import { aClaimRequest, aPause, aRun, aStep } from "../support/fixtures.ts";
import { startServer } from "../stores/postgres/server.ts";

const RUNS = 200_000;
const BATCH = 500;
const STEPS = 10_000;
const MAX_MS = 10;

const SHAPES = ["mixed", "all pending", "all waiting", "all behind one key"] as const;

/** Fills a store, and answers the run to ask about. */
async function fill(store: Store, shape: typeof SHAPES[number], runs: number): Promise<string> {
  const one = aRun(shape === "all behind one key" ? { concurrencyKey: "disk" } : {});
  for (let count = 0; count < runs; count += BATCH) {
    const concurrencyKey = shape === "all behind one key" ? "disk" : null;
    await store.enqueue(
      Array.from(
        { length: BATCH },
        (_, at) =>
          aRun({
            concurrencyKey,
            jobName: shape === "mixed" ? `job-${at % 20}` : "import-csv",
            labels: { org: `${at % 50}` },
          }),
      ),
    );
    const isWaiting = shape === "all waiting" || (shape === "mixed" && count % (2 * BATCH) === 0);
    if (!isWaiting) continue;
    const jobNames = ["import-csv", ...Array.from({ length: 20 }, (_, at) => `job-${at}`)];
    const { claims } = await store.claim(aClaimRequest({ jobNames, limit: BATCH, leaseMs: 1e9 }));
    await Promise.all(claims.map(({ lease }) =>
      store.pause(lease, {
        pauses: [aPause({ deadline: { afterMs: 1e9 + count } })],
        retryAt: null,
        park: true,
        reports: [],
      })
    ));
  }
  await store.enqueue([one]);
  return one.id;
}

/** The median of 20 calls after one, in milliseconds. */
async function median(call: () => Promise<unknown>): Promise<number> {
  await call();
  const times = [];
  for (let count = 0; count < 20; count++) {
    const startedAt = performance.now();
    await call();
    times.push(performance.now() - startedAt);
  }
  return times.sort((one, other) => one - other)[10]!;
}

async function measure(store: Store, name: string, runs: number): Promise<void> {
  for (const shape of SHAPES) {
    const id = await fill(store, shape, runs);
    const times = {
      getBlockers: await median(() => store.getBlockers(id)),
      getOpenWaits: await median(() => store.getOpenWaits(null, 50)),
      searchRuns: await median(() => store.searchRuns("org=7", 20)),
    };
    console.log(name, shape, JSON.stringify(times));
    for (const [call, ms] of Object.entries(times)) {
      if (call !== "searchRuns") assert.ok(ms < MAX_MS, `${name}, ${shape}: ${call}() took ${ms} ms`);
    }
  }
  const { total } = await store.getOpenWaits(null, 1);
  assert.equal(total, MAX_COUNTED_WAITS + 1);
  const long = aRun({ jobName: "long" });
  await store.enqueue([long]);
  const { claims: [claim] } = await store.claim(aClaimRequest({ jobNames: ["long"], leaseMs: 1e9 }));
  for (let index = 0; index < STEPS; index += 100) {
    await Promise.all(
      Array.from(
        { length: 100 },
        (_, at) => store.saveStep(claim!.lease, aStep({ name: `step ${index + at}`, index: index + at }), []),
      ),
    );
  }
  const from = { steps: STEPS - 500, pauses: 0, interruptions: 0 };
  const timeline = await median(() => store.getTimeline(long.id, from, 500));
  console.log(name, "500 of 10,000 steps", timeline);
  assert.ok(timeline < MAX_MS, `${name}: getTimeline() took ${timeline} ms`);
}

Deno.test("SqliteStore: what operators read takes less than 10 ms among 200,000 runs of each shape", async () => {
  const path = await Deno.makeTempFile({ suffix: ".db" });
  await Deno.remove(path);
  await using store = await SqliteStore.open(path, { synchronous: "normal" });
  await store.migrate();

  await measure(store, "SqliteStore", RUNS);
});

const server = startServer();

Deno.test({
  name: "PostgresStore: what operators read takes less than 10 ms among 200,000 runs of each shape",
  ignore: server === null,
  fn: async () => {
    await using store = await server!.open(); // ignored without a server
    await store.migrate();

    await measure(store, "PostgresStore", RUNS);
  },
});
