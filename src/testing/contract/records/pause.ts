import assert from "node:assert/strict";
import { LeaseLostError } from "../../../model/error.ts";
import { isoTime } from "../../../values/iso_time.ts";
import { FAKE_START } from "../../fake_host.ts";
import { aPause, aProgress, aStep } from "../fixtures.ts";
import { claimOne, complete, look, NO_PAUSE, park, parkUntilRetry, prepare, startRun } from "../arrange.ts";
import { newCases } from "../case.ts";
import { getRun, getWaits } from "../../../store/reads.ts";

const { cases, test, timed } = newCases();

/** What `Store.pause()` promises. */
export const pauseCases = cases;

test("pause() gives what is prepared for the job its place in the order of the records, once", async ({ store }) => {
  const { lease } = await startRun(store);
  await store.saveStep(lease, aStep({ name: "read" }), []);
  const review = aPause({ name: "review", prepared: true });

  const { pauses: [first] } = await prepare(store, lease, review);
  const { pauses: [again] } = await prepare(store, lease, { ...review, prepared: false });
  const { recordedNo } = await store.saveStep(lease, aStep({ name: "write", index: 1 }), []);

  assert.deepEqual([first!.preparedNo, again!.preparedNo, recordedNo], [2, 2, 3]);
});

timed("pause() prepares a wait and leaves the run running", async ({ store, host }) => {
  const { lease } = await startRun(store);
  const review = aPause({ name: "review", metadata: '{"who":"ann"}', deadline: { afterMs: 5_000 } });
  host.advance(10);

  const result = await prepare(store, lease, review);

  assert.deepEqual(result, {
    parked: false,
    pauses: [{
      id: review.id,
      kind: "wait",
      name: "review",
      metadata: '{"who":"ann"}',
      deadlineAt: FAKE_START + 5_010,
      createdAt: FAKE_START + 10,
      childCount: 0,
      childTotal: 0,
      child: null,
      preparedNo: null,
      resolution: null,
    }],
    created: [],
    cancelled: [],
    nextDeadlineInMs: 5_000,
  });
  assert.deepEqual(await getWaits(store, lease.runId), [{
    id: review.id,
    runId: lease.runId,
    name: "review",
    metadata: { who: "ann" },
    status: "pending",
    outcome: null,
    payload: null,
    signalId: null,
    signalledBy: null,
    createdAt: isoTime(FAKE_START + 10),
    deadlineAt: isoTime(FAKE_START + 5_010),
    suspendedAt: null,
    resolvedAt: null,
    firstResumedAt: null,
  }]);
  assert.equal((await getRun(store, lease.runId))!.status, "running");
});

timed("pause() takes a deadline as a duration, as an instant, or as never", async ({ store }) => {
  const { lease } = await startRun(store);

  const { pauses } = await prepare(
    store,
    lease,
    aPause({ name: "a", deadline: { afterMs: 300 } }),
    aPause({ name: "b", deadline: { at: FAKE_START + 700 } }),
    aPause({ name: "c", deadline: null }),
  );

  assert.deepEqual(pauses.map(({ deadlineAt }) => deadlineAt), [FAKE_START + 300, FAKE_START + 700, null]);
});

timed("pause() answers how long it is until the first deadline of what is not over", async ({ store, host }) => {
  const { lease } = await startRun(store);
  const over = aPause({ name: "over", deadline: { afterMs: 100 } });
  const first = aPause({ name: "first", deadline: { at: FAKE_START + 700 } });
  await prepare(store, lease, over, first, aPause({ name: "second", deadline: { afterMs: 900 } }));
  host.advance(250);

  const both = await prepare(store, lease, over, first);
  const neither = await prepare(store, lease, over, aPause({ name: "never", deadline: null }));

  assert.equal(both.nextDeadlineInMs, 450);
  assert.equal(neither.nextDeadlineInMs, null);
});

timed("pause() keeps the ids and deadlines of pauses that the run has already", async ({ store, host }) => {
  const { lease } = await startRun(store);
  const first = await prepare(store, lease, aPause({ deadline: { afterMs: 5_000 }, metadata: "1" }));
  host.advance(100);

  const second = await prepare(store, lease, aPause({ deadline: { afterMs: 9_000 }, metadata: "2" }));

  assert.deepEqual(second, { ...first, nextDeadlineInMs: 4_900 });
  assert.equal((await getWaits(store, lease.runId)).length, 1);
});

timed("pause() never moves a deadline, whatever happens to the run", async ({ store, host }) => {
  const { lease } = await startRun(store);
  const { pauses: [first] } = await prepare(store, lease, aPause({ deadline: { afterMs: 5_000 } }));
  host.advance(1_000);
  const again = await claimOne(store);

  const { pauses: [second] } = await park(store, again.lease, aPause({ deadline: { afterMs: 5_000 } }));

  assert.deepEqual(second, first);
});

