import assert from "node:assert/strict";
import type { Store } from "../../../store/store.ts";
import type { NewRun } from "../../../store/new_run.ts";
import { FAKE_START } from "../../fake_host.ts";
import { A_JOB, aClaimRequest, aFailure, aKnownJob, aPause, aRun } from "../fixtures.ts";
import { add, claimOne, complete, park, parkUntilRetry, startRun } from "../arrange.ts";
import { newCases } from "../case.ts";

const { cases, test, timed } = newCases();

/** What a store promises of runs that share a concurrency key. */
export const concurrencyCases = cases;

const KEY = "cust-1";

test("claim() takes one run of a key at a time", async ({ store }) => {
  const [first] = await store.enqueue([
    aRun({ concurrencyKey: KEY }),
    aRun({ concurrencyKey: KEY }),
    aRun({ concurrencyKey: KEY }),
  ]);

  const { claims, hasMore } = await store.claim(aClaimRequest());

  assert.deepEqual(claims.map(({ run }) => run.id), [first!.run.id]);
  assert.equal(hasMore, false);
});

test("claim() takes runs of different keys, and of none, at once", async ({ store }) => {
  await store.enqueue([aRun({ concurrencyKey: "cust-1" }), aRun({ concurrencyKey: "cust-2" }), aRun(), aRun()]);

  const { claims } = await store.claim(aClaimRequest());

  assert.equal(claims.length, 4);
});

test("claim() takes one run of a key at a time whatever their jobs", async ({ store }) => {
  await store.enqueue([
    aRun({ jobName: "export", concurrencyKey: KEY }),
    aRun({ jobName: "import", concurrencyKey: KEY }),
  ]);
  await claimOne(store, { jobNames: ["import", "export"] });

  const { claims } = await store.claim(aClaimRequest({ workerId: "worker-b", jobNames: ["import", "export"] }));

  assert.deepEqual(claims, []);
});

test("claim() takes the runs of a key in the order in which they were triggered", async ({ store }) => {
  const added = await store.enqueue([1, 2, 3, 4].map(() => aRun({ concurrencyKey: KEY })));

  const taken = [];
  for (let i = 0; i < added.length; i++) {
    const { run, lease } = await claimOne(store, { limit: 10 });
    taken.push(run.id);
    await complete(store, lease);
  }

  assert.deepEqual(taken, added.map(({ run }) => run.id));
});

test("finish() releases the key", async ({ store }) => {
  const { lease, next } = await queueBehindStarted(store);

  await store.finish(lease, { status: "failed", failure: aFailure(), failedStepName: null }, []);

  assert.equal((await claimOne(store)).run.id, next.id);
});

test("release() releases the key, which the same run may take again", async ({ store }) => {
  const { lease } = await queueBehindStarted(store);

  await store.release(lease, []);

  assert.equal((await claimOne(store)).run.id, lease.runId);
});

test("release() lets another take the key if nobody knows the job of the run", async ({ store }) => {
  const { lease, next } = await queueBehindStarted(store, { jobName: "export" });
  await store.forgetWorker("worker-x");

  await store.release(lease, []);

  assert.equal((await claimOne(store)).run.id, next.id);
});

timed("claim() releases the key of an expired lease, whatever its job", async ({ store, host }) => {
  const { next } = await queueBehindStarted(store, { jobName: "export" });
  host.advance(1_000);

  const { claims } = await store.claim(aClaimRequest());

  assert.deepEqual(claims.map(({ run }) => run.id), [next.id]);
});

timed("claim() releases the key of a run that was abandoned too often", async ({ store, host }) => {
  const { next } = await queueBehindStarted(store);
  host.advance(1_000);

  const { claims } = await store.claim(aClaimRequest({ maxAbandonments: 1 }));

  assert.deepEqual(claims.map(({ run }) => run.id), [next.id]);
});

test("revoke() releases the key", async ({ store }) => {
  const { next } = await queueBehindStarted(store, { jobName: "export" });
  await store.forgetWorker("worker-x");

  await store.revoke(await store.getLeases());

  assert.equal((await claimOne(store)).run.id, next.id);
});

test("pause() gives up the key when the run waits or sleeps", async ({ store }) => {
  const { lease, next } = await queueBehindStarted(store);

  await park(store, lease, aPause(), aPause({ kind: "sleep", deadline: { afterMs: 500 } }));

  assert.equal((await claimOne(store)).run.id, next.id);
});

