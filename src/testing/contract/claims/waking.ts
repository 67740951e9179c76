import assert from "node:assert/strict";
import { isoTime } from "../../../values/iso_time.ts";
import { FAKE_START } from "../../fake_host.ts";
import { aClaimRequest, aPause, aRun } from "../fixtures.ts";
import { add, claimOne, park, parkUntilRetry, prepare, startRun } from "../arrange.ts";
import { newCases } from "../case.ts";
import { getWaits } from "../../../store/reads.ts";

const { cases, test, timed } = newCases();

/** What `Store.claim()` promises of runs that wait for time to pass. */
export const wakingCases = cases;

timed("claim() wakes a run at its deadline, and not before", async ({ store, host }) => {
  const { lease, run } = await startRun(store);
  await park(store, lease, aPause({ kind: "sleep", deadline: { afterMs: 500 } }));
  host.advance(499);
  const before = await store.claim(aClaimRequest());
  host.advance(1);

  const after = await store.claim(aClaimRequest());

  assert.deepEqual(before.claims, []);
  assert.deepEqual(after.claims.map((claim) => [claim.run.id, claim.execution]), [[run.id, 1]]);
});

timed("claim() wakes a run at the first of its deadlines, and leaves the others pending", async ({ store, host }) => {
  const { lease } = await startRun(store);
  await park(
    store,
    lease,
    aPause({ name: "late", deadline: { afterMs: 900 } }),
    aPause({ name: "soon", deadline: { at: FAKE_START + 300 } }),
    aPause({ name: "never" }),
  );
  host.advance(300);

  const { pauses } = await claimOne(store);

  const resolved = pauses.filter(({ resolution }) => resolution !== null);
  assert.deepEqual(resolved.map(({ name }) => name), ["soon"]);
});

timed("claim() wakes a run whose retry is due", async ({ store, host }) => {
  const { lease, run } = await startRun(store);
  await parkUntilRetry(store, lease, FAKE_START + 200);
  host.advance(199);
  const before = await store.claim(aClaimRequest());
  host.advance(1);

  const after = await claimOne(store);

  assert.deepEqual(before.claims, []);
  assert.equal(after.run.id, run.id);
});

timed("claim() does not wake a run by a wait that it only prepared", async ({ store, host }) => {
  const { lease } = await startRun(store);
  await prepare(store, lease, aPause({ name: "other", deadline: { afterMs: 100 } }));
  await park(store, lease, aPause({ name: "review", deadline: { afterMs: 900 } }));
  host.advance(100);

  const result = await store.claim(aClaimRequest());

  assert.deepEqual(result.claims, []);
  assert.equal(result.nextTimerAt, FAKE_START + 900);
});

timed("claim() commits every deadline that passed, in the order of the deadlines", async ({ store, host }) => {
  const { lease } = await startRun(store);
  await prepare(store, lease, aPause({ name: "prepared", deadline: { afterMs: 200 } }));
  await park(
    store,
    lease,
    aPause({ name: "third", deadline: { afterMs: 300 } }),
    aPause({ name: "first", deadline: { afterMs: 100 } }),
  );
  host.advance(1_000);

  const { run, pauses } = await claimOne(store);

  const inOrder = pauses.toSorted((a, b) => a.resolution!.recordedNo - b.resolution!.recordedNo);
  assert.deepEqual(inOrder.map(({ name }) => name), ["first", "prepared", "third"]);
  const waits = await getWaits(store, run.id);
  assert.deepEqual(waits.map(({ name, outcome, resolvedAt }) => [name, outcome, resolvedAt]), [
    ["prepared", "timeout", isoTime(FAKE_START + 200)],
    ["third", "timeout", isoTime(FAKE_START + 300)],
    ["first", "timeout", isoTime(FAKE_START + 100)],
  ]);
});

timed("claim() commits the deadlines of a run that was interrupted", async ({ store, host }) => {
  const { lease } = await startRun(store);
  await prepare(store, lease, aPause({ deadline: { afterMs: 100 } }));
  host.advance(1_000);

  const { pauses } = await claimOne(store);

  assert.equal(pauses[0]!.resolution?.outcome, "timeout");
});

timed("claim() commits deadlines whatever the job", async ({ store, host }) => {
  const { lease } = await startRun(store);
  const review = aPause({ deadline: { afterMs: 100 } });
  await park(store, lease, review);
  host.advance(100);

  await store.claim(aClaimRequest({ jobNames: ["export"] }));

  assert.equal((await store.getWait(review.id))!.outcome, "timeout");
});

