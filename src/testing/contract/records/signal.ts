import assert from "node:assert/strict";
import { ConflictError, NotFoundError, WaitExpiredError } from "../../../model/error.ts";
import { uuidV7 } from "../../../model/host.ts";
import type { Json } from "../../../values/json.ts";
import type { Store } from "../../../store/store.ts";
import type { NewPause } from "../../../store/pause_request.ts";
import { isoTime } from "../../../values/iso_time.ts";
import { FAKE_START } from "../../fake_host.ts";
import { A_JOB, aClaimRequest, aPause } from "../fixtures.ts";
import { claimOne, complete, look, park, prepare, startRun } from "../arrange.ts";
import { newCases } from "../case.ts";
import { getRun } from "../../../store/reads.ts";

const { cases, test, timed } = newCases();

/** What `Store.signal()` promises. */
export const signalCases = cases;

timed("signal() ends a wait and answers its receipt", async ({ store, host }) => {
  const { lease } = await startRun(store, { labels: { org: "acme" } });
  const review = aPause({ name: "review", deadline: { afterMs: 5_000 } });
  await park(store, lease, review);
  host.advance(30);

  const outcome = await store.signal(review.id, { signalId: "s1", payload: { ok: true } });

  assert.deepEqual(outcome, {
    wait: {
      id: review.id,
      runId: lease.runId,
      name: "review",
      metadata: null,
      status: "resolved",
      outcome: "signal",
      payload: { ok: true },
      signalId: "s1",
      signalledBy: null,
      createdAt: isoTime(FAKE_START),
      deadlineAt: isoTime(FAKE_START + 5_000),
      suspendedAt: isoTime(FAKE_START),
      resolvedAt: isoTime(FAKE_START + 30),
      firstResumedAt: null,
    },
    disposition: "accepted",
    run: { id: lease.runId, jobName: A_JOB, labels: { org: "acme" } },
  });
  assert.deepEqual(await store.getWait(review.id), outcome.wait);
});

test("signal() leaves the run waiting until it is claimed", async ({ store }) => {
  const { runId, review } = await waitForReview(store);

  await store.signal(review.id, { signalId: "s1", payload: null });

  const before = (await getRun(store, runId))!.status;
  const { run, execution } = await claimOne(store);
  assert.equal(before, "waiting");
  assert.equal(run.id, runId);
  assert.equal(execution, 1);
});

for (const payload of [null, false, 0, "", "a\0b\ud800", [], {}, { deep: [{ er: null }] }] as Json[]) {
  test(`signal() hands on the payload ${JSON.stringify(payload)}`, async ({ store }) => {
    const { review } = await waitForReview(store);

    const { wait } = await store.signal(review.id, { signalId: "s1", payload });

    const { pauses } = await claimOne(store);
    const { resolution } = pauses[0]!;
    assert.deepEqual(wait.payload, payload);
    assert.ok(resolution?.outcome === "signal");
    assert.deepEqual(JSON.parse(resolution.payload), payload);
  });
}

timed("signal() is kept when it comes before the run pauses", async ({ store, host }) => {
  const { lease } = await startRun(store);
  const review = aPause();
  await prepare(store, lease, review);

  const { wait } = await store.signal(review.id, { signalId: "s1", payload: 1 });

  host.advance(1_000);
  const { pauses } = await claimOne(store);
  const later = await store.getWait(review.id);
  assert.equal(wait.suspendedAt, null);
  assert.equal(pauses[0]!.resolution?.outcome, "signal");
  assert.deepEqual(later, wait);
});

timed("signal() is no change of a run that can be claimed already", async ({ store, host }) => {
  const { lease } = await startRun(store);
  const review = aPause();
  await prepare(store, lease, review);
  await store.release(lease, []);
  const before = await getRun(store, lease.runId);
  host.advance(10);

  await store.signal(review.id, { signalId: "s1", payload: null });

  assert.equal(before!.status, "pending");
  assert.deepEqual(await getRun(store, lease.runId), before);
});

