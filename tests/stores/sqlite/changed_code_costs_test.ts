import assert from "node:assert/strict";
import { PLAIN_FLOW } from "../../../src/model/flow.ts";
import type { Store } from "../../../src/store/store.ts";
import type { ClaimRequest } from "../../../src/store/claim.ts";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { CountingDriver } from "../../support/stores/counting_driver.ts";
import { FakeHost } from "../../support/fake_host.ts";
import { aClaimRequest, aHold, aKnownJob, aPause, aRun, aStep } from "../../support/fixtures.ts";
import { getRuns, getWaits } from "../../../src/store/reads.ts";

async function anOpen(): Promise<{ store: SqliteStore; driver: CountingDriver; host: FakeHost }> {
  const driver = new CountingDriver();
  const host = new FakeHost();
  const store = await SqliteStore.from(driver, { host });
  await store.migrate();
  return { store, driver, host };
}

let claimNo = 0;
function aClaim(overrides: Partial<ClaimRequest> = {}): ClaimRequest {
  return { ...aClaimRequest({ claimId: `claim-${claimNo++}`, leaseMs: 1e9 }), ...overrides };
}

/** Holds `count` runs, each by the code with one of two prints. */
async function holdRuns(store: Store, count: number): Promise<void> {
  await store.enqueue(Array.from({ length: count }, () => aRun()));
  const { claims } = await store.claim(aClaim({ limit: count }));
  assert.equal(claims.length, count);
  for (const [n, { lease }] of claims.entries()) await store.hold(lease, aHold({ print: `print-${n % 2}` }), []);
}

const BOTH = ["print-0", "print-1"];

/** Lets the code with each print try all held runs. */
async function tryAll(store: Store): Promise<void> {
  for (const print of BOTH) {
    while (true) {
      const jobs = [aKnownJob({ print })];
      const { claims } = await store.claim(aClaim({ workerId: print, jobs, limit: 100, triesHeld: true }));
      if (claims.length === 0) break;
      for (const { lease } of claims) await store.hold(lease, aHold({ print }), []);
    }
  }
}

Deno.test("SqliteStore claims at the same cost, however many held runs the code has tried", async () => {
  const costs = [];
  for (const count of [20, 1_000]) {
    const { store, driver } = await anOpen();
    await holdRuns(store, count);
    await tryAll(store);
    const [jobs, writes] = [[aKnownJob({ print: "print-1" })], driver.writes];
    const measure = async (overrides: Partial<ClaimRequest>) => {
      [driver.executed, driver.rows] = [0, 0];
      const { claims } = await store.claim(aClaim({ workerId: "print-1", jobs, ...overrides }));
      return { claims, cost: [driver.executed, driver.rows] };
    };

    const idle = [(await measure({})).cost, (await measure({ triesHeld: true })).cost];
    const isWithoutLock = driver.writes === writes;
    await store.enqueue([aRun(), aRun({ concurrencyKey: "key" })]);
    const two = await measure({});
    [driver.executed, driver.rows] = [0, 0];
    for (const { lease } of two.claims) {
      await store.finish(lease, { status: "completed", output: null, durationMs: 0 }, []);
    }
    costs.push({ idle, two: two.cost, ends: [driver.executed, driver.rows] });

    assert.equal(isWithoutLock, true);
    assert.equal(two.claims.length, 2);
    await store.close();
    driver.database.close();
  }

  assert.deepEqual(costs[1], costs[0]);
});

Deno.test("SqliteStore reads nothing more for a claim without offers if no run is offered", async () => {
  const costs = [];
  for (const count of [0, 100]) {
    const { store, driver } = await anOpen();
    if (count > 0) await holdRuns(store, count);
    await store.claim(aClaim());

    [driver.executed, driver.rows] = [0, 0];
    await store.claim(aClaim());
    costs.push([driver.executed, driver.rows]);
    await store.close();
    driver.database.close();
  }

  assert.deepEqual(costs[1], costs[0]);
});

