import assert from "node:assert/strict";
import { isoTime } from "../../../values/iso_time.ts";
import { FAKE_START } from "../../fake_host.ts";
import { FactReader } from "../fact_reader.ts";
import { aClaimRequest, aFlow, aRun } from "../fixtures.ts";
import { add, addIds, claimedIds, claimOne } from "../arrange.ts";
import { newCases } from "../case.ts";
import { getRun } from "../../../store/reads.ts";

const { cases, test, timed } = newCases();

/** What a store promises of runs with a start. */
export const delayCases = cases;

const DELAYED = { flow: aFlow({ start: { afterMs: 500 } }) };

timed("enqueue() shows a delayed run as pending, with its start", async ({ store }) => {
  const { run } = await add(store, DELAYED);

  assert.deepEqual([run.status, run.startAt, run.startedAt], ["pending", isoTime(FAKE_START + 500), null]);
  assert.deepEqual(await getRun(store, run.id), run);
});

test("enqueue() shows a start that is a date, and null for a run without one", async ({ store }) => {
  const { run } = await add(store, { flow: aFlow({ start: { at: FAKE_START + 700 } }) });
  const { run: plain } = await add(store);

  assert.equal(run.startAt, isoTime(FAKE_START + 700));
  assert.deepEqual([plain.startAt, plain.priority, plain.fairnessKey, plain.startBy], [null, 0, null, null]);
});

timed("enqueue() appends the fact that a run was triggered with its start, if it has one", async ({ store }) => {
  const { run } = await add(store, DELAYED);
  const { run: plain } = await add(store);

  const facts = await new FactReader(store).read();

  assert.deepEqual(facts, [[run.id, "triggered", FAKE_START + 500], [plain.id, "triggered"]]);
});

timed("enqueue() keeps the start of a run when it is repeated", async ({ store, host }) => {
  const request = aRun(DELAYED);
  const [first] = await store.enqueue([request]);
  host.advance(200);

  const [again] = await store.enqueue([request]);

  assert.deepEqual(again, first);
});

timed("claim() takes a delayed run at its start, and not before", async ({ store, host }) => {
  const { run } = await add(store, DELAYED);
  host.advance(499);
  const before = await store.claim(aClaimRequest());
  host.advance(1);

  const after = await claimedIds(store);

  assert.deepEqual([before.claims, before.hasMore], [[], false]);
  assert.deepEqual(after, [run.id]);
});

timed("claim() takes a delayed run with a priority at its start if it is the only run", async ({ store, host }) => {
  const { run } = await add(store, { flow: aFlow({ start: { afterMs: 500 }, priority: 2 }) });
  host.advance(500);

  assert.deepEqual(await claimedIds(store), [run.id]);
});

timed("claim() takes a run at once whose start has passed", async ({ store }) => {
  const { run } = await add(store, { flow: aFlow({ start: { at: FAKE_START - 60_000 } }) });

  assert.equal((await claimOne(store)).run.id, run.id);
});

test("claim() takes a run at once whose start is now", async ({ store }) => {
  const { run } = await add(store, { flow: aFlow({ start: { afterMs: 0 } }) });

  assert.equal((await claimOne(store)).run.id, run.id);
});

timed("claim() takes a run whose start has come by the order of the triggers", async ({ store, host }) => {
  const ids = await addIds(store, {}, DELAYED, {});
  host.advance(500);

  assert.deepEqual(await claimedIds(store), ids);
});

timed("claim() says when the next delayed run starts", async ({ store }) => {
  await add(store, { flow: aFlow({ start: { afterMs: 900 } }) });
  await add(store, DELAYED);

  const { nextTimerAt } = await store.claim(aClaimRequest());

  assert.equal(nextTimerAt, FAKE_START + 500);
});

timed("claim() has no timer for the start of a run that is due", async ({ store, host }) => {
  await add(store, DELAYED);
  host.advance(500);

  const { nextTimerAt, claims } = await store.claim(aClaimRequest({ limit: 0 }));

  assert.deepEqual([nextTimerAt, claims], [null, []]);
});