test("signal() does not wake a run that waits for something else", async ({ store }) => {
  const { lease } = await startRun(store);
  const prepared = aPause({ name: "prepared" });
  await prepare(store, lease, prepared);
  await park(store, lease, aPause({ name: "review" }));

  await store.signal(prepared.id, { signalId: "s1", payload: null });

  assert.deepEqual((await store.claim(aClaimRequest())).claims, []);
});

test("signal() takes its place among what was recorded", async ({ store }) => {
  const { lease } = await startRun(store);
  const [first, second] = [aPause({ name: "first" }), aPause({ name: "second" })];
  await park(store, lease, first, second);
  await store.signal(second.id, { signalId: "s1", payload: null });

  await store.signal(first.id, { signalId: "s1", payload: null });

  const { pauses } = await claimOne(store);
  assert.deepEqual(pauses.map(({ name, resolution }) => [name, resolution?.recordedNo]), [["first", 2], ["second", 1]]);
});

timed("signal() answers a repeated signal with the same receipt", async ({ store, host }) => {
  const { review } = await waitForReview(store);
  const first = await store.signal(review.id, { signalId: "s1", payload: { a: 1, b: [2] } });
  host.advance(10);

  const second = await store.signal(review.id, { signalId: "s1", payload: { b: [2], a: 1 } });

  assert.deepEqual(second, { ...first, disposition: "duplicate" });
});

timed("signal() answers the receipt as it was though the run has gone on and ended", async ({ store, host }) => {
  const { review } = await waitForReview(store, { deadline: { afterMs: 5_000 } });
  const first = await store.signal(review.id, { signalId: "s1", payload: 1 });
  host.advance(10_000);
  const { lease } = await claimOne(store);
  const resumed = await store.signal(review.id, { signalId: "s1", payload: 1 });
  await complete(store, lease);

  const ended = await store.signal(review.id, { signalId: "s1", payload: 1 });

  assert.deepEqual(resumed, { ...first, disposition: "duplicate" });
  assert.deepEqual(ended, { ...first, disposition: "duplicate" });
  assert.notEqual((await store.getWait(review.id))!.firstResumedAt, null);
});

test("signal() answers the receipt as it was though the run was cancelled", async ({ store }) => {
  const { runId, review } = await waitForReview(store);
  const first = await store.signal(review.id, { signalId: "s1", payload: 1 });
  await store.cancel(runId, "c1", null);

  const second = await store.signal(review.id, { signalId: "s1", payload: 1 });

  assert.deepEqual(second, { ...first, disposition: "duplicate" });
});

test("signal() refuses another signal, and another payload under the same id", async ({ store }) => {
  const { runId, review } = await waitForReview(store);
  await store.signal(review.id, { signalId: "s1", payload: 1 });
  const before = await look(store, runId);

  const other = store.signal(review.id, { signalId: "s2", payload: 1 });
  const changed = store.signal(review.id, { signalId: "s1", payload: 2 });

  await assert.rejects(other, ConflictError);
  await assert.rejects(changed, ConflictError);
  assert.deepEqual(await look(store, runId), before);
});

timed("signal() refuses another signal as a conflict though the deadline has passed since", async ({ store, host }) => {
  const { review } = await waitForReview(store, { deadline: { afterMs: 100 } });
  await store.signal(review.id, { signalId: "s1", payload: 1 });
  host.advance(100);

  const late = store.signal(review.id, { signalId: "s2", payload: 1 });

  await assert.rejects(late, ConflictError);
});

timed("signal() counts strictly before the deadline", async ({ store, host }) => {
  const { lease } = await startRun(store);
  const inTime = aPause({ name: "in time", deadline: { afterMs: 100 } });
  const late = aPause({ name: "late", deadline: { afterMs: 99 } });
  await park(store, lease, inTime, late);
  host.advance(99);

  const accepted = await store.signal(inTime.id, { signalId: "s1", payload: null });
  const refused = store.signal(late.id, { signalId: "s1", payload: null });

  assert.equal(accepted.disposition, "accepted");
  await assert.rejects(refused, WaitExpiredError);
});

