import assert from "node:assert/strict";
import { deadlineFailure, failureText } from "../../../model/failure.ts";
import { isoTime } from "../../../values/iso_time.ts";
import type { RunIdentity } from "../../../model/run.ts";
import { FAKE_START } from "../../fake_host.ts";
import { FactReader } from "../fact_reader.ts";
import { A_JOB, aClaimRequest, aFailure, aFlow, aPause, aRun, aStep } from "../fixtures.ts";
import { add, addIds, aRetry, claimedIds, claimOne, complete, park, parkUntilRetry, startRun } from "../arrange.ts";
import { newCases } from "../case.ts";
import { getRun, getRuns, getSteps, getWaits } from "../../../store/reads.ts";

const { cases, test, timed } = newCases();

/** What a store promises of runs with a deadline of their own. */
export const deadlineCases = cases;

const START_WITHIN = { flow: aFlow({ startWithin: 300 }) };
const FINISH_WITHIN = { flow: aFlow({ finishWithin: 800 }) };

timed("enqueue() shows by when a run has to start", async ({ store }) => {
  const { run } = await add(store, START_WITHIN);

  assert.deepEqual([run.startBy, run.finishBy], [isoTime(FAKE_START + 300), null]);
});

timed("enqueue() counts startWithin from the start of a delayed run", async ({ store }) => {
  const { run } = await add(store, { flow: aFlow({ start: { afterMs: 500 }, startWithin: 300 }) });

  assert.equal(run.startBy, isoTime(FAKE_START + 800));
});

timed("enqueue() counts startWithin from the trigger if the start has passed", async ({ store }) => {
  const { run } = await add(store, { flow: aFlow({ start: { at: FAKE_START - 60_000 }, startWithin: 300 }) });

  assert.equal(run.startBy, isoTime(FAKE_START + 300));
});

timed("enqueue() counts the deadlines of a retry from its own trigger and its own start", async ({ store, host }) => {
  const flow = aFlow({ startWithin: 300, finishWithin: 800 });
  const { lease } = await startRun(store, { flow });
  await store.saveStep(lease, aStep(), []);
  await store.finish(lease, { status: "failed", failure: aFailure(), failedStepName: null }, []);
  host.advance(5_000);

  const { run } = await add(store, { flow, retriggerOf: { runId: lease.runId, from: "failure" } });
  const { finishInMs } = await claimOne(store);

  assert.deepEqual([run.startBy, run.finishBy, finishInMs], [isoTime(FAKE_START + 5_300), null, 800]);
});

timed("claim() fails a run that has not started in time", async ({ store, host }) => {
  const { run } = await add(store, START_WITHIN);
  host.advance(299);
  const early = await store.claim(aClaimRequest({ limit: 0 }));
  host.advance(1);

  const { claims, failed } = await store.claim(aClaimRequest());

  const failure = deadlineFailure("expired", 300);
  assert.deepEqual(early.failed, []);
  assert.deepEqual(claims, []);
  assert.deepEqual(failed, [{ run: identityOf(run), error: failureText(failure), failureKind: "expired" }]);
  assert.deepEqual(await getRun(store, run.id), {
    ...run,
    status: "failed",
    failure,
    error: failureText(failure),
    failureKind: "expired",
    completedAt: isoTime(FAKE_START + 300),
    updatedAt: isoTime(FAKE_START + 300),
  });
});

timed("claim() fails a run that is late whatever its job, though it takes no run", async ({ store, host }) => {
  const { run } = await add(store, START_WITHIN);
  host.advance(300);

  const { failed } = await store.claim(aClaimRequest({ jobNames: ["export"], limit: 0 }));

  assert.deepEqual(failed.map(({ failureKind }) => failureKind), ["expired"]);
  assert.equal((await getRun(store, run.id))?.status, "failed");
});

timed("claim() fails a delayed run that has not started in time after its start", async ({ store, host }) => {
  await add(store, { flow: aFlow({ start: { afterMs: 500 }, startWithin: 300 }) });
  host.advance(799);
  const early = await store.claim(aClaimRequest({ limit: 0 }));
  host.advance(1);

  const late = await store.claim(aClaimRequest());

  assert.deepEqual(early.failed, []);
  assert.deepEqual([late.claims, late.failed.map(({ failureKind }) => failureKind)], [[], ["expired"]]);
});

timed("claim() starts none of a hundred late runs", async ({ store, host }) => {
  await store.enqueue(Array.from({ length: 100 }, () => aRun(START_WITHIN)));
  host.advance(300);

  let failed = 0;
  for (let calls = 0, hasMore = true; hasMore && calls < 100; calls++) {
    const result = await store.claim(aClaimRequest({ limit: 100 }));
    assert.deepEqual(result.claims, []);
    failed += result.failed.length;
    hasMore = result.hasMore;
  }

  assert.equal(failed, 100);
});

