import assert from "node:assert/strict";
import { FAKE_START } from "../../fake_host.ts";
import { aClaimRequest, aPause, aRun, aStep } from "../fixtures.ts";
import { add, claimOne, complete, park, prepare, startRun } from "../arrange.ts";
import { newCases } from "../case.ts";

const { cases, test, timed } = newCases();

/** What a store promises of traces. */
export const traceCases = cases;

const TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-1111111111111111-01 vendor=a,other=b c";

test("claim() returns the trace of the trigger, in every execution", async ({ store }) => {
  const { lease, trace } = await startRun(store, { trace: TRACE });
  await store.release(lease, []);

  const again = await claimOne(store);

  assert.equal(trace, TRACE);
  assert.equal(again.trace, TRACE);
});

test("claim() returns no trace of a run that has none", async ({ store }) => {
  const { trace } = await startRun(store);

  assert.equal(trace, null);
});

test("getRunState() returns the trace of the trigger that made the run", async ({ store }) => {
  const { run } = await add(store, { idempotencyKey: "once", trace: TRACE });
  await add(store, { idempotencyKey: "once", trace: OTHER });

  const state = await store.getRunState(run.id);

  assert.equal(state?.trace, TRACE);
});

test("pause() keeps the trace of a child", async ({ store }) => {
  const { lease } = await startRun(store);
  const child = aRun({ jobName: "child", trace: OTHER });
  const children = { total: 1, from: 0, runs: [child] };

  await park(store, lease, aPause({ kind: "children", name: "child", children }));

  const claim = await claimOne(store, { jobNames: ["child"] });
  assert.equal(claim.trace, OTHER);
});

timed("signal() keeps the trace of the first signal for the executions after it", async ({ store, host }) => {
  const { lease } = await startRun(store);
  const review = aPause({ name: "review" });
  await park(store, lease, review);
  host.advance(30);
  await store.signal(review.id, { signalId: "s1", payload: null }, OTHER);
  await store.signal(review.id, { signalId: "s1", payload: null }, TRACE);
  host.advance(12);

  const { resumed, lease: second, leaseExpiresAt } = await claimOne(store);
  await store.release(second, []);
  const later = await claimOne(store);

  assert.deepEqual(resumed, [{
    id: review.id,
    kind: "wait",
    name: "review",
    outcome: "signal",
    suspendedAt: FAKE_START,
    resolvedAt: FAKE_START + 30,
    firstResumedAt: leaseExpiresAt - aClaimRequest().leaseMs,
    trace: OTHER,
  }]);
  assert.deepEqual(later.resumed, resumed);
});

test("claim() notes no resumption if the signal came before the run parked", async ({ store }) => {
  const { lease } = await startRun(store);
  const review = aPause({ name: "review", prepared: true });
  await prepare(store, lease, review);
  await store.signal(review.id, { signalId: "s1", payload: null }, TRACE);
  await store.release(lease, []);

  const { resumed } = await claimOne(store);

  assert.deepEqual(resumed, []);
});

test("enqueue() copies the trace of a signal to a retry from the failure, and keeps that of the retry", async ({ store }) => {
  const { lease, run: old } = await startRun(store, { trace: TRACE });
  const review = aPause({ name: "review" });
  await park(store, lease, review);
  await store.signal(review.id, { signalId: "s1", payload: null }, OTHER);
  const resumed = await claimOne(store);
  await store.saveStep(resumed.lease, aStep(), []);
  await complete(store, resumed.lease);

  await add(store, { retriggerOf: { runId: old.id, from: "failure" } });

  const { trace, resumed: [copied] } = await claimOne(store);
  assert.equal(trace, null);
  assert.equal(copied?.trace, OTHER);
});