test("pause() tells a sleep from a wait of the same name", async ({ store }) => {
  const { lease } = await startRun(store);
  const wait = aPause({ name: "night" });
  const sleep = aPause({ kind: "sleep", name: "night", deadline: { afterMs: 10 } });

  const { pauses } = await prepare(store, lease, wait, sleep);

  assert.deepEqual(pauses.map(({ id, kind }) => [id, kind]), [[wait.id, "wait"], [sleep.id, "sleep"]]);
});

test("pause() answers in the order of the request", async ({ store }) => {
  const { lease } = await startRun(store);
  await prepare(store, lease, aPause({ name: "b" }));

  const { pauses } = await prepare(store, lease, aPause({ name: "c" }), aPause({ name: "a" }), aPause({ name: "b" }));

  assert.deepEqual(pauses.map(({ name }) => name), ["c", "a", "b"]);
});

timed("pause() parks the run and gives up the lease", async ({ store, host }) => {
  const { lease } = await startRun(store);
  const review = aPause();
  host.advance(20);

  const result = await store.pause(lease, { ...NO_PAUSE, pauses: [review], park: true });

  const run = await getRun(store, lease.runId);
  assert.equal(result.parked, true);
  assert.equal(run!.status, "waiting");
  assert.equal(run!.leaseOwner, null);
  assert.equal(run!.leaseExpiresAt, null);
  assert.equal(run!.leaseGeneration, 1);
  assert.equal(run!.updatedAt, isoTime(FAKE_START + 20));
  assert.equal((await store.getWait(review.id))!.suspendedAt, isoTime(FAKE_START + 20));
});

timed("pause() leaves a parked run to nobody", async ({ store, host }) => {
  const { lease } = await startRun(store);
  await park(store, lease, aPause());
  host.advance(60_000);

  await assert.rejects(claimOne(store));
});

timed("pause() notes the first time that the run waited, and only of what it waited on", async ({ store, host }) => {
  const { lease } = await startRun(store);
  const [review, other, prepared] = [
    aPause({ name: "review" }),
    aPause({ name: "other" }),
    aPause({ name: "prepared" }),
  ];
  await prepare(store, lease, prepared);
  await park(store, lease, review, other);
  await store.signal(other.id, { signalId: "s1", payload: null });
  host.advance(50);
  const second = await claimOne(store);

  await park(store, second.lease, review);

  assert.equal((await store.getWait(review.id))!.suspendedAt, isoTime(FAKE_START));
  assert.equal((await store.getWait(prepared.id))!.suspendedAt, null);
});

test("pause() does not park when a signal has come already", async ({ store }) => {
  const { lease } = await startRun(store);
  const review = aPause({ name: "review" });
  await prepare(store, lease, review);
  await store.signal(review.id, { signalId: "s1", payload: { ok: true } });

  const { parked, pauses } = await store.pause(lease, {
    ...NO_PAUSE,
    pauses: [review, aPause({ name: "other" })],
    park: true,
  });

  assert.equal(parked, false);
  assert.deepEqual(pauses.map(({ resolution }) => resolution), [
    { outcome: "signal", payload: '{"ok":true}', signalId: "s1", recordedNo: 1 },
    null,
  ]);
  assert.equal((await getRun(store, lease.runId))!.status, "running");
  assert.deepEqual((await getWaits(store, lease.runId)).map(({ name }) => name), ["review", "other"]);
});

timed("pause() does not park when a deadline has passed, and commits it", async ({ store, host }) => {
  const { lease } = await startRun(store);
  await prepare(store, lease, aPause({ deadline: { afterMs: 100 } }));
  host.advance(100);

  const { parked, pauses } = await store.pause(lease, { ...NO_PAUSE, pauses: [aPause()], park: true });

  const [wait] = await getWaits(store, lease.runId);
  assert.equal(parked, false);
  assert.deepEqual(pauses[0]!.resolution, { outcome: "timeout", recordedNo: 1 });
  assert.equal(wait!.outcome, "timeout");
  assert.equal(wait!.resolvedAt, isoTime(FAKE_START + 100));
});

timed("pause() ends a pause at once whose deadline lies in the past", async ({ store }) => {
  const { lease } = await startRun(store);
  const late = aPause({ kind: "sleep", deadline: { at: FAKE_START - 5 } });

  const { parked, pauses } = await store.pause(lease, { ...NO_PAUSE, pauses: [late], park: true });

  assert.equal(parked, false);
  assert.equal(pauses[0]!.resolution?.outcome, "timeout");
});

timed("pause() does not park when a retry is due", async ({ store, host }) => {
  const { lease } = await startRun(store);

  const { parked } = await store.pause(lease, { ...NO_PAUSE, pauses: [aPause()], retryAt: host.now(), park: true });

  assert.equal(parked, false);
  assert.equal((await getRun(store, lease.runId))!.status, "running");
});

