import assert from "node:assert/strict";
import { LeaseLostError } from "../../../model/error.ts";
import { uuidV7 } from "../../../model/host.ts";
import { stepId } from "../../../model/step.ts";
import { isoTime } from "../../../values/iso_time.ts";
import { FAKE_START } from "../../fake_host.ts";
import { aFailure, aPause, aProgress, aStep } from "../fixtures.ts";
import { aRetry, claimOne, complete, inOrder, look, park, startRun } from "../arrange.ts";
import { newCases } from "../case.ts";
import { getRun, getSteps } from "../../../store/reads.ts";

const { cases, test, timed } = newCases();

/** What `Store.saveStep()` promises. */
export const stepCases = cases;

const FAILURE = aFailure({ name: "TypeError", message: "no such file" });

timed("saveStep() records a completed step", async ({ store, host }) => {
  const { lease } = await startRun(store);
  host.advance(70);

  await store.saveStep(
    lease,
    aStep({
      name: "read",
      index: 4,
      attempts: 2,
      startedAgoMs: 75,
      result: { status: "completed", output: '{"rows":3}' },
    }),
    [],
  );

  assert.deepEqual(await getSteps(store, lease.runId), [{
    id: stepId(lease.runId, "read"),
    runId: lease.runId,
    name: "read",
    index: 4,
    status: "completed",
    output: { rows: 3 },
    error: null,
    failure: null,
    attempts: 2,
    startedAt: isoTime(FAKE_START - 5),
    completedAt: isoTime(FAKE_START + 70),
  }]);
  assert.equal((await getRun(store, lease.runId))!.updatedAt, isoTime(FAKE_START + 70));
});

test("saveStep() tells an output that is undefined from one that is null", async ({ store }) => {
  const { lease } = await startRun(store);

  await store.saveStep(lease, aStep({ name: "nothing", result: { status: "completed", output: null } }), []);
  await store.saveStep(lease, aStep({ name: "null", index: 1, result: { status: "completed", output: "null" } }), []);

  await store.release(lease, []);
  const { steps } = await claimOne(store);
  assert.deepEqual(inOrder(steps).map(({ result }) => result), [
    { status: "completed", output: null },
    { status: "completed", output: "null" },
  ]);
  assert.deepEqual((await getSteps(store, lease.runId)).map(({ output }) => output), [null, null]);
});

timed("saveStep() records a step that failed for good", async ({ store }) => {
  const { lease } = await startRun(store);

  await store.saveStep(lease, aStep({ attempts: 3, result: { status: "failed", failure: FAILURE } }), []);

  const [step] = await getSteps(store, lease.runId);
  assert.equal(step!.status, "failed");
  assert.equal(step!.error, "no such file");
  assert.deepEqual(step!.failure, FAILURE);
  assert.equal(step!.output, null);
  assert.equal(step!.attempts, 3);
  assert.equal(step!.completedAt, isoTime(FAKE_START));
});

test("saveStep() shows a step between two attempts as failed and not completed", async ({ store }) => {
  const { lease } = await startRun(store);

  await store.saveStep(lease, aRetry(500), []);

  const [step] = await getSteps(store, lease.runId);
  assert.equal(step!.status, "failed");
  assert.equal(step!.error, "not now");
  assert.equal(step!.attempts, 1);
  assert.equal(step!.completedAt, null);
});

timed("saveStep() replaces an attempt by the next one, and keeps when the first began", async ({ store, host }) => {
  const { lease } = await startRun(store);
  await store.saveStep(lease, aRetry(100, { attempts: 1 }), []);
  host.advance(100);
  await store.saveStep(lease, aRetry(200, { attempts: 2 }), []);
  host.advance(200);

  await store.saveStep(lease, aStep({ attempts: 3 }), []);

  const [step, ...others] = await getSteps(store, lease.runId);
  assert.deepEqual(others, []);
  assert.equal(step!.status, "completed");
  assert.equal(step!.error, null);
  assert.equal(step!.attempts, 3);
  assert.equal(step!.startedAt, isoTime(FAKE_START));
  assert.equal(step!.completedAt, isoTime(FAKE_START + 300));
});

timed(
  "saveStep() counts the delay of a retry by the store's clock, from its latest attempt",
  async ({ store, host }) => {
    const { lease } = await startRun(store);
    await store.saveStep(lease, aRetry(100, { attempts: 1 }), []);
    host.advance(100);
    await store.saveStep(lease, aRetry(200, { attempts: 2, startedAgoMs: 9_000 }), []);

    await store.release(lease, []);
    const { steps } = await claimOne(store);

    const failure = aFailure({ name: "TypeError", message: "not now" });
    assert.deepEqual(steps.map(({ attempts, result }) => [attempts, result]), [
      [2, { status: "retrying", failure, retry: { at: FAKE_START + 300, inMs: 200 } }],
    ]);
  },
);

test("saveStep() puts a step in the place of its latest record", async ({ store }) => {
  const { lease } = await startRun(store);
  await store.saveStep(lease, aRetry(0, { name: "slow", index: 0 }), []);
  await store.saveStep(lease, aStep({ name: "quick", index: 1 }), []);
  await store.saveStep(lease, aStep({ name: "slow", index: 0, attempts: 2 }), []);

  await store.release(lease, []);
  const { steps } = await claimOne(store);

  assert.deepEqual(inOrder(steps).map(({ name }) => name), ["quick", "slow"]);
});