timed("claim() makes runs due whatever their job", async ({ store, host }) => {
  const { run } = await add(store, DELAYED);
  host.advance(500);

  const { nextTimerAt } = await store.claim(aClaimRequest({ jobNames: ["export"] }));

  assert.equal(nextTimerAt, null);
  assert.equal((await claimOne(store, { workerId: "worker-b" })).run.id, run.id);
});

timed("claim() finds a delayed run due though the clock was set back after its start", async ({ store, host }) => {
  const { run } = await add(store, DELAYED);
  host.advance(500);
  await store.claim(aClaimRequest({ limit: 0 }));
  host.jump(-60_000);

  assert.equal((await claimOne(store)).run.id, run.id);
});

timed("claim() takes a delayed run again at once after it was interrupted", async ({ store, host }) => {
  await add(store, DELAYED);
  host.advance(500);
  const { lease } = await claimOne(store);
  host.jump(-60_000);

  await store.release(lease, []);

  assert.equal((await claimOne(store)).run.id, lease.runId);
});

timed("claim() starts any number of delayed runs, in several calls", async ({ store, host }) => {
  await addIds(store, ...Array.from({ length: 250 }, () => DELAYED));
  host.advance(500);

  const started = new Set<string>();
  let hasMore = true;
  for (let calls = 0; hasMore && calls < 250; calls++) {
    const result = await store.claim(aClaimRequest({ limit: 40 }));
    for (const { run } of result.claims) started.add(run.id);
    hasMore = result.hasMore;
  }

  assert.equal(started.size, 250);
});

timed("claim() lets a run pass a delayed one with the same key", async ({ store, host }) => {
  const [delayed, younger, last] = await addIds(
    store,
    { ...DELAYED, concurrencyKey: "cust-1" },
    { concurrencyKey: "cust-1" },
    { concurrencyKey: "cust-1" },
  );

  const first = await claimOne(store);
  host.advance(500);
  const during = await claimedIds(store);
  await store.finish(first.lease, { status: "completed", output: null, durationMs: 0 }, []);
  const then = await claimOne(store);
  await store.finish(then.lease, { status: "completed", output: null, durationMs: 0 }, []);

  assert.equal(first.run.id, younger);
  assert.deepEqual(during, []);
  assert.equal(then.run.id, delayed); // it stands where it was triggered
  assert.equal((await claimOne(store)).run.id, last);
});

test("enqueue() never coalesces onto a delayed run", async ({ store }) => {
  const { run: delayed } = await add(store, { ...DELAYED, concurrencyKey: "cust-1" });

  const { run, disposition } = await add(store, { concurrencyKey: "cust-1", coalesce: "active" });

  assert.deepEqual([disposition, run.id === delayed.id], ["created", false]);
});

timed("enqueue() coalesces onto a delayed run once its start has passed", async ({ store, host }) => {
  const { run: delayed } = await add(store, { ...DELAYED, concurrencyKey: "cust-1" });
  host.advance(500);
  await store.claim(aClaimRequest({ limit: 0 }));

  const { run, disposition } = await add(store, { concurrencyKey: "cust-1", coalesce: "queue" });

  assert.deepEqual([run.id, disposition], [delayed.id, "coalesced"]);
});

test("enqueue() finds a delayed run by its idempotency key", async ({ store }) => {
  const { run: delayed } = await add(store, { ...DELAYED, idempotencyKey: "once" });

  const { run, disposition } = await add(store, { idempotencyKey: "once" });

  assert.deepEqual([run.id, disposition, run.startAt], [delayed.id, "idempotent", delayed.startAt]);
});

timed("cancel() ends a delayed run, which has no timer any more", async ({ store, host }) => {
  const { run } = await add(store, DELAYED);

  const cancelled = await store.cancel(run.id, "c1", null);

  assert.equal(cancelled?.status, "cancelled");
  host.advance(500);
  const { claims, nextTimerAt } = await store.claim(aClaimRequest());
  assert.deepEqual([claims, nextTimerAt], [[], null]);
});
