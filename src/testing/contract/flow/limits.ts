import assert from "node:assert/strict";
import type { Store } from "../../../store/store.ts";
import type { NewRun } from "../../../store/new_run.ts";
import { FAKE_START } from "../../fake_host.ts";
import { aClaimRequest, aFlow, aKnownJob, aPause, aRun, type ClaimOverrides } from "../fixtures.ts";
import { add, addIds, claimedIds, claimOne, complete, park, parkUntilRetry, startRun } from "../arrange.ts";
import { newCases } from "../case.ts";

const { cases, test, timed } = newCases();

/** What a store promises of keys that several runs may hold, and of the limits of jobs. */
export const limitCases = cases;

const KEY = "cust-1";

test("claim() takes as many runs of a key as they allow", async ({ store }) => {
  const [one, two, three] = await addIds(store, sharing(2), sharing(2), sharing(2));
  const { claims, hasMore } = await store.claim(aClaimRequest());

  await complete(store, claims[0]!.lease);

  assert.deepEqual([claims.map(({ run }) => run.id), hasMore], [[one, two], false]);
  assert.deepEqual(await claimedIds(store), [three]);
});

test("claim() counts the holders of a key whatever their jobs", async ({ store }) => {
  const jobNames = ["import", "export"];
  const [one, two] = await addIds(
    store,
    { ...sharing(2), jobName: "import" },
    { ...sharing(2), jobName: "export" },
    { ...sharing(2), jobName: "import" },
  );

  const first = await claimedIds(store, { jobNames });
  const then = await claimedIds(store, { jobNames });

  assert.deepEqual([first, then], [[one, two], []]);
});

test("claim() holds a run back while as many hold its key as it allows, whatever they allow", async ({ store }) => {
  const [one, two] = await addIds(store, sharing(3), sharing(3), sharing(2));

  const { claims } = await store.claim(aClaimRequest());
  await complete(store, claims[0]!.lease);
  const then = await claimedIds(store);

  assert.deepEqual(claims.map(({ run }) => run.id), [one, two]);
  assert.equal(then.length, 1);
});

test("claim() lets a run that shares its key join one that does not", async ({ store }) => {
  const [alone, sharer] = await addIds(store, sharing(1), sharing(2));

  assert.deepEqual(await claimedIds(store), [alone, sharer]);
});

test("claim() lets no run pass one that waits to have the key for itself", async ({ store }) => {
  const { lease: first } = await startRun(store, sharing(5));
  const { lease: second } = await startRun(store, sharing(5));
  const [alone] = await addIds(store, sharing(1), sharing(5), sharing(5));

  const during = await claimedIds(store);
  await complete(store, first);
  const withOne = await claimedIds(store);
  await complete(store, second);
  const { claims } = await store.claim(aClaimRequest({ limit: 1 }));

  assert.deepEqual([during, withOne], [[], []]);
  assert.deepEqual(claims.map(({ run }) => run.id), [alone]);
});

test("claim() lets a run of another job pass none that waits to have the key for itself", async ({ store }) => {
  const jobNames = ["import", "export"];
  const { lease } = await startRun(store, { ...sharing(5), jobName: "import" });
  const [alone] = await addIds(store, { ...sharing(1), jobName: "export" }, { ...sharing(5), jobName: "import" });

  const during = await claimedIds(store, { jobNames });
  await complete(store, lease);

  assert.deepEqual(during, []);
  assert.deepEqual(await claimedIds(store, { jobNames, limit: 1 }), [alone]);
});

test("claim() lets a run pass one that wants the key for itself if nobody knows its job", async ({ store }) => {
  await startRun(store, sharing(5));
  const [, sharer] = await addIds(store, { ...sharing(1), jobName: "export" }, sharing(5));

  assert.deepEqual(await claimedIds(store), [sharer]);
});

test("finish() and release() leave a key to its other holders", async ({ store }) => {
  await addIds(store, sharing(2), sharing(2), sharing(2), sharing(1));
  const { claims: [one, two] } = await store.claim(aClaimRequest());

  await complete(store, one!.lease);
  const [third] = await claimedIds(store);
  await store.release(two!.lease, []);
  const again = await claimedIds(store);

  assert.ok(third !== undefined);
  assert.deepEqual(again, [two!.run.id]);
});

