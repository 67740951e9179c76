import assert from "node:assert/strict";
import { type Flow, type KnownJob, PLAIN_FLOW, type Rate } from "../../../src/model/flow.ts";
import type { Store } from "../../../src/store/store.ts";
import type { ClaimRequest } from "../../../src/store/claim.ts";
import type { NewRun } from "../../../src/store/new_run.ts";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { CountingDriver } from "../../support/stores/counting_driver.ts";
import { FakeHost } from "../../support/fake_host.ts";
import { aClaimRequest, aKnownJob, aPause, aRun } from "../../support/fixtures.ts";
import { getRun, getRuns } from "../../../src/store/reads.ts";

async function anOpen(): Promise<{ store: SqliteStore; driver: CountingDriver; host: FakeHost }> {
  const driver = new CountingDriver();
  const host = new FakeHost();
  const store = await SqliteStore.from(driver, { host });
  await store.migrate();
  return { store, driver, host };
}

function flow(overrides: Partial<Flow>): Flow {
  return { ...PLAIN_FLOW, ...overrides };
}

const RATE = { limit: 1, period: 1_000 };
const LIMITED: KnownJob[] = [
  aKnownJob({ name: "full", concurrency: 1 }),
  aKnownJob({ name: "rated", rate: RATE }),
  aKnownJob({ name: "keyed" }),
  aKnownJob({ name: "paused" }),
];

let claimNo = 0;
function aClaim(overrides: Partial<ClaimRequest> = {}): ClaimRequest {
  return { ...aClaimRequest({ claimId: `claim-${claimNo++}`, limit: 4, leaseMs: 1e9 }), jobs: LIMITED, ...overrides };
}

/** What cannot be claimed: runs behind a full key, a rated key, a full job, a used up rate, delays and a pause. */
function backlog(count: number): NewRun[] {
  return Array.from({ length: count }, (_, n) => [
    aRun({ jobName: "keyed", concurrencyKey: "busy" }),
    aRun({ jobName: "keyed", concurrencyKey: "busy", flow: flow({ priority: n % 3, keyConcurrency: 1 + n % 2 }) }),
    aRun({ jobName: "keyed", concurrencyKey: "rated", flow: flow({ keyConcurrency: 2, keyRate: RATE }) }),
    aRun({ jobName: "full", flow: flow({ priority: n % 3 }) }),
    aRun({ jobName: "full", flow: flow({ fairnessKey: `tenant-${n % 10}` }) }),
    aRun({ jobName: "full" }),
    aRun({ jobName: "rated" }),
    aRun({ jobName: "rated", flow: flow({ fairnessKey: `tenant-${n % 10}`, finishWithin: 1e6 }) }),
    aRun({ jobName: "keyed", flow: flow({ start: { afterMs: 1e6 }, startWithin: 1e6 }) }),
    aRun({ jobName: "paused" }),
  ]).flat();
}

async function startHolders(store: Store): Promise<void> {
  await store.pauseJob("paused", { by: null, note: null });
  await store.enqueue([
    aRun({ jobName: "keyed", concurrencyKey: "busy" }),
    aRun({ jobName: "keyed", concurrencyKey: "rated", flow: flow({ keyConcurrency: 2, keyRate: RATE }) }),
    aRun({ jobName: "full" }),
    aRun({ jobName: "rated" }),
  ]);
  const { claims } = await store.claim(aClaim());
  assert.equal(claims.length, 4);
}

Deno.test("SqliteStore claims at the same cost, however many runs wait for keys, limits, rates and their starts", async () => {
  const costs = [];
  for (const count of [20, 400]) {
    const { store, driver } = await anOpen();
    await startHolders(store);
    await store.enqueue(backlog(count));
    await store.claim(aClaim());

    [driver.executed, driver.rows] = [0, 0];
    const idle = await store.claim(aClaim());
    const nothing = [driver.executed, driver.rows];
    await store.enqueue([aRun({ jobName: "keyed" }), aRun({ jobName: "keyed", flow: flow({ fairnessKey: "late" }) })]);
    [driver.executed, driver.rows] = [0, 0];
    const { claims } = await store.claim(aClaim());
    const two = [driver.executed, driver.rows];
    [driver.executed, driver.rows] = [0, 0];
    for (const { lease } of claims) await store.finish(lease, { status: "completed", output: null, durationMs: 0 }, []);

    assert.deepEqual([idle.claims.length, claims.length], [0, 2]);
    costs.push({ nothing, two, ends: [driver.executed, driver.rows] });
    await store.close();
    driver.database.close();
  }

  assert.deepEqual(costs[1], costs[0]);
});