timed("pause() commits passed deadlines though it is not to park", async ({ store, host }) => {
  const { lease } = await startRun(store);
  const early = aPause({ name: "early", deadline: { afterMs: 100 } });
  await prepare(store, lease, early);
  host.advance(100);

  await prepare(store, lease, aPause({ name: "other" }));

  assert.equal((await store.getWait(early.id))!.outcome, "timeout");
});

test("pause() refuses to park a run on nothing", async ({ store }) => {
  const { lease } = await startRun(store);

  const parking = store.pause(lease, { ...NO_PAUSE, park: true });

  await assert.rejects(parking, TypeError);
  assert.equal((await getRun(store, lease.runId))!.status, "running");
});

timed("pause() answers the same when it is repeated after it parked", async ({ store, host }) => {
  const { lease } = await startRun(store);
  const request = { ...NO_PAUSE, pauses: [aPause({ deadline: { afterMs: 5_000 } })], park: true };
  const first = await store.pause(lease, request);
  const before = await look(store, lease.runId);
  host.advance(10);

  const second = await store.pause(lease, request);

  assert.deepEqual(second, { ...first, nextDeadlineInMs: 4_990 });
  assert.deepEqual(await look(store, lease.runId), before);
});

timed("pause() can be repeated after it parked the run until a retry", async ({ store, host }) => {
  const { lease } = await startRun(store);
  await parkUntilRetry(store, lease, host.now() + 500);

  const repeated = await store.pause(lease, { ...NO_PAUSE, retryAt: host.now() + 500, park: true });

  assert.deepEqual(repeated, { parked: true, pauses: [], created: [], cancelled: [], nextDeadlineInMs: null });
});

test("pause() can be repeated after the run was woken", async ({ store }) => {
  const { lease } = await startRun(store);
  const review = aPause();
  await park(store, lease, review);
  await store.signal(review.id, { signalId: "s1", payload: null });

  const { parked } = await store.pause(lease, { ...NO_PAUSE, pauses: [review], park: true });

  assert.equal(parked, true);
  assert.equal((await getRun(store, lease.runId))!.status, "waiting");
});

test("pause() refuses anything but the same call under the lease that it gave up", async ({ store }) => {
  const { lease } = await startRun(store);
  const review = aPause({ name: "review" });
  await park(store, lease, review);
  const before = await look(store, lease.runId);

  const preparing = prepare(store, lease, review);
  const parking = store.pause(lease, { ...NO_PAUSE, pauses: [review, aPause({ name: "other" })], park: true });

  await assert.rejects(preparing, LeaseLostError);
  await assert.rejects(parking, LeaseLostError);
  assert.deepEqual(await look(store, lease.runId), before);
});

timed("pause() refuses a former worker though the run waits for the same", async ({ store, host }) => {
  const stale = await startRun(store);
  host.advance(1_000);
  const { lease } = await claimOne(store, { workerId: "worker-b" });
  const review = aPause();
  await park(store, lease, review);

  const parking = store.pause(stale.lease, { ...NO_PAUSE, pauses: [review], park: true });

  await assert.rejects(parking, LeaseLostError);
});

timed("pause() refuses a worker whose lease has passed on, without a trace", async ({ store, host }) => {
  const { lease } = await startRun(store);
  host.advance(1_000);
  await claimOne(store, { workerId: "worker-b" });
  const before = await look(store, lease.runId);

  const pausing = store.pause(lease, {
    ...NO_PAUSE,
    pauses: [aPause()],
    park: true,
    reports: [aProgress({ current: 1 })],
  });

  await assert.rejects(pausing, LeaseLostError);
  assert.deepEqual(await look(store, lease.runId), before);
});

test("pause() refuses a repeated call once the run was claimed again", async ({ store }) => {
  const { lease } = await startRun(store);
  const review = aPause();
  await park(store, lease, review);
  await store.signal(review.id, { signalId: "s1", payload: null });
  await claimOne(store);

  const repeated = store.pause(lease, { ...NO_PAUSE, pauses: [review], park: true });

  await assert.rejects(repeated, LeaseLostError);
});

test("pause() refuses runs that have ended", async ({ store }) => {
  const ended = await startRun(store);
  await complete(store, ended.lease);
  const cancelled = await startRun(store);
  await store.cancel(cancelled.run.id, "c1", null);

  for (const { lease } of [ended, cancelled]) {
    const pausing = store.pause(lease, { ...NO_PAUSE, pauses: [aPause()], park: true });

    await assert.rejects(pausing, LeaseLostError);
    assert.deepEqual(await getWaits(store, lease.runId), []);
  }
});

test("pause() keeps the progress that comes along", async ({ store }) => {
  const { lease } = await startRun(store);

  await store.pause(lease, { ...NO_PAUSE, pauses: [aPause()], park: true, reports: [aProgress({ current: 7 })] });

  assert.deepEqual((await getRun(store, lease.runId))!.progress, { current: 7 });
});