for (const fairnessKey of [null, "cust-1"]) {
  const which = fairnessKey === null ? "" : " of their fairness key";

  timed(`claim() takes at once what comes after many late runs${which}`, async ({ store, host }) => {
    await store.enqueue(Array.from({ length: 500 }, () => aRun({ flow: aFlow({ startWithin: 300, fairnessKey }) })));
    const { run } = await add(store, { flow: aFlow({ fairnessKey }) });
    host.advance(300);

    const { claims, failed, hasMore } = await store.claim(aClaimRequest({ limit: 1 }));

    assert.deepEqual(claims.map((claim) => claim.run.id), [run.id]);
    assert.equal(hasMore, true);
    assert.equal(failed.length < 100, true, `one claim made ${failed.length} runs fail`);
  });
}

timed("claim() lets the next run of a key have the place of one that is late", async ({ store, host }) => {
  const [, next] = await addIds(store, { ...START_WITHIN, concurrencyKey: "cust-1" }, { concurrencyKey: "cust-1" });
  host.advance(300);

  assert.deepEqual(await claimedIds(store), [next]);
});

timed("claim() never fails a run as expired that has started", async ({ store, host }) => {
  const { lease } = await startRun(store, START_WITHIN);
  await store.release(lease, []);
  host.advance(300);

  const { claims, failed } = await store.claim(aClaimRequest());

  assert.deepEqual(failed, []);
  assert.deepEqual(claims.map(({ run }) => run.id), [lease.runId]);
});

timed("claim() has the deadline for a start as a timer until the run starts", async ({ store }) => {
  await add(store, START_WITHIN);

  const before = await store.claim(aClaimRequest({ limit: 0 }));
  const { lease } = await claimOne(store);
  await store.release(lease, []);
  const after = await store.claim(aClaimRequest({ limit: 0 }));

  assert.deepEqual([before.nextTimerAt, after.nextTimerAt], [FAKE_START + 300, null]);
});

timed("claim() says how long a run has until its end", async ({ store, host }) => {
  const { run } = await add(store, FINISH_WITHIN);
  host.advance(100);
  const first = await claimOne(store);
  const shown = await getRun(store, run.id);
  host.advance(200);
  await store.release(first.lease, []);

  const again = await claimOne(store);

  assert.deepEqual([run.finishBy, first.finishInMs, again.finishInMs], [null, 800, 600]);
  assert.equal(shown?.finishBy, isoTime(FAKE_START + 900));
  assert.equal((await getRun(store, run.id))?.finishBy, shown?.finishBy);
});

timed("claim() says with a repetition how long is left", async ({ store, host }) => {
  await add(store, FINISH_WITHIN);
  const request = aClaimRequest();
  await store.claim(request);
  host.advance(300);

  const { claims } = await store.claim(request);

  assert.deepEqual(claims.map(({ finishInMs }) => finishInMs), [500]);
});

timed("claim() leaves a run under a lease to its worker, though its time is over", async ({ store, host }) => {
  const { lease } = await startRun(store, FINISH_WITHIN);
  host.advance(700);
  await store.renew([{ lease, reports: [] }], 1_000);
  host.advance(200);

  const { failed, nextTimerAt } = await store.claim(aClaimRequest());
  await complete(store, lease);

  assert.deepEqual(failed, []);
  assert.equal(nextTimerAt, FAKE_START + 1_700);
  assert.equal((await getRun(store, lease.runId))?.status, "completed");
});

timed("claim() fails a waiting run that has not ended in time, and closes its waits", async ({ store, host }) => {
  const { lease, run } = await startRun(store, FINISH_WITHIN);
  const [review, sooner] = [aPause(), aPause({ name: "sooner", deadline: { afterMs: 800 } })];
  await park(store, lease, review, sooner);
  const before = await store.claim(aClaimRequest());
  host.advance(800);

  const { claims, failed } = await store.claim(aClaimRequest());

  const failure = deadlineFailure("timeout", 800);
  assert.equal(before.nextTimerAt, FAKE_START + 800);
  assert.deepEqual(claims, []);
  assert.deepEqual(failed, [{ run, error: failureText(failure), failureKind: "timeout" }]);
  const ended = await getRun(store, run.id);
  assert.deepEqual([ended?.status, ended?.failure, ended?.failureKind], ["failed", failure, "timeout"]);
  const waits = await getWaits(store, run.id);
  assert.deepEqual(waits.map(({ status, outcome }) => [status, outcome]), [["closed", null], ["resolved", "timeout"]]);
});

timed("claim() fails a run that is pending again and has not ended in time", async ({ store, host }) => {
  const { lease } = await startRun(store, FINISH_WITHIN);
  await store.release(lease, []);
  const before = await store.claim(aClaimRequest({ limit: 0 }));
  host.advance(800);

  const { claims, failed } = await store.claim(aClaimRequest());

  assert.equal(before.nextTimerAt, FAKE_START + 800);
  assert.deepEqual([claims, failed.map(({ failureKind }) => failureKind)], [[], ["timeout"]]);
});