Deno.test("SqliteStore claims at the same cost, however many runs of a fairness key are behind another job's run in a key", async () => {
  const costs = [];
  for (const count of [20, 400]) {
    const { store, driver } = await anOpen();
    await store.claim(aClaimRequest({ workerId: "other", jobNames: ["foreign"], limit: 0, leaseMs: 1e9 }));
    await store.enqueue([aRun({ jobName: "foreign", concurrencyKey: "shared" })]);
    const shared = { jobName: "keyed", concurrencyKey: "shared" };
    await store.enqueue(
      Array.from(
        { length: count },
        (_, n) => aRun({ ...shared, flow: flow({ fairnessKey: `tenant-${n % 3}`, keyConcurrency: 1 + n % 2 }) }),
      ),
    );
    await store.claim(aClaim());
    const fair = (n: number) => aRun({ jobName: "keyed", flow: flow({ fairnessKey: `tenant-${n}` }) });
    await store.enqueue([fair(0), fair(1)]);

    [driver.executed, driver.rows] = [0, 0];
    const { claims } = await store.claim(aClaim());

    assert.equal(claims.length, 2);
    costs.push([driver.executed, driver.rows]);
    await store.close();
    driver.database.close();
  }

  assert.deepEqual(costs[1], costs[0]);
});

Deno.test("SqliteStore takes no lock while keys, limits, rates, starts and pauses hold up all that there is", async () => {
  const { store, driver, host } = await anOpen();
  await startHolders(store);
  await store.enqueue(backlog(5));
  await store.claim(aClaim());
  const { claims: [claim] } = await store.claim(
    aClaim({ workerId: "other", jobs: [{ ...LIMITED[0]!, concurrency: 2 }] }),
  );
  await store.cancel(claim!.run.id, "request", null); // it keeps its place until its lease would have expired
  await store.claim(aClaim());
  const before = driver.writes;

  const next = [];
  for (let i = 0; i < 9; i++) {
    host.advance(100);
    next.push((await store.claim(aClaim())).nextTimerAt);
  }

  assert.equal(driver.writes, before);
  assert.deepEqual(new Set(next), new Set([host.now() + 100]), "the rates open a period after their starts");
  host.advance(100);
  const { claims } = await store.claim(aClaim());
  assert.deepEqual(claims.map(({ run }) => run.jobName).sort(), ["keyed", "rated"]);
  await store.close();
  driver.database.close();
});

