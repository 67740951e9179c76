import assert from "node:assert/strict";
import { LeaseLostError } from "../../../error.ts";
import { isoTime } from "../../../values/iso_time.ts";
import { A_JOB, aClaimRequest, aPause, aRun, aStep } from "../fixtures.ts";
import { add, claimOne, park, prepare, startRun } from "../arrange.ts";
import { newCases } from "../case.ts";

const { cases, test, timed } = newCases();

/** What `Store.claim()` promises of leases that have expired. */
export const abandonmentCases = cases;

timed("claim() takes a lease away at the instant at which it expires", async ({ store, host }) => {
  const stale = await startRun(store);
  host.advance(999);
  const before = await store.claim(aClaimRequest());
  host.advance(1);

  const after = await store.claim(aClaimRequest({ workerId: "worker-b", claimId: "claim-2" }));

  assert.deepEqual(before.claims, []);
  assert.deepEqual(after.claims.map(({ lease }) => lease), [{ ...stale.lease, generation: 3, claimId: "claim-2" }]);
});

timed("claim() counts an interruption, and keeps when the run was first started", async ({ store, host }) => {
  await startRun(store);
  host.advance(5_000);

  const claim = await claimOne(store);

  assert.equal(claim.execution, 2);
  assert.equal(claim.startedAgoMs, 5_000);
});

timed("claim() takes expired leases away whatever the job", async ({ store, host }) => {
  const stale = await startRun(store);
  host.advance(1_000);

  await store.claim(aClaimRequest({ jobNames: ["export"], limit: 0 }));

  const run = await store.getRun(stale.run.id);
  assert.equal(run!.status, "pending");
  assert.equal(run!.leaseOwner, null);
  assert.equal(run!.leaseExpiresAt, null);
  assert.equal(run!.leaseGeneration, 2);
});

timed("claim() does not give a lease back that a clock set back makes last again", async ({ store, host }) => {
  const stale = await startRun(store);
  host.advance(1_000);
  await store.claim(aClaimRequest({ limit: 0 }));
  host.jump(-60_000);

  const write = store.saveStep(stale.lease, aStep(), []);

  await assert.rejects(write, LeaseLostError);
});

timed("claim() gives an interrupted run its old place", async ({ store, host }) => {
  const stale = await startRun(store);
  const { run: younger } = await add(store);
  host.advance(1_000);

  const { claims } = await store.claim(aClaimRequest());

  assert.deepEqual(claims.map(({ run }) => run.id), [stale.run.id, younger.id]);
});

timed("claim() fails a run that was abandoned too often, and says so", async ({ store, host }) => {
  const { run } = await add(store, { labels: { org: "acme" } });
  const maxAbandonments = 3;
  for (let attempt = 1; attempt <= 3; attempt++) {
    await claimOne(store, { maxAbandonments });
    host.advance(1_000);
  }

  const { claims, failed } = await store.claim(aClaimRequest({ maxAbandonments }));

  const found = await store.getRun(run.id);
  assert.deepEqual(claims, []);
  assert.deepEqual(failed, [{
    run: { id: run.id, jobName: A_JOB, labels: { org: "acme" } },
    error: found!.error!,
    failureKind: "abandoned",
  }]);
  assert.match(found!.error!, /^Abandoned 3 times in a row/);
  assert.equal(found!.status, "failed");
  const failure = { kind: "abandoned", name: "Error", message: found!.error, stack: null, cause: null };
  assert.deepEqual([found!.failure, found!.failedStepName], [failure, null]);
  assert.equal(found!.completedAt, isoTime(host.now()));
  assert.equal(found!.leaseOwner, null);
});

timed("claim() closes the waits of a run that was abandoned too often", async ({ store, host }) => {
  const { lease, run } = await startRun(store);
  await prepare(store, lease, aPause({ name: "early", deadline: { afterMs: 100 } }), aPause({ name: "open" }));
  host.advance(1_000);

  await store.claim(aClaimRequest({ maxAbandonments: 1 }));

  const waits = await store.getWaits(run.id);
  assert.deepEqual(waits.map(({ status, outcome }) => [status, outcome]), [["resolved", "timeout"], ["closed", null]]);
});

timed("claim() fails abandoned runs whatever the job", async ({ store, host }) => {
  const { run } = await startRun(store);
  host.advance(1_000);

  const { failed } = await store.claim(aClaimRequest({ jobNames: [], limit: 0, maxAbandonments: 1 }));

  assert.deepEqual(failed.map((failure) => failure.run.id), [run.id]);
});

timed("claim() counts abandonments anew once a step is recorded", async ({ store, host }) => {
  const { lease, run } = await startRun(store);
  host.advance(1_000);
  const second = await claimOne(store);
  await store.saveStep(second.lease, aStep(), []);
  host.advance(1_000);

  const { failed, claims } = await store.claim(aClaimRequest({ maxAbandonments: 2 }));

  assert.deepEqual(failed, []);
  assert.equal(claims[0]!.run.id, run.id);
  assert.equal(claims[0]!.lease.generation, lease.generation + 4);
});

timed("claim() counts abandonments anew once the run has paused", async ({ store, host }) => {
  await startRun(store);
  host.advance(1_000);
  const second = await claimOne(store);
  await park(store, second.lease, aPause({ kind: "sleep", deadline: { afterMs: 10 } }));
  host.advance(10);
  await claimOne(store);
  host.advance(1_000);

  const { failed } = await store.claim(aClaimRequest({ maxAbandonments: 2 }));

  assert.deepEqual(failed, []);
});

test("claim() counts a lease that was handed back as no abandonment", async ({ store }) => {
  const { lease } = await startRun(store);
  await store.release(lease, []);

  const { claims, failed } = await store.claim(aClaimRequest({ maxAbandonments: 1 }));

  assert.equal(claims.length, 1);
  assert.deepEqual(failed, []);
});

timed("claim() works off any number of expired leases, in several calls", async ({ store, host }) => {
  await store.enqueue(Array.from({ length: 250 }, () => aRun()));
  await store.claim(aClaimRequest({ limit: 250 }));
  host.advance(1_000);

  const failed = [];
  let hasMore = true;
  for (let calls = 0; hasMore && calls < 250; calls++) {
    const result = await store.claim(aClaimRequest({ maxAbandonments: 1 }));
    failed.push(...result.failed);
    hasMore = result.hasMore;
  }

  assert.equal(failed.length, 250);
  assert.equal((await store.getRuns({ status: "failed" })).total, 250);
});