timed("claim() fails a run at once whose lease expires after its time is over", async ({ store, host }) => {
  const { lease } = await startRun(store, FINISH_WITHIN);
  host.advance(1_000);

  const { claims, failed } = await store.claim(aClaimRequest());

  assert.deepEqual(claims, []);
  assert.deepEqual(failed.map(({ run, failureKind }) => [run.id, failureKind]), [[lease.runId, "timeout"]]);
});

timed("claim() takes none of a hundred resumed runs whose time is over", async ({ store, host }) => {
  await store.enqueue(Array.from({ length: 100 }, () => aRun(FINISH_WITHIN)));
  const { claims } = await store.claim(aClaimRequest({ limit: 100 }));
  for (const { lease } of claims) await store.release(lease, []);
  host.advance(800);

  for (let calls = 0, hasMore = true; hasMore && calls < 100; calls++) {
    const result = await store.claim(aClaimRequest({ limit: 100 }));
    assert.deepEqual(result.claims, []);
    hasMore = result.hasMore;
  }

  assert.equal((await getRuns(store, { failureKind: "timeout" })).total, 100);
});

timed("claim() keeps the deadline of a run that became due and cannot get its key", async ({ store, host }) => {
  const { lease } = await startRun(store, { ...FINISH_WITHIN, concurrencyKey: "cust-1" });
  const review = aPause();
  await park(store, lease, review);
  await startRun(store, { concurrencyKey: "cust-1" }, { leaseMs: 60_000 });
  await store.signal(review.id, { signalId: "s1", payload: null });
  const before = await store.claim(aClaimRequest());
  host.advance(800);

  const { failed } = await store.claim(aClaimRequest());

  assert.equal(before.nextTimerAt, FAKE_START + 800);
  assert.deepEqual(failed.map(({ run }) => run.id), [lease.runId]);
});

timed("claim() releases the key of a run whose time is over during a retry delay", async ({ store, host }) => {
  const { lease } = await startRun(store, { ...FINISH_WITHIN, concurrencyKey: "cust-1" });
  await store.saveStep(lease, aRetry(5_000), []);
  await parkUntilRetry(store, lease, FAKE_START + 5_000);
  const { run: next } = await add(store, { concurrencyKey: "cust-1" });
  host.advance(800);

  assert.deepEqual(await claimedIds(store), [next.id]);
  assert.deepEqual((await getSteps(store, lease.runId)).map(({ status }) => status), ["failed"]);
});

timed(
  "claim() fails a run that was abandoned too often as abandoned, though its time is over",
  async ({ store, host }) => {
    await startRun(store, FINISH_WITHIN);
    host.advance(1_000);

    const { failed } = await store.claim(aClaimRequest({ maxAbandonments: 1 }));

    assert.deepEqual(failed.map(({ failureKind }) => failureKind), ["abandoned"]);
  },
);

timed("claim() fails runs that are late though their job is paused", async ({ store, host }) => {
  await add(store, START_WITHIN);
  await store.pauseJob(A_JOB, { by: null, note: null });
  host.advance(300);

  const { failed } = await store.claim(aClaimRequest());

  assert.deepEqual(failed.map(({ failureKind }) => failureKind), ["expired"]);
});

timed("claim() fails a late run only once", async ({ store, host }) => {
  await add(store, START_WITHIN);
  host.advance(300);
  const request = aClaimRequest();

  const first = await store.claim(request);
  const repeated = await store.claim(request);
  const next = await store.claim(aClaimRequest());

  assert.deepEqual([first, repeated, next].map(({ failed }) => failed.length), [1, 0, 0]);
  assert.equal(next.nextTimerAt, null);
});

timed("claim() appends the fact that a late run has failed", async ({ store, host }) => {
  const { run } = await add(store, START_WITHIN);
  const facts = new FactReader(store);
  await facts.skip();
  host.advance(300);

  await store.claim(aClaimRequest());

  assert.deepEqual(await facts.read(), [[run.id, "failed", "expired"]]);
});

test("finish() appends the fact that a run failed with its kind, unless its function threw", async ({ store }) => {
  const [late, failed] = [await startRun(store), await startRun(store)];
  const facts = new FactReader(store);
  await facts.skip();

  for (const [{ lease }, failure] of [[late, deadlineFailure("timeout", 5)], [failed, aFailure()]] as const) {
    await store.finish(lease, { status: "failed", failure, failedStepName: null }, []);
  }

  assert.deepEqual(await facts.read(), [[late.lease.runId, "failed", "timeout"], [failed.lease.runId, "failed"]]);
});

test("finish() shows the kind of a failure", async ({ store }) => {
  const { lease } = await startRun(store);
  const { run: other } = await add(store);

  await store.finish(lease, { status: "failed", failure: deadlineFailure("timeout", 5), failedStepName: null }, []);

  assert.equal((await getRun(store, lease.runId))?.failureKind, "timeout");
  assert.equal((await getRun(store, other.id))?.failureKind, null);
});

function identityOf({ id, jobName, labels }: RunIdentity): RunIdentity {
  return { id, jobName, labels };
}