Deno.test("SqliteStore finds runs with flow by an index, and sorts no long list", async () => {
  const { store, driver, host } = await anOpen();
  await startHolders(store);
  await store.enqueue(backlog(3));
  const key = { jobName: "keyed", concurrencyKey: "two" };
  const deadlines = flow({ keyConcurrency: 2, startWithin: 5_000, finishWithin: 5_000, fairnessKey: "a", priority: 1 });
  await store.enqueue([1, 2, 3].map(() => aRun({ ...key, coalesce: null, flow: deadlines })));
  await store.enqueue([aRun({ ...key, coalesce: "active" })]);
  const { claims } = await store.claim(aClaim());
  await store.pause(claims[0]!.lease, { pauses: [aPause()], retryAt: host.now() + 10, park: true, reports: [] });
  await store.release(claims[1]!.lease, []);
  await store.cancel(claims[1]!.run.id, "request", null);
  await store.resumeJob("paused");
  host.advance(2_000);
  await store.claim(aClaim({ workerId: "other", jobs: LIMITED.slice(0, 2) }));
  const again = await store.claim(aClaim());
  for (const { run } of again.claims) await store.cancel(run.id, `cancel ${run.id}`, null);
  host.advance(4_000);
  await store.claim(aClaim());
  host.advance(-8_000);
  await store.claim(aClaim());
  await getRuns(store, { failureKind: "timeout", completedAfter: "2020-01-01T00:00:00Z" });
  await getRun(store, again.claims[0]!.run.id);

  const plans = driver.plans(
    /^\s*(SELECT|UPDATE|DELETE|INSERT|WITH)[^]*holdfast_(runs|heads|starts|openings|ghosts|holders)/,
  );
  // Clocks are rarely set back. The fairness keys are those of the statement, and `l` is a slice of a list.
  const rare = /SET opens_at/;
  const scans = plans.filter(({ sql, details }) =>
    !rare.test(sql) &&
    details.some((detail) => /^SCAN (?!keys$|CONSTANT|\(subquery|[jl]\b|json_each|\?)/.test(detail))
  );
  const sorted = plans.filter(({ sql, details }) =>
    sql.includes("LIMIT") && details.some((detail) => /USE TEMP B-TREE FOR ORDER BY/.test(detail))
  );

  assert.ok(plans.length > 30, `${plans.length} statements`);
  assert.deepEqual(scans, []);
  assert.deepEqual(sorted, []);
  await store.close();
  driver.database.close();
});

Deno.test("SqliteStore looks for no other run when one completes that is no retry", async () => {
  const { store, driver } = await anOpen();
  const complete = async (run: NewRun) => {
    await store.enqueue([run]);
    const { claims: [claim] } = await store.claim(aClaim());
    driver.statements.clear();
    const before = driver.executed;
    await store.finish(claim!.lease, { status: "completed", output: null, durationMs: 0 }, []);
    return {
      runId: claim!.run.id,
      executed: driver.executed - before,
      looks: driver.plans(/completed_as = \?/).length,
    };
  };
  const first = await complete(aRun({ jobName: "keyed" }));
  const plain = await complete(aRun({ jobName: "keyed" }));

  const retry = await complete(aRun({ jobName: "keyed", retriggerOf: { runId: plain.runId, from: "start" } }));

  assert.deepEqual([first.looks, plain.looks, retry.looks], [0, 0, 1]);
  assert.ok(retry.executed > plain.executed);
  await store.close();
  driver.database.close();
});

Deno.test("SqliteStore joins a run that is executed without reading the runs of its job that have ended", async () => {
  const { store, driver } = await anOpen();
  await store.enqueue([aRun({ jobName: "keyed", concurrencyKey: "busy" })]);
  const { claims: [claim] } = await store.claim(aClaim());
  driver.statements.clear();

  const [joined] = await store.enqueue([aRun({ jobName: "keyed", concurrencyKey: "busy", coalesce: "active" })]);

  assert.deepEqual([joined!.disposition, joined!.run.id], ["coalesced", claim!.run.id]);
  const plans = driver.plans(/holdfast_holders/);
  assert.equal(plans.length, 1);
  assert.deepEqual(plans[0]!.details.filter((detail) => /holdfast_runs_by_job|SCAN/.test(detail)), []);
  await store.close();
  driver.database.close();
});

Deno.test("SqliteStore keeps the old starts of a job no longer than its rate is long, once it has a shorter one", async () => {
  const { store, driver, host } = await anOpen();
  const start = async (rate: Rate, count: number) => {
    await store.enqueue(Array.from({ length: count }, () => aRun({ jobName: "rated" })));
    const { claims } = await store.claim(aClaim({ limit: count, jobs: [aKnownJob({ name: "rated", rate })] }));
    assert.equal(claims.length, count);
  };
  await start({ limit: 10, period: 86_400_000 }, 10);
  host.advance(1_000);

  for (const _ of [1, 2, 3, 4, 5]) {
    await start({ limit: 2, period: 1_000 }, 2);
    host.advance(1_000);
  }

  const { kept } = driver.database.prepare("SELECT count(*) AS kept FROM holdfast_starts").get() as { kept: number };
  assert.ok(kept <= 4, `${kept} of 20 starts are kept`);
  await store.close();
  driver.database.close();
});