timed("pause() keeps the key over a retry delay", async ({ store, host }) => {
  const { lease } = await queueBehindStarted(store);

  await parkUntilRetry(store, lease, host.now() + 500);

  assert.deepEqual((await store.claim(aClaimRequest())).claims, []);
});

timed("claim() takes the run that kept the key before an older one", async ({ store, host }) => {
  const older = await startRun(store, { concurrencyKey: KEY });
  const review = aPause();
  await park(store, older.lease, review);
  const holder = await startRun(store, { concurrencyKey: KEY });
  await parkUntilRetry(store, holder.lease, host.now() + 500);
  await store.signal(review.id, { signalId: "s1", payload: null });
  host.advance(500);

  const { claims } = await store.claim(aClaimRequest());

  assert.deepEqual(claims.map(({ run }) => run.id), [holder.run.id]);
});

timed("claim() gives the key that was kept over a retry delay to the run's new lease", async ({ store, host }) => {
  const { lease, next } = await queueBehindStarted(store);
  await parkUntilRetry(store, lease, host.now() + 500);
  host.advance(500);
  const again = await claimOne(store);

  const during = await store.claim(aClaimRequest());
  await complete(store, again.lease);
  const after = await store.claim(aClaimRequest());

  assert.equal(again.run.id, lease.runId);
  assert.deepEqual(during.claims, []);
  assert.deepEqual(after.claims.map(({ run }) => run.id), [next.id]);
});

timed("release() leaves the key to a run that keeps it over a retry delay", async ({ store, host }) => {
  const { lease } = await queueBehindStarted(store);
  await parkUntilRetry(store, lease, host.now() + 500);

  await store.release(lease, []);

  assert.deepEqual((await store.claim(aClaimRequest())).claims, []);
});

test("claim() does not take a resumed run while another holds the key", async ({ store }) => {
  const { lease } = await queueBehindStarted(store);
  const review = aPause();
  await park(store, lease, review);
  const next = await claimOne(store);
  await store.signal(review.id, { signalId: "s1", payload: null });

  const during = await store.claim(aClaimRequest());
  await complete(store, next.lease);
  const after = await store.claim(aClaimRequest());

  assert.deepEqual(during.claims, []);
  assert.deepEqual(after.claims.map(({ run }) => run.id), [lease.runId]);
});

test("claim() lets a run pass an older one that waits", async ({ store }) => {
  const { lease, next } = await queueBehindStarted(store);
  await park(store, lease, aPause());

  const { claims } = await store.claim(aClaimRequest());

  assert.deepEqual(claims.map(({ run }) => run.id), [next.id]);
});

test("claim() lets a run pass an older one whose job nobody knows", async ({ store }) => {
  await add(store, { jobName: "export", concurrencyKey: KEY });
  const { run } = await add(store, { concurrencyKey: KEY });

  const { claims } = await store.claim(aClaimRequest());

  assert.deepEqual(claims.map((claim) => claim.run.id), [run.id]);
});

timed("claim() lets no run pass an older one whose job another live worker knows", async ({ store, host }) => {
  await introduce(store, "worker-x", "export");
  const { run: older } = await add(store, { jobName: "export", concurrencyKey: KEY });
  await add(store, { concurrencyKey: KEY });
  host.advance(999);

  const mine = await store.claim(aClaimRequest());
  const theirs = await store.claim(aClaimRequest({ workerId: "worker-x", jobNames: ["export"] }));

  assert.deepEqual(mine.claims, []);
  assert.equal(mine.hasMore, false);
  assert.deepEqual(theirs.claims.map(({ run }) => run.id), [older.id]);
});

const ONE = { concurrency: 1 };
const ONCE = { rate: { limit: 1, period: 60_000 } };