timed("claim() takes a resumed run by its age", async ({ store, host }) => {
  const { lease, run } = await startRun(store);
  const { run: younger } = await add(store);
  await park(store, lease, aPause({ kind: "sleep", deadline: { afterMs: 100 } }));
  host.advance(100);

  const { claims } = await store.claim(aClaimRequest());

  assert.deepEqual(claims.map((claim) => claim.run.id), [run.id, younger.id]);
});

timed("claim() finds a run awake though the clock was set back", async ({ store, host }) => {
  const { lease, run } = await startRun(store);
  await parkUntilRetry(store, lease, FAKE_START + 200);
  host.advance(200);
  await store.claim(aClaimRequest({ limit: 0 }));
  host.jump(-60_000);

  const claim = await claimOne(store);

  assert.equal(claim.run.id, run.id);
});

timed("claim() notes when a wait first resumed its run", async ({ store, host }) => {
  const { lease, run } = await startRun(store);
  const [review, other] = [aPause({ name: "review" }), aPause({ name: "other" })];
  await park(store, lease, review, other);
  await store.signal(review.id, { signalId: "s1", payload: null });
  host.advance(40);
  const second = await claimOne(store);
  await park(store, second.lease, other);
  await store.signal(other.id, { signalId: "s2", payload: null });
  host.advance(40);

  await claimOne(store);

  const waits = await getWaits(store, run.id);
  assert.deepEqual(waits.map(({ firstResumedAt }) => firstResumedAt), [
    isoTime(FAKE_START + 40),
    isoTime(FAKE_START + 80),
  ]);
});

timed("claim() works off any number of sleepers, in several calls", async ({ store, host }) => {
  await store.enqueue(Array.from({ length: 250 }, () => aRun()));
  const { claims } = await store.claim(aClaimRequest({ limit: 250 }));
  for (const { lease } of claims) {
    await park(store, lease, aPause({ kind: "sleep", deadline: { afterMs: 100 } }));
  }
  host.advance(100);

  const woken = new Set<string>();
  let hasMore = true;
  for (let calls = 0; hasMore && calls < 250; calls++) {
    const result = await store.claim(aClaimRequest({ limit: 40 }));
    for (const { run } of result.claims) woken.add(run.id);
    hasMore = result.hasMore;
  }

  assert.equal(woken.size, 250);
});

timed("claim() tells the earliest of all timers", async ({ store }) => {
  const sleeper = await startRun(store);
  await park(store, sleeper.lease, aPause({ kind: "sleep", deadline: { afterMs: 700 } }));
  const first = await store.claim(aClaimRequest());
  const waiter = await startRun(store);
  await park(store, waiter.lease, aPause({ deadline: { afterMs: 600 } }));
  const second = await store.claim(aClaimRequest());
  const retrier = await startRun(store);
  await parkUntilRetry(store, retrier.lease, FAKE_START + 500);
  const third = await store.claim(aClaimRequest());
  await startRun(store, {}, { leaseMs: 400 });
  const fourth = await store.claim(aClaimRequest());

  const timers = [first, second, third, fourth].map(({ nextTimerAt }) => nextTimerAt! - FAKE_START);

  assert.deepEqual(timers, [700, 600, 500, 400]);
});

test("claim() tells no timer of runs that are due or wait for a signal alone", async ({ store }) => {
  const interrupted = await startRun(store);
  await prepare(store, interrupted.lease, aPause({ deadline: { afterMs: 500 } }));
  const waiter = await startRun(store);
  await park(store, waiter.lease, aPause());
  const woken = await startRun(store);
  const review = aPause({ deadline: { afterMs: 500 } });
  await park(store, woken.lease, review);
  await store.signal(review.id, { signalId: "s1", payload: null });
  await store.release(interrupted.lease, []);

  const { nextTimerAt } = await store.claim(aClaimRequest({ limit: 0 }));

  assert.equal(nextTimerAt, null);
});

timed("claim() tells when the key of a cancelled run becomes free", async ({ store }) => {
  const { run } = await startRun(store, { concurrencyKey: "cust-1" });
  await store.cancel(run.id, "c1", null);

  const { nextTimerAt } = await store.claim(aClaimRequest());

  assert.equal(nextTimerAt, FAKE_START + 1_000);
});