test("pause() gives up one place of a key that others hold", async ({ store }) => {
  const { lease } = await startRun(store, sharing(2));
  await startRun(store, sharing(2));
  const { run: next } = await add(store, sharing(2));

  await park(store, lease, aPause());

  assert.deepEqual(await claimedIds(store), [next.id]);
});

timed("pause() keeps a place of a key over a retry delay", async ({ store, host }) => {
  const { lease } = await startRun(store, sharing(2));
  const other = await startRun(store, sharing(2));
  const { run: next } = await add(store, sharing(2));

  await parkUntilRetry(store, lease, host.now() + 500);
  const during = await claimedIds(store);
  await complete(store, other.lease);

  assert.deepEqual(during, []);
  assert.deepEqual(await claimedIds(store), [next.id]);
});

timed("claim() takes all runs that kept the key over a retry delay, and those first", async ({ store, host }) => {
  const one = await startRun(store, sharing(2));
  const two = await startRun(store, sharing(2));
  const { run: next } = await add(store, { ...sharing(2), flow: aFlow({ keyConcurrency: 3, priority: 1 }) });
  await parkUntilRetry(store, one.lease, host.now() + 500);
  await parkUntilRetry(store, two.lease, host.now() + 500);
  host.advance(500);

  assert.deepEqual(await claimedIds(store), [one.run.id, two.run.id, next.id]);
});

timed(
  "claim() takes runs that kept a key whatever they allow, so that none waits for another",
  async ({ store, host }) => {
    const alone = await startRun(store, sharing(1));
    const sharer = await startRun(store, sharing(2));
    await parkUntilRetry(store, alone.lease, host.now() + 500);
    await parkUntilRetry(store, sharer.lease, host.now() + 500);
    host.advance(500);

    assert.deepEqual(await claimedIds(store), [alone.run.id, sharer.run.id]);
  },
);

timed(
  "claim() takes a run that kept a key, though another worker's run that kept it comes first",
  async ({ store, host }) => {
    const theirs = await startRun(store, { ...sharing(2), jobName: "export" });
    const own = await startRun(store, sharing(2));
    await parkUntilRetry(store, theirs.lease, host.now() + 500);
    await parkUntilRetry(store, own.lease, host.now() + 500);
    host.advance(500);
    await store.claim(aClaimRequest({ workerId: "worker-x", jobNames: ["export"], limit: 0 }));

    assert.deepEqual(await claimedIds(store), [own.run.id]);
  },
);

test("cancel() keeps one place of a key, which release() frees", async ({ store }) => {
  const { lease } = await startRun(store, sharing(2));
  await startRun(store, sharing(2));
  const { run: next } = await add(store, sharing(2));
  await store.cancel(lease.runId, "c1", null);

  const during = await claimedIds(store);
  await store.release(lease, []);

  assert.deepEqual(during, []);
  assert.deepEqual(await claimedIds(store), [next.id]);
});

timed("claim() frees the places of cancelled runs when their leases would have expired", async ({ store, host }) => {
  const one = await startRun(store, sharing(2), { leaseMs: 300 });
  const two = await startRun(store, sharing(2), { leaseMs: 500 });
  const [next, last] = await addIds(store, sharing(2), sharing(2));
  for (const { run } of [one, two]) await store.cancel(run.id, `cancel-${run.id}`, null);
  host.advance(299);
  const before = await store.claim(aClaimRequest());
  host.advance(1);
  const then = await claimedIds(store);
  host.advance(200);

  assert.deepEqual([before.claims, before.nextTimerAt], [[], FAKE_START + 300]);
  assert.deepEqual(then, [next]);
  assert.deepEqual(await claimedIds(store), [last]);
});

test("getLeases() shows each cancelled run that still holds a key", async ({ store }) => {
  const one = await startRun(store, sharing(2));
  const two = await startRun(store, sharing(2));
  for (const { run } of [one, two]) await store.cancel(run.id, `cancel-${run.id}`, null);

  const leases = await store.getLeases();
  await store.revoke(leases);

  assert.deepEqual(leases.map(({ runId }) => runId).toSorted(), [one.run.id, two.run.id].toSorted());
  assert.deepEqual(await store.getLeases(), []);
});

test("getLeases() shows each cancelled run that still takes a place of its job", async ({ store }) => {
  await addIds(store, {}, {});
  const { claims } = await store.claim(limitedTo(1));
  await store.cancel(claims[0]!.run.id, "c1", null);

  const leases = await store.getLeases();
  const during = await claimLimited(store, 1);
  await store.revoke(leases);

  assert.deepEqual(leases.map(({ runId }) => runId), [claims[0]!.run.id]);
  assert.deepEqual(during, []);
  assert.equal((await claimLimited(store, 1)).length, 1);
});