timed("signal() commits the deadline that it finds passed", async ({ store, host }) => {
  const { review } = await waitForReview(store, { deadline: { afterMs: 100 } });
  host.advance(5_000);

  await assert.rejects(store.signal(review.id, { signalId: "s1", payload: null }), WaitExpiredError);

  const wait = await store.getWait(review.id);
  assert.equal(wait!.status, "resolved");
  assert.equal(wait!.outcome, "timeout");
  assert.equal(wait!.resolvedAt, isoTime(FAKE_START + 100));
  assert.equal(wait!.signalId, null);
});

timed("signal() answers ever after that a wait has expired, though the clock is set back", async ({ store, host }) => {
  const { review } = await waitForReview(store, { deadline: { afterMs: 100 } });
  host.advance(100);
  await assert.rejects(store.signal(review.id, { signalId: "s1", payload: null }), WaitExpiredError);
  host.jump(-60_000);

  const again = store.signal(review.id, { signalId: "s1", payload: null });

  await assert.rejects(again, WaitExpiredError);
});

timed("signal() wakes the run by the deadline that it finds passed", async ({ store, host }) => {
  const { runId, review } = await waitForReview(store, { deadline: { afterMs: 100 } });
  host.advance(100);
  await assert.rejects(store.signal(review.id, { signalId: "s1", payload: null }), WaitExpiredError);
  host.jump(-60_000);

  const { run } = await claimOne(store);

  assert.equal(run.id, runId);
});

timed("signal() answers that a wait has expired though its run has ended since", async ({ store, host }) => {
  const { review } = await waitForReview(store, { deadline: { afterMs: 100 } });
  host.advance(100);
  const { lease } = await claimOne(store);
  await complete(store, lease);

  const late = store.signal(review.id, { signalId: "s1", payload: null });

  await assert.rejects(late, WaitExpiredError);
});

test("signal() refuses a wait that was cancelled with its run", async ({ store }) => {
  const { runId, review } = await waitForReview(store);
  await store.cancel(runId, "c1", null);
  const before = await look(store, runId);

  const signal = store.signal(review.id, { signalId: "s1", payload: null });

  await assert.rejects(signal, ConflictError);
  assert.deepEqual(await look(store, runId), before);
});

test("signal() refuses a wait that was closed when its run ended", async ({ store }) => {
  const { lease } = await startRun(store);
  const review = aPause();
  await prepare(store, lease, review);
  await complete(store, lease);

  const signal = store.signal(review.id, { signalId: "s1", payload: null });

  await assert.rejects(signal, ConflictError);
  assert.equal((await store.getWait(review.id))!.status, "closed");
});

timed("signal() finds no wait that is unknown, was deleted, or is a sleep", async ({ store }) => {
  const { lease } = await startRun(store);
  const nap = aPause({ kind: "sleep", deadline: { afterMs: 100 } });
  await park(store, lease, nap);
  const deleted = await startRun(store);
  const gone = aPause();
  await prepare(store, deleted.lease, gone);
  await complete(store, deleted.lease);
  await store.delete(deleted.run.id);

  for (const id of [uuidV7(FAKE_START), gone.id, nap.id]) {
    const signal = store.signal(id, { signalId: "s1", payload: null });

    await assert.rejects(signal, NotFoundError);
  }
});

test("signal() accepts one of many that come at once", async ({ store }) => {
  const { review } = await waitForReview(store);

  const outcomes = await Promise.allSettled(
    Array.from({ length: 20 }, (_, i) => store.signal(review.id, { signalId: `s${i}`, payload: i })),
  );

  const accepted = outcomes.filter(({ status }) => status === "fulfilled");
  assert.equal(accepted.length, 1);
  assert.ok(outcomes.every((outcome) => outcome.status === "fulfilled" || outcome.reason instanceof ConflictError));
});

/** Starts a run and parks it on one wait. */
async function waitForReview(
  store: Store,
  overrides: Partial<NewPause> = {},
): Promise<{ runId: string; review: NewPause }> {
  const { lease } = await startRun(store);
  const review = aPause({ name: "review", ...overrides });
  await park(store, lease, review);
  return { runId: lease.runId, review };
}