for (const [what, limit] of [["limit", ONE], ["rate", ONCE]] as const) {
  test(`claim() lets a run pass an older one that the ${what} of its job holds back in another worker`, async ({ store }) => {
    const others = { workerId: "worker-b", jobs: [aKnownJob({ name: "theirs", ...limit })] };
    const running = await startRun(store, { jobName: "theirs" }, others);
    const [theirs, mine] = await store.enqueue([
      aRun({ jobName: "theirs", concurrencyKey: KEY }),
      aRun({ concurrencyKey: KEY }),
    ]);

    const { claims: held } = await store.claim(aClaimRequest(others));
    const { claims } = await store.claim(aClaimRequest());

    assert.deepEqual(held, []);
    assert.deepEqual(claims.map(({ run }) => run.id), [mine!.run.id]);
    await complete(store, running.lease);
    await complete(store, claims[0]!.lease);
    const { claims: [next] } = await store.claim(aClaimRequest({ ...others, jobs: [aKnownJob({ name: "theirs" })] }));
    assert.equal(next!.run.id, theirs!.run.id);
  });

  test(`claim() lets no run pass an older one that the ${what} of its job does not hold back in every worker`, async ({ store }) => {
    const others = { workerId: "worker-b", jobs: [aKnownJob({ name: "theirs", ...limit })] };
    await startRun(store, { jobName: "theirs" }, others);
    const third = { workerId: "worker-c", jobs: [aKnownJob({ name: "theirs" })] };
    await store.claim(aClaimRequest(third));
    const [theirs] = await store.enqueue([
      aRun({ jobName: "theirs", concurrencyKey: KEY }),
      aRun({ concurrencyKey: KEY }),
    ]);

    const { claims } = await store.claim(aClaimRequest());

    assert.deepEqual(claims, []);
    assert.deepEqual((await store.claim(aClaimRequest(third))).claims.map(({ run }) => run.id), [theirs!.run.id]);
  });
}

test("claim() lets no run pass an older one that has started, although the rate of its job is used up", async ({ store }) => {
  const others = { workerId: "worker-b", jobs: [aKnownJob({ name: "theirs", ...ONCE })] };
  const { lease } = await startRun(store, { jobName: "theirs", concurrencyKey: KEY }, others);
  await store.enqueue([aRun({ concurrencyKey: KEY })]);
  await store.release(lease, []);

  const { claims } = await store.claim(aClaimRequest());

  assert.deepEqual(claims, []);
  assert.equal((await store.claim(aClaimRequest(others))).claims[0]!.run.id, lease.runId);
});

timed("claim() lets a run pass an older one whose job only a dead worker knows", async ({ store, host }) => {
  await introduce(store, "worker-x", "export");
  await add(store, { jobName: "export", concurrencyKey: KEY });
  const { run } = await add(store, { concurrencyKey: KEY });
  host.advance(1_000);

  const { claims } = await store.claim(aClaimRequest());

  assert.deepEqual(claims.map((claim) => claim.run.id), [run.id]);
});

timed("claim() takes a worker for dead that the clock shows in the future", async ({ store, host }) => {
  await introduce(store, "worker-x", "export");
  await add(store, { jobName: "export", concurrencyKey: KEY });
  const { run } = await add(store, { concurrencyKey: KEY });
  host.jump(-60_000);

  const { claims } = await store.claim(aClaimRequest());

  assert.deepEqual(claims.map((claim) => claim.run.id), [run.id]);
});

test("forgetWorker() lets runs pass older ones that only that worker knows", async ({ store }) => {
  await introduce(store, "worker-x", "export");
  await add(store, { jobName: "export", concurrencyKey: KEY });
  const { run } = await add(store, { concurrencyKey: KEY });

  await store.forgetWorker("worker-x");

  assert.equal((await claimOne(store)).run.id, run.id);
});

test("forgetWorker() is harmless for a worker that nobody knows", async ({ store }) => {
  await assert.doesNotReject(store.forgetWorker("worker-x"));
});

test("cancel() keeps the key of a leased run from others", async ({ store }) => {
  const { lease } = await queueBehindStarted(store);

  await store.cancel(lease.runId, "c1", null);

  assert.deepEqual((await store.claim(aClaimRequest())).claims, []);
});

timed("cancel() keeps the key up to the last moment of the lease", async ({ store, host }) => {
  const { lease } = await queueBehindStarted(store);
  host.advance(999);

  await store.cancel(lease.runId, "c1", null);

  assert.deepEqual((await store.claim(aClaimRequest())).claims, []);
});