timed(
  "saveStep() answers the place of the record, and when the next attempt may begin, again when it is repeated",
  async ({ store, host }) => {
    const { lease } = await startRun(store);
    const retry = aRetry(500, { name: "slow" });
    const last = aStep({ name: "quick", index: 1 });

    const first = [await store.saveStep(lease, retry, []), await store.saveStep(lease, last, [])];
    host.advance(100);
    const again = [await store.saveStep(lease, retry, []), await store.saveStep(lease, last, [])];

    const at = FAKE_START + 500;
    assert.deepEqual(first, [{ recordedNo: 1, retry: { at, inMs: 500 } }, { recordedNo: 2, retry: null }]);
    assert.deepEqual(again, [{ recordedNo: 1, retry: { at, inMs: 400 } }, { recordedNo: 2, retry: null }]);
  },
);

timed("saveStep() changes nothing when it is repeated", async ({ store }) => {
  const { lease } = await startRun(store);
  const calls = [
    aStep({ name: "a", index: 0 }),
    aStep({ name: "b", index: 1, result: { status: "failed", failure: FAILURE } }),
    aRetry(100, { name: "c", index: 2 }),
  ];
  for (const call of calls) await store.saveStep(lease, call, []);
  const before = await look(store, lease.runId);

  for (const call of calls) await store.saveStep(lease, call, []);

  assert.deepEqual(await look(store, lease.runId), before);
  await store.release(lease, []);
  const { steps } = await claimOne(store);
  assert.deepEqual(inOrder(steps).map(({ name, recordedNo }) => [name, recordedNo]), [["a", 1], ["b", 2], ["c", 3]]);
});

test("saveStep() leaves what is recorded for good", async ({ store }) => {
  const { lease } = await startRun(store);
  await store.saveStep(lease, aStep(), []);
  const before = await getSteps(store, lease.runId);

  await store.saveStep(lease, aStep({ attempts: 2, result: { status: "failed", failure: FAILURE } }), []);

  assert.deepEqual(await getSteps(store, lease.runId), before);
});

test("saveStep() keeps the progress that comes along, and the earlier one if none comes", async ({ store }) => {
  const { lease } = await startRun(store);

  await store.saveStep(lease, aStep({ name: "a" }), [aProgress({ current: 1, message: "reading" })]);
  await store.saveStep(lease, aStep({ name: "b", index: 1 }), []);

  assert.deepEqual((await getRun(store, lease.runId))!.progress, { current: 1, message: "reading" });
});

timed(
  "saveStep() keeps a step under a lease that has expired as long as nobody has taken it away",
  async ({ store, host }) => {
    const { lease } = await startRun(store);
    host.advance(5_000);

    await store.saveStep(lease, aStep(), []);

    assert.equal((await getSteps(store, lease.runId)).length, 1);
  },
);

timed("saveStep() refuses a worker whose lease has passed on, without a trace", async ({ store, host }) => {
  const stale = await startRun(store);
  host.advance(1_000);
  await claimOne(store, { workerId: "worker-b" });
  const before = await look(store, stale.run.id);

  const write = store.saveStep(stale.lease, aStep(), [aProgress({ current: 1 })]);

  await assert.rejects(write, LeaseLostError);
  assert.deepEqual(await look(store, stale.run.id), before);
});

test("saveStep() refuses even the owner of the new lease under the old one", async ({ store }) => {
  const { lease } = await startRun(store);
  await store.release(lease, []);
  await claimOne(store);

  const write = store.saveStep(lease, aStep(), []);

  await assert.rejects(write, LeaseLostError);
});

test("saveStep() refuses to write to a run that waits, has ended, was cancelled, or is unknown", async ({ store }) => {
  const waiting = await startRun(store);
  await park(store, waiting.lease, aPause());
  const ended = await startRun(store);
  await complete(store, ended.lease);
  const cancelled = await startRun(store);
  await store.cancel(cancelled.run.id, "c1", null);
  const unknown = { runId: uuidV7(FAKE_START), generation: 1, claimId: "none", recorded: 0, concurrencyKey: null };

  for (const lease of [waiting.lease, ended.lease, cancelled.lease, unknown]) {
    const before = await look(store, lease.runId);

    const write = store.saveStep(lease, aStep(), [aProgress({ current: 1 })]);

    await assert.rejects(write, LeaseLostError);
    assert.deepEqual(await look(store, lease.runId), before);
  }
});

test("getSteps() answers in the order of the index", async ({ store }) => {
  const { lease } = await startRun(store);
  for (const index of [2, 0, 10, 1]) await store.saveStep(lease, aStep({ name: `step-${index}`, index }), []);

  const steps = await getSteps(store, lease.runId);

  assert.deepEqual(steps.map(({ index }) => index), [0, 1, 2, 10]);
});

test("getSteps() answers nothing for an unknown run", async ({ store }) => {
  assert.deepEqual(await getSteps(store, uuidV7(FAKE_START)), []);
});
