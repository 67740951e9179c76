import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { SQLITE_CHECKS, SQLITE_STUCK_CHECKS } from "../../../src/stores/sqlite/checks.ts";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { CountingDriver } from "../../support/stores/counting_driver.ts";
import { FakeHost } from "../../support/fake_host.ts";
import { aClaimRequest, aFailure, aFlow, aKnownJob, aPause, aRun, aStep } from "../../support/fixtures.ts";

// The tables that grow with the runs, and the names that the statements give them.
const LARGE = /^SCAN (holdfast_(runs|steps|pauses|labels|attempts|holders)|r|p|s|l|c|m)\b/;
// A search by the end of an id reads the newest 5,000 runs; the index of open waits has these alone.
const BOUNDED = /ORDER BY seq DESC LIMIT 5000|USING (COVERING )?INDEX holdfast_pauses_open_waits/;

Deno.test("what operators read of runs scans neither runs, steps nor pauses", async () => {
  const driver = new CountingDriver();
  const host = new FakeHost();
  await using store = await SqliteStore.from(driver, { host });
  await store.migrate();
  const keyed = (overrides = {}) => aRun({ concurrencyKey: "disk", labels: { org: "acme" }, ...overrides });
  const rate = { limit: 2, period: 1_000 };
  const fair = { flow: aFlow({ fairnessKey: "acme", keyConcurrency: 2, keyRate: rate, priority: 1 }) };
  const runs = [keyed(), keyed(fair), keyed(fair), keyed(), aRun(), aRun(fair), aRun(fair), aRun({ version: 2 })];
  await store.enqueue(runs);
  const jobs = [aKnownJob({ concurrency: 2, rate: { limit: 5, period: 1_000 } })];
  const { claims } = await store.claim(aClaimRequest({ jobs, limit: 2 }));
  const retrying = { status: "retrying", failure: aFailure(), delayMs: 60_000 } as const;
  await store.saveStep(claims[0]!.lease, aStep({ result: retrying }), []);
  const pauses = [aPause(), aPause({ kind: "children", name: "all", children: { total: 1, from: 0, runs: [aRun()] } })];
  await store.pause(claims[0]!.lease, { pauses, retryAt: null, park: true, reports: [] });
  driver.statements.clear();

  for (const { id } of runs) {
    await store.getBlockers(id);
    await store.getTimeline(id, { steps: 0, pauses: 0, interruptions: 0 }, 100);
    await store.getFailures(id);
  }
  await store.getOpenWaits(null, 10);
  await store.getOpenWaits({ deadlineAt: null, seq: 1 }, 10);
  await store.searchRuns("org=acme", 10);

  const scans = [...driver.statements].flatMap((sql) => {
    const parameters = Array(sql.split("?").length - 1).fill("[]");
    const plan = driver.database.prepare(`EXPLAIN QUERY PLAN ${sql}`).all(...parameters) as { detail: string }[];
    const scans = plan.filter(({ detail }) => LARGE.test(detail) && !BOUNDED.test(`${detail} ${sql}`));
    return scans.map(({ detail }) => `${detail}: ${sql}`);
  });
  assert.ok(driver.statements.size > 25);
  assert.deepEqual(scans, []);
});

Deno.test("no check of the doctor scans a table once for each row of another", async () => {
  const database = new DatabaseSync(":memory:");
  await using store = await SqliteStore.from(database);
  await store.migrate();

  const checks = [...SQLITE_CHECKS, ...SQLITE_STUCK_CHECKS].filter(({ ifAny }) => ifAny === undefined);
  const nested = checks.filter(({ sql }) => {
    const plan = database.prepare(`EXPLAIN QUERY PLAN ${sql}`).all() as { parent: number; detail: string }[];
    const loops = plan.filter(({ detail }) => /^(SCAN|SEARCH) (?!.* VIRTUAL TABLE)/.test(detail));
    return loops.some(({ parent, detail }, at) =>
      detail.startsWith("SCAN") && loops.slice(0, at).some((outer) => outer.parent === parent)
    );
  });

  assert.deepEqual(nested.map(({ name }) => name), []);
});