timed("cancel() releases the key of a run without a lease", async ({ store, host }) => {
  const { lease, next } = await queueBehindStarted(store);
  await parkUntilRetry(store, lease, host.now() + 500);

  await store.cancel(lease.runId, "c1", null);

  assert.equal((await claimOne(store)).run.id, next.id);
});

test("cancel() of a run in line leaves the key to the others", async ({ store }) => {
  const [first, second] = await store.enqueue([aRun({ concurrencyKey: KEY }), aRun({ concurrencyKey: KEY })]);

  await store.cancel(first!.run.id, "c1", null);

  assert.equal((await claimOne(store)).run.id, second!.run.id);
});

test("release() releases the key of a cancelled run", async ({ store }) => {
  const { lease, next } = await queueBehindStarted(store);
  await store.cancel(lease.runId, "c1", null);

  await store.release(lease, []);

  assert.equal((await claimOne(store)).run.id, next.id);
});

test("release() of an older lease leaves the key to a cancelled run", async ({ store }) => {
  const { lease: old } = await queueBehindStarted(store);
  await store.release(old, []);
  const { lease } = await claimOne(store);
  await store.cancel(lease.runId, "c1", null);

  await store.release(old, []);

  assert.deepEqual((await store.claim(aClaimRequest())).claims, []);
});

timed("claim() frees the key of a cancelled run when its lease would have expired", async ({ store, host }) => {
  const { lease, next } = await queueBehindStarted(store);
  await store.cancel(lease.runId, "c1", null);
  host.advance(999);
  const before = await store.claim(aClaimRequest());
  host.advance(1);

  const after = await store.claim(aClaimRequest());

  assert.deepEqual(before.claims, []);
  assert.deepEqual(after.claims.map(({ run }) => run.id), [next.id]);
});

timed("delete() leaves the key to a worker that may still be inside a cancelled run", async ({ store, host }) => {
  const { lease, next } = await queueBehindStarted(store);
  await store.cancel(lease.runId, "c1", null);

  await store.delete(lease.runId);

  const during = await store.claim(aClaimRequest());
  host.advance(1_000);
  const after = await store.claim(aClaimRequest());
  assert.deepEqual(during.claims, []);
  assert.deepEqual(after.claims.map(({ run }) => run.id), [next.id]);
});

test("release() releases the key of a cancelled run that is deleted", async ({ store }) => {
  const { lease, next } = await queueBehindStarted(store);
  await store.cancel(lease.runId, "c1", null);
  await store.delete(lease.runId);

  await store.release(lease, []);

  assert.equal((await claimOne(store)).run.id, next.id);
});

test("revoke() releases the key of a cancelled run", async ({ store }) => {
  const { lease, next } = await queueBehindStarted(store);
  await store.cancel(lease.runId, "c1", null);

  await store.revoke(await store.getLeases());

  assert.equal((await claimOne(store)).run.id, next.id);
});

timed(
  "revoke() leaves the key of a cancelled run whose lease was renewed since it was seen",
  async ({ store, host }) => {
    const { lease } = await queueBehindStarted(store);
    const seen = await store.getLeases();
    host.advance(1);
    await store.renew([{ lease, reports: [] }], 1_000);
    await store.cancel(lease.runId, "c1", null);

    await store.revoke(seen);

    assert.deepEqual((await store.claim(aClaimRequest())).claims, []);
  },
);

timed("getLeases() shows the keys that cancelled runs still hold", async ({ store }) => {
  const { lease } = await queueBehindStarted(store);
  await store.cancel(lease.runId, "c1", null);

  const leases = await store.getLeases();

  assert.deepEqual(leases, [{ ...lease, expiresAt: FAKE_START + 1_000, leaseMs: null }]);
});

/** Starts a run of the key, and adds another one to the line. A worker of its own, `worker-x`, has the first. */
async function queueBehindStarted(store: Store, overrides: Partial<NewRun> = {}) {
  const { lease } = await startRun(store, { concurrencyKey: KEY, ...overrides }, { workerId: "worker-x" });
  const { run: next } = await add(store, { jobName: A_JOB, concurrencyKey: KEY });
  return { lease, next };
}

/** Lets a worker tell which job it knows, without giving it anything to do. */
async function introduce(store: Store, workerId: string, jobName: string): Promise<void> {
  await store.claim(aClaimRequest({ workerId, jobNames: [jobName], limit: 0 }));
}