timed("claim() takes as many runs of a job as its limit allows", async ({ store }) => {
  const [one, two, three] = await addIds(store, {}, {}, {});
  const { claims, hasMore, nextTimerAt } = await store.claim(limitedTo(2));

  await complete(store, claims[0]!.lease);

  assert.deepEqual([claims.map(({ run }) => run.id), hasMore], [[one, two], false]);
  assert.equal(nextTimerAt, FAKE_START + 1_000);
  assert.deepEqual(await claimLimited(store, 2), [three]);
});

timed("claim() has no more to do while the limit of a job is reached", async ({ store }) => {
  await addIds(store, {}, {});
  await store.claim(limitedTo(1, { leaseMs: 60_000 }));

  for (const limit of [0, 10]) {
    const { claims, hasMore, nextTimerAt } = await store.claim(limitedTo(1, { limit, workerId: "worker-b" }));
    assert.deepEqual([claims, hasMore, nextTimerAt], [[], false, FAKE_START + 60_000]);
  }
});

test("claim() counts the runs of a job over all workers, also in calls at once", async ({ store }) => {
  await addIds(store, ...Array.from({ length: 10 }, () => ({})));

  const results = await Promise.all(
    ["a", "b", "c"].map((name) => store.claim(limitedTo(3, { workerId: `worker-${name}`, limit: 2 }))),
  );

  assert.equal(results.flatMap(({ claims }) => claims).length, 3);
});

test("claim() applies the limit of the worker that claims", async ({ store }) => {
  await addIds(store, {}, {}, {}, {});
  const first = await claimLimited(store, 2);

  const smaller = await claimLimited(store, 1, { workerId: "worker-b" });
  const larger = await claimLimited(store, 3, { workerId: "worker-c" });
  const none = await claimedIds(store, { workerId: "worker-d" });

  assert.deepEqual([first, smaller, larger, none].map(({ length }) => length), [2, 0, 1, 1]);
});

test("claim() takes runs of other jobs while the limit of one is reached", async ({ store }) => {
  const [, , other] = await addIds(store, {}, {}, { jobName: "export" });
  const jobs = [aKnownJob({ concurrency: 1 }), aKnownJob({ name: "export" })];
  await store.claim(aClaimRequest({ jobs, limit: 1 }));

  assert.deepEqual(await claimedIds(store, { jobs }), [other]);
});

timed("claim() gives no place under the limit to a run that waits", async ({ store, host }) => {
  const waiting = await startRun(store);
  await park(store, waiting.lease, aPause());
  const retrying = await startRun(store);
  await parkUntilRetry(store, retrying.lease, host.now() + 500);
  const { run: next } = await add(store);

  assert.deepEqual(await claimLimited(store, 1), [next.id]);
});

test("claim() holds back a run that resumes while the limit of its job is reached", async ({ store }) => {
  const { lease, run } = await startRun(store);
  const review = aPause();
  await park(store, lease, review);
  const other = await startRun(store);
  await store.signal(review.id, { signalId: "s1", payload: null });

  const during = await claimLimited(store, 1);
  await complete(store, other.lease);

  assert.deepEqual(during, []);
  assert.deepEqual(await claimLimited(store, 1), [run.id]);
});

timed("claim() has a place again for an expired lease", async ({ store, host }) => {
  const { run } = await startRun(store);
  await add(store);
  host.advance(1_000);

  assert.deepEqual(await claimLimited(store, 1), [run.id]);
});

timed("claim() has no place for a lease that its own worker still holds", async ({ store, host }) => {
  const { lease } = await startRun(store);
  await add(store);
  host.advance(1_000);

  assert.deepEqual(await claimLimited(store, 1, { holding: [lease] }), []);
});

test("claim() counts a cancelled run under the limit until its worker releases the lease", async ({ store }) => {
  const { lease } = await startRun(store);
  const { run: next } = await add(store);
  await store.cancel(lease.runId, "c1", null);

  const during = await claimLimited(store, 1);
  await store.release(lease, []);

  assert.deepEqual(during, []);
  assert.deepEqual(await claimLimited(store, 1), [next.id]);
});

