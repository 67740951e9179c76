import assert from "node:assert/strict";
import pg from "pg";
import { MAX_COUNTED_WAITS } from "../../src/wait.ts";
import type { Store } from "../../src/store.ts";
import { PostgresStore } from "../../src/stores/postgres/postgres_store.ts";
import { SqliteStore } from "../../src/stores/sqlite/sqlite_store.ts";
import { CountingDriver } from "../support/counting_driver.ts";
import { aClaimRequest, aPause, aRun, aStep } from "../support/fixtures.ts";
import { startServer } from "../stores/postgres/server.ts";

const RUNS = 200_000;
const BATCH = 500;
const STEPS = 10_000;
const MAX_MS = 10;

const SHAPES = ["mixed", "all pending", "all waiting", "all behind one key"] as const;

type Shape = typeof SHAPES[number];

/** Fills a store, and answers the run to ask about. */
async function fill(store: Store, shape: Shape): Promise<string> {
  const one = aRun(shape === "all behind one key" ? { concurrencyKey: "disk" } : {});
  for (let count = 0; count < RUNS; count += BATCH) {
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

function assertCheap(calls: Record<string, number>, shape: string): void {
  console.log(shape, Object.entries(calls).map(([call, ms]) => `${call} ${ms.toFixed(2)} ms`).join(", "));
  for (const [call, ms] of Object.entries(calls)) assert.ok(ms < MAX_MS, `${shape}: ${call} took ${ms} ms`);
}

/** Measures what operators read of many runs. */
async function measure(store: Store, id: string, shape: Shape): Promise<void> {
  assertCheap({
    "getBlockers()": await median(() => store.getBlockers(id)),
    "getOpenWaits()": await median(() => store.getOpenWaits(null, 50)),
    "searchRuns()": await median(() => store.searchRuns("org=7", 20)),
    "searchRuns() by the end of an id": await median(() => store.searchRuns(id.slice(-8), 20)),
  }, shape);
  if (shape !== "all waiting") return;
  const { total } = await store.getOpenWaits(null, 1);
  assert.equal(total, MAX_COUNTED_WAITS + 1);
}

/** Measures a part of a long timeline. */
async function measureTimeline(store: Store): Promise<void> {
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
  const read = (steps: number) => store.getTimeline(long.id, { steps, pauses: 0, interruptions: 0 }, 500);
  assert.equal((await read(0))?.steps.length, 500);
  assertCheap({
    "the first 500 of 10,000 steps": await median(() => read(0)),
    "the last 500 of 10,000 steps": await median(() => read(STEPS - 500)),
  }, "a long run");
}

for (const shape of SHAPES) {
  Deno.test(`SqliteStore: operators read 200,000 runs, ${shape}, in under 10 ms, and scan no table`, async () => {
    const folder = await Deno.makeTempDir();
    const driver = new CountingDriver(`${folder}/jobs.db`);
    const store = await SqliteStore.from(driver, { synchronous: "normal" });
    try {
      await store.migrate();
      const id = await fill(store, shape);
      driver.statements.clear();

      await measure(store, id, shape);
      if (shape === "mixed") await measureTimeline(store);

      const plans = driver.plans(/^\s*(SELECT|WITH)/).flatMap(({ sql, details }) =>
        details.map((detail) => ({ sql, detail }))
      );
      assert.ok(plans.length > 10);
      const scans = plans.filter(({ detail }) => /SCAN (holdfast_(runs|steps|pauses|flow)|r|f|s|p)\b/.test(detail));
      assert.deepEqual(scans, []);
    } finally {
      await store.close();
      driver.database.close();
      await Deno.remove(folder, { recursive: true });
    }
  });
}

const server = startServer();

for (const shape of SHAPES) {
  Deno.test({
    name: `PostgresStore: operators read 200,000 runs, ${shape}, in under 10 ms, and scan no table`,
    ignore: server === null,
    fn: async () => {
      const schema = `reads_${crypto.randomUUID().replaceAll("-", "")}`;
      const writing = await PostgresStore.open(server!.url, { schema, durability: "relaxed" });
      const session = new pg.Client({ connectionString: server!.url });
      await session.connect();
      const store = PostgresStore.from(session, { schema, durability: "relaxed" });
      const plans: string[] = [];
      session.on("notice", ({ message }) => void (message?.includes("plan:") && plans.push(message)));
      try {
        await writing.migrate();
        const id = await fill(writing, shape);
        await session.query("analyze");

        await measure(store, id, shape);
        if (shape === "mixed") await measureTimeline(store);

        await session.query("load 'auto_explain'");
        await session.query(`set auto_explain.log_min_duration = 0; set auto_explain.log_nested_statements = on;
          set auto_explain.log_level = notice; set client_min_messages = notice`);
        await store.getBlockers(id);
        await store.getOpenWaits(null, 50);
        await store.searchRuns("org=7", 20);
        await store.getTimeline(id, { steps: 0, pauses: 0, interruptions: 0 }, 500);
        assert.ok(plans.length > 10);
        assert.deepEqual(plans.filter((plan) => /Seq Scan on (\w+\.)?(runs|steps|pauses|flow)\b/.test(plan)), []);
      } finally {
        await Promise.all([store.close(), writing.close()]);
        await session.query(`reset client_min_messages; drop schema if exists ${schema} cascade`);
        await session.end();
      }
    },
  });
}