Deno.test("SqliteStore offers 20 held runs at a time, at the same cost however many there are", async () => {
  const costs = [];
  for (const count of [100, 1_000]) {
    const { store, driver } = await anOpen();
    await holdRuns(store, count);
    const jobs = [aKnownJob({ print: "new" })];

    [driver.executed, driver.rows] = [0, 0];
    const { claims } = await store.claim(aClaim({ workerId: "new", jobs, limit: 100, triesHeld: true }));
    costs.push([driver.executed, driver.rows]);

    assert.equal(claims.length, 20);
    await store.close();
    driver.database.close();
  }

  assert.deepEqual(costs[1], costs[0]);
});

Deno.test("SqliteStore finds versions and held runs by an index", async () => {
  const { store, driver, host } = await anOpen();
  const flow = { ...PLAIN_FLOW, fairnessKey: "tenant", priority: 1, finishWithin: 5_000 };
  const key = { concurrencyKey: "key", coalesce: "active", idempotencyKey: "same", aliases: ["old"] } as const;
  await store.enqueue([1, 2].map((version) => aRun({ version, flow, concurrencyKey: "key" })));
  await store.enqueue([1, 2].map((version) => aRun({ ...key, version })));
  const jobs = [1, 2].map((version) => aKnownJob({ version, concurrency: 5 }));
  const first = await store.claim(aClaim({ jobs }));
  const { lease } = first.claims[0]!;
  await store.saveStep(lease, aStep(), []);
  await store.saveInput(lease, "schema", null);
  await store.pause(lease, { pauses: [aPause()], retryAt: null, park: false, reports: [] });
  await store.hold(lease, aHold(), []);
  for (const query of [{}, { jobNames: [first.claims[0]!.run.jobName] }, { code: "diverged" as const }]) {
    await store.findHeld({ ...query, after: 0, limit: 10 });
  }
  const [wait] = await getWaits(store, lease.runId);
  await store.signal(wait!.id, { signalId: "one", payload: 1 });
  await store.getHold(lease.runId);
  await store.getHistory(lease.runId);
  await store.getInput(lease.runId, "schema");
  const tried = (print: string) => ({ triesHeld: true, jobs: jobs.map((job) => ({ ...job, print })) });
  const other = await store.claim(aClaim({ workerId: "other", ...tried("new") }));
  for (const claim of other.claims) await store.hold(claim.lease, aHold(), []);
  await store.resumeHeld(lease.runId, true);
  await getRuns(store, { jobName: first.claims[0]!.run.jobName });
  host.advance(2e9);
  await store.getStrandedJobs();
  await store.claim(aClaim({ workerId: "third", ...tried("third") }));

  const plans = driver.plans(
    /^\s*(SELECT|UPDATE|DELETE|INSERT|WITH)[^]*holdfast_(holds|copies|other_inputs|runs|counts|inputs)/,
  );
  // A list of runs merges a page of each queue, and then reads what it has merged. The counts are a few rows.
  const LIST = /UNION ALL SELECT \* FROM \(SELECT seq FROM holdfast_runs/;
  const scans = plans.filter(({ sql, details }) =>
    !/GROUP BY job|sum\(runs\)/.test(sql) &&
    details.some((detail) =>
      /^SCAN (?!keys$|retries$|CONSTANT|\(subquery|j\b|json_each|\?)/.test(detail) &&
      !(LIST.test(sql) && detail === "SCAN l")
    )
  );
  const sorted = plans.filter(({ sql, details }) =>
    sql.includes("LIMIT") && !LIST.test(sql) && details.some((detail) => /USE TEMP B-TREE/.test(detail))
  );

  assert.ok(plans.length > 30, `${plans.length} statements`);
  assert.deepEqual(scans, []);
  assert.deepEqual(sorted, []);
  await store.close();
  driver.database.close();
});
