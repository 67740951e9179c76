import assert from "node:assert/strict";
import { LeaseLostError } from "../../../model/error.ts";
import { uuidV7 } from "../../../model/host.ts";
import { stepId } from "../../../model/step.ts";
import { isoTime } from "../../../values/iso_time.ts";
import { parseRun } from "../../../model/run.ts";
import { FAKE_START } from "../../fake_host.ts";
import { aClaimRequest, aFailure, aPause, aProgress, aStep } from "../fixtures.ts";
import {
  add,
  addCompleted,
  aRetry,
  complete,
  look,
  NO_PAUSE,
  park,
  parkUntilRetry,
  prepare,
  startRun,
} from "../arrange.ts";
import { newCases } from "../case.ts";
import { getRun, getSteps, getWaits } from "../../../store/reads.ts";

const { cases, test, timed } = newCases();

/** What `Store.cancel()` promises. */
export const cancelCases = cases;

timed("cancel() ends a pending run and answers it", async ({ store, host }) => {
  const { run } = await add(store);
  host.advance(40);

  const cancelled = await store.cancel(run.id, "c1", null);

  assert.deepEqual(parseRun(cancelled!), {
    ...run,
    status: "cancelled",
    updatedAt: isoTime(FAKE_START + 40),
    completedAt: isoTime(FAKE_START + 40),
  });
  assert.deepEqual(await getRun(store, run.id), parseRun(cancelled!));
});

test("cancel() ends a running run, whose worker can write nothing more", async ({ store }) => {
  const { lease } = await startRun(store);

  const cancelled = await store.cancel(lease.runId, "c1", null);

  assert.equal(cancelled!.status, "cancelled");
  assert.equal(cancelled!.leaseOwner, null);
  assert.equal(cancelled!.leaseExpiresAt, null);
  await assert.rejects(store.saveStep(lease, aStep(), []), LeaseLostError);
  await assert.rejects(store.pause(lease, { ...NO_PAUSE, pauses: [aPause()] }), LeaseLostError);
  await assert.rejects(complete(store, lease), LeaseLostError);
  assert.deepEqual(await getRun(store, lease.runId), parseRun(cancelled!));
});

timed("cancel() ends a run that waits, for good", async ({ store, host }) => {
  const { lease } = await startRun(store);
  await park(store, lease, aPause({ deadline: { afterMs: 500 } }));

  const cancelled = await store.cancel(lease.runId, "c1", null);

  host.advance(500);
  const { claims, nextTimerAt } = await store.claim(aClaimRequest());
  assert.deepEqual(claims, []);
  assert.equal(nextTimerAt, null);
  assert.deepEqual(await getRun(store, lease.runId), parseRun(cancelled!));
});

timed("cancel() ends a run that waits for a retry", async ({ store, host }) => {
  const { lease } = await startRun(store);
  await parkUntilRetry(store, lease, host.now() + 500);

  await store.cancel(lease.runId, "c1", null);

  host.advance(500);
  const { claims, nextTimerAt } = await store.claim(aClaimRequest());
  assert.deepEqual(claims, []);
  assert.equal(nextTimerAt, null);
});

test("cancel() ends a run that was woken and is not claimed yet", async ({ store }) => {
  const { lease } = await startRun(store);
  const review = aPause();
  await park(store, lease, review);
  await store.signal(review.id, { signalId: "s1", payload: null });

  await store.cancel(lease.runId, "c1", null);

  assert.deepEqual((await store.claim(aClaimRequest())).claims, []);
});

test("cancel() leaves a run that its worker gives back afterwards", async ({ store }) => {
  const { lease } = await startRun(store);
  const cancelled = await store.cancel(lease.runId, "c1", null);

  await store.release(lease, []);

  assert.deepEqual(await getRun(store, lease.runId), parseRun(cancelled!));
  assert.deepEqual((await store.claim(aClaimRequest())).claims, []);
});

test("cancel() answers null if there is no such run or it had ended", async ({ store }) => {
  const completed = await addCompleted(store);
  const failed = await startRun(store);
  await store.finish(failed.lease, { status: "failed", failure: aFailure(), failedStepName: null }, []);
  const cancelled = await add(store);
  await store.cancel(cancelled.run.id, "c1", null);

  for (const runId of [uuidV7(FAKE_START), completed.id, failed.run.id, cancelled.run.id]) {
    const before = await look(store, runId);

    const answer = await store.cancel(runId, "c2", { lease: failed.lease, steps: [aStep()], reports: [] });

    assert.equal(answer, null);
    assert.deepEqual(await look(store, runId), before);
  }
});