timed("claim() counts a cancelled run under the limit until its lease would have expired", async ({ store, host }) => {
  const { lease } = await startRun(store);
  const { run: next } = await add(store);
  await store.cancel(lease.runId, "c1", null);
  await store.delete(lease.runId);
  host.advance(999);
  const during = await store.claim(limitedTo(1));
  host.advance(1);

  assert.deepEqual([during.claims, during.hasMore, during.nextTimerAt], [[], false, FAKE_START + 1_000]);
  assert.deepEqual(await claimLimited(store, 1), [next.id]);
});

test("release() of an older lease leaves a cancelled run its place under the limit", async ({ store }) => {
  const { lease: old } = await startRun(store);
  await store.release(old, []);
  const { lease } = await claimOne(store);
  await store.cancel(lease.runId, "c1", null);
  await add(store);

  await store.release(old, []);

  assert.deepEqual(await claimLimited(store, 1), []);
});

timed("cancel() keeps no place under the limit for a run without a lease", async ({ store, host }) => {
  const waiting = await startRun(store);
  await park(store, waiting.lease, aPause());
  const expired = await startRun(store);
  host.advance(1_000);
  const [pending, next] = await addIds(store, {}, {});

  for (const runId of [waiting.run.id, expired.run.id, pending!]) await store.cancel(runId, `c-${runId}`, null);

  assert.deepEqual(await claimLimited(store, 1), [next]);
});

test("claim() counts a cancelled run under the limit of its own job alone", async ({ store }) => {
  const { lease } = await startRun(store, { jobName: "export" });
  const { run: next } = await add(store);
  await store.cancel(lease.runId, "c1", null);

  assert.deepEqual(await claimLimited(store, 1), [next.id]);
});

test("claim() lets a run pass one of its key that waits for the limit of its job", async ({ store }) => {
  const jobs = [aKnownJob({ name: "export", concurrency: 1 }), aKnownJob()];
  await startRun(store, { jobName: "export" });
  const [, other] = await addIds(store, { jobName: "export", concurrencyKey: KEY }, { concurrencyKey: KEY });

  assert.deepEqual(await claimedIds(store, { jobs }), [other]);
});

test("claim() takes the runs of a limited job by priority, as places become free", async ({ store }) => {
  const [low, high] = await addIds(store, {}, { flow: aFlow({ priority: 1 }) });

  const { claims } = await store.claim(limitedTo(1));
  await complete(store, claims[0]!.lease);

  assert.equal(claims[0]!.run.id, high);
  assert.deepEqual(await claimLimited(store, 1), [low]);
});

test("claim() counts no place twice when it is repeated", async ({ store }) => {
  await addIds(store, {}, {});
  const request = limitedTo(2, { limit: 1 });
  await store.claim(request);

  const { claims } = await store.claim(request);

  assert.equal(claims.length, 1);
  assert.equal((await claimLimited(store, 2)).length, 1);
});

test("claim() takes a run of a key and its job only if both have room", async ({ store }) => {
  await store.enqueue([aRun({ concurrencyKey: KEY }), aRun({ concurrencyKey: KEY }), aRun(), aRun()]);

  const { claims } = await store.claim(limitedTo(2));

  assert.deepEqual(claims.map(({ lease }) => lease.concurrencyKey), [KEY, null]);
});

test("claim() takes no run past one of another job that comes to wait for the key in the same claim", async ({ store }) => {
  const jobNames = ["import", "export", "archive"];
  const [first] = await addIds(
    store,
    { ...sharing(1), jobName: "import" },
    { ...sharing(1), jobName: "import" },
    { ...sharing(2), jobName: "export" },
    { concurrencyKey: KEY, jobName: "archive", flow: aFlow({ keyConcurrency: 2, fairnessKey: "acme" }) },
  );

  assert.deepEqual(await claimedIds(store, { jobNames }), [first]);
});

function sharing(keyConcurrency: number): Partial<NewRun> {
  return { concurrencyKey: KEY, flow: aFlow({ keyConcurrency }) };
}

function limitedTo(concurrency: number, overrides: ClaimOverrides = {}) {
  return aClaimRequest({ jobs: [aKnownJob({ concurrency })], ...overrides });
}

async function claimLimited(store: Store, concurrency: number, overrides: ClaimOverrides = {}): Promise<string[]> {
  const { claims } = await store.claim(limitedTo(concurrency, overrides));
  return claims.map(({ run }) => run.id);
}