timed("cancel() answers the run again when it is repeated", async ({ store, host }) => {
  const { run } = await add(store);
  const first = await store.cancel(run.id, "c1", null);
  host.advance(10);

  const second = await store.cancel(run.id, "c1", null);

  assert.deepEqual(second, first);
});

timed("cancel() records the steps that are being executed as cancelled", async ({ store, host }) => {
  const { lease } = await startRun(store);
  host.advance(60);

  await store.cancel(lease.runId, "c1", {
    lease,
    steps: [{ name: "write", index: 3, attempts: 1, startedAgoMs: 40 }],
    reports: [],
  });

  assert.deepEqual(await getSteps(store, lease.runId), [{
    id: stepId(lease.runId, "write"),
    runId: lease.runId,
    name: "write",
    index: 3,
    status: "cancelled",
    output: null,
    error: null,
    failure: null,
    attempts: 1,
    startedAt: isoTime(FAKE_START + 20),
    completedAt: isoTime(FAKE_START + 60),
  }]);
});

test("cancel() keeps the progress that comes along", async ({ store }) => {
  const { lease } = await startRun(store);

  const cancelled = await store.cancel(lease.runId, "c1", {
    lease,
    steps: [],
    reports: [aProgress({ current: 1 })],
  });
  await store.cancel(lease.runId, "c1", {
    lease,
    steps: [],
    reports: [aProgress({ current: 2 })],
  });

  assert.deepEqual(cancelled!.progress, { current: 1 });
  assert.deepEqual((await getRun(store, lease.runId))!.progress, { current: 1 });
});

test("cancel() leaves steps that have ended", async ({ store }) => {
  const { lease } = await startRun(store);
  const failure = aFailure();
  await store.saveStep(lease, aStep({ name: "read", index: 0 }), []);
  await store.saveStep(lease, aStep({ name: "check", index: 1, result: { status: "failed", failure } }), []);
  const before = await getSteps(store, lease.runId);

  await store.cancel(lease.runId, "c1", {
    lease,
    steps: [
      { name: "read", index: 0, attempts: 1, startedAgoMs: 0 },
      { name: "check", index: 1, attempts: 2, startedAgoMs: 0 },
    ],
    reports: [],
  });

  assert.deepEqual(await getSteps(store, lease.runId), before);
});

timed("cancel() records steps between two attempts as cancelled, executing or not", async ({ store, host }) => {
  const { lease } = await startRun(store);
  await store.saveStep(lease, aRetry(100, { name: "send", index: 0 }), []);
  await store.saveStep(lease, aRetry(100, { name: "post", index: 1 }), []);
  host.advance(60);

  await store.cancel(lease.runId, "c1", {
    lease,
    steps: [{ name: "post", index: 1, attempts: 2, startedAgoMs: 10 }],
    reports: [],
  });

  const steps = await getSteps(store, lease.runId);
  assert.deepEqual(steps.map(({ name, status, startedAt, completedAt }) => [name, status, startedAt, completedAt]), [
    ["send", "cancelled", isoTime(FAKE_START), isoTime(FAKE_START + 60)],
    ["post", "cancelled", isoTime(FAKE_START), isoTime(FAKE_START + 60)],
  ]);
});

timed("cancel() cancels pending waits, after it has committed the deadlines that passed", async ({ store, host }) => {
  const { lease } = await startRun(store);
  const signalled = aPause({ name: "signalled" });
  await prepare(store, lease, signalled);
  await store.signal(signalled.id, { signalId: "s1", payload: null });
  await park(
    store,
    lease,
    aPause({ name: "late", deadline: { afterMs: 100 } }),
    aPause({ name: "open", deadline: { afterMs: 101 } }),
  );
  host.advance(100);

  await store.cancel(lease.runId, "c1", null);

  const waits = await getWaits(store, lease.runId);
  assert.deepEqual(waits.map(({ name, status, outcome, resolvedAt }) => [name, status, outcome, resolvedAt]), [
    ["signalled", "resolved", "signal", isoTime(FAKE_START)],
    ["late", "resolved", "timeout", isoTime(FAKE_START + 100)],
    ["open", "cancelled", null, null],
  ]);
});
