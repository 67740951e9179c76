import assert from "node:assert/strict";
import { getRun } from "../../../store/reads.ts";
import type { NewRun } from "../../../store/new_run.ts";
import type { Store } from "../../../store/store.ts";
import { aFailure, aRun } from "../fixtures.ts";
import { add, addCompleted, claimOne, complete, startRun } from "../arrange.ts";
import { newCases } from "../case.ts";

const { cases, test, timed } = newCases();

/** What `Store.enqueue()` promises of idempotency keys that end. */
export const idempotencyCases = cases;

type Until = NewRun["idempotencyUntil"];
const once = (idempotencyUntil?: Until) => ({
  idempotencyKey: "once",
  ...(idempotencyUntil === undefined ? {} : { idempotencyUntil }),
});

/** Adds a run with the key and fails it. */
async function addFailed(store: Store): Promise<string> {
  const { lease, run } = await startRun(store, once());
  await store.finish(lease, { status: "failed", failure: aFailure(), failedStepName: null }, []);
  return run.id;
}

for (const until of ["ended", "failed"] as const) {
  test(`enqueue() returns the run that has the key while it is open, until "${until}"`, async ({ store }) => {
    const { run } = await add(store, once(until));
    const pending = await add(store, once(until));
    await claimOne(store);
    const running = await add(store, once(until));

    assert.deepEqual([pending.run.id, pending.disposition], [run.id, "idempotent"]);
    assert.deepEqual([running.run.id, running.disposition], [run.id, "idempotent"]);
  });

  test(`enqueue() adds a run when the one that has the key has failed, until "${until}"`, async ({ store }) => {
    const failed = await addFailed(store);

    const added = await add(store, once(until));
    const again = await add(store, once());

    assert.equal(added.disposition, "created");
    assert.notEqual(added.run.id, failed);
    assert.deepEqual([again.run.id, again.disposition], [added.run.id, "idempotent"]);
  });

  test(`enqueue() adds a run when the one that has the key was cancelled, until "${until}"`, async ({ store }) => {
    const { run } = await add(store, once());
    await store.cancel(run.id, "request-1", null);

    assert.equal((await add(store, once(until))).disposition, "created");
  });

  test(`enqueue() follows the retries of the run that has the key, until "${until}"`, async ({ store }) => {
    const failed = await addFailed(store);
    const { run: second } = await add(store, { retriggerOf: { runId: failed, from: "start" } });
    const open = await add(store, once(until));
    await store.cancel(second.id, "request-1", null);
    const { run: third } = await add(store, { retriggerOf: { runId: second.id, from: "start" } });
    const newest = await add(store, once(until));

    assert.deepEqual([open.run.id, open.disposition], [second.id, "idempotent"]);
    assert.deepEqual([newest.run.id, newest.disposition], [third.id, "idempotent"]);
  });
}

test('enqueue() returns the run that has completed, until "failed", and adds one until "ended"', async ({ store }) => {
  const completed = await addCompleted(store, once());

  const kept = await add(store, once("failed"));
  const added = await add(store, once("ended"));

  assert.deepEqual([kept.run.id, kept.disposition], [completed.id, "idempotent"]);
  assert.equal(added.disposition, "created");
});

test('enqueue() returns the retry that has completed for the run that has the key, until "failed"', async ({ store }) => {
  const failed = await addFailed(store);
  const { run: retry } = await add(store, { retriggerOf: { runId: failed, from: "start" } });
  await complete(store, (await claimOne(store)).lease);

  const found = await add(store, once("failed"));
  const added = await add(store, once("ended"));

  assert.deepEqual([found.run.id, found.run.status], [retry.id, "completed"]);
  assert.equal(added.disposition, "created");
});

test('enqueue() adds no run, until "failed", for one that has completed, whatever has become of its retries', async ({ store }) => {
  const { run } = await add(store, once("failed"));
  await complete(store, (await claimOne(store)).lease);
  const { run: retry } = await add(store, { retriggerOf: { runId: run.id, from: "start" } });
  await store.cancel(retry.id, "request-1", null);

  const found = await add(store, once("failed"));

  assert.deepEqual([found.run.id, found.disposition], [retry.id, "idempotent"]);
});

test("enqueue() does not follow a retry that was deleted", async ({ store }) => {
  const failed = await addFailed(store);
  const { run: retry } = await add(store, { retriggerOf: { runId: failed, from: "start" } });
  await store.cancel(retry.id, "request-1", null);
  await store.delete(retry.id);

  assert.equal((await add(store, once("failed"))).disposition, "created");
});

test('enqueue() knows of a retry that completed and was deleted, until "failed"', async ({ store }) => {
  const failed = await addFailed(store);
  const { run: retry } = await add(store, { retriggerOf: { runId: failed, from: "start" } });
  await complete(store, (await claimOne(store)).lease);
  await store.delete(retry.id);

  const found = await add(store, once("failed"));

  assert.deepEqual([found.run.id, found.disposition], [failed, "idempotent"]);
  assert.equal((await add(store, once("ended"))).disposition, "created");
});

timed("enqueue() compares the age of the run that has the key, whatever its status", async ({ store, host }) => {
  const { run } = await add(store, once());
  host.advance(999);
  const young = await add(store, once(1_000));
  host.advance(1);
  const added = await add(store, once(1_000));

  assert.equal(young.run.id, run.id);
  assert.equal(added.disposition, "created");
  assert.equal((await getRun(store, run.id))?.status, "pending");
});

timed("enqueue() takes a run of the future for a young one: the clock was set back", async ({ store, host }) => {
  const { run } = await add(store, once());
  host.jump(-5_000);

  assert.equal((await add(store, once(1))).run.id, run.id);
});

test("a run from which its key was taken reads as before, and is found by the key", async ({ store }) => {
  const failed = await addFailed(store);
  const before = await getRun(store, failed);
  const { run } = await add(store, once("ended"));
  await store.cancel(run.id, "request-1", null);
  const { run: last } = await add(store, once("ended"));

  assert.deepEqual(await getRun(store, failed), before);
  assert.deepEqual(
    await store.searchRuns("once", 10),
    [last.id, run.id, failed].map((runId) => ({
      runId,
      by: "idempotencyKey",
    })),
  );
});

test("findRuns() leaves out runs from which their key was taken, if it leaves out those with a retry", async ({ store }) => {
  await addFailed(store);
  const { run } = await add(store, once("ended"));

  assert.deepEqual((await store.findRuns({ notRetried: true })).ids, [run.id]);
  assert.equal((await store.findRuns({})).ids.length, 2);
});

test("enqueue() is repeatable after it took a key", async ({ store }) => {
  await addFailed(store);
  const request = aRun(once("ended"));
  const first = await store.enqueue([request]);
  await store.cancel(request.id, "request-1", null);

  const [second] = await store.enqueue([request]);

  assert.deepEqual([first[0]!.disposition, second!.disposition, second!.run.id], ["created", "created", request.id]);
});

test("enqueue() adds one run for two requests with the key of a run that does not count", async ({ store }) => {
  await addFailed(store);

  const [first, second] = await store.enqueue([aRun(once("failed")), aRun(once("failed"))]);

  assert.deepEqual([first!.disposition, second!.disposition], ["created", "idempotent"]);
  assert.equal(second!.run.id, first!.run.id);
});

test("enqueue() takes the key from runs of all versions and names of the job", async ({ store }) => {
  const { run: old } = await add(store, { ...once(), jobName: "old-name", version: 2 });
  await store.cancel(old.id, "request-1", null);

  const added = await add(store, { ...once("ended"), aliases: ["old-name"], version: 3 });
  const ofAlias = await add(store, { ...once(), jobName: "old-name", version: 2 });

  assert.equal(added.disposition, "created");
  assert.equal(ofAlias.disposition, "created"); // another job now, for which the key is free
  assert.equal((await add(store, { ...once("ended"), aliases: ["old-name"], version: 3 })).run.id, added.run.id);
});

test("enqueue() joins a run by its concurrency key, and takes no key then", async ({ store }) => {
  const failed = await addFailed(store);
  const { run: rival } = await add(store, { concurrencyKey: "line" });

  const joined = await add(store, { ...once("ended"), concurrencyKey: "line", coalesce: "queue" });

  assert.deepEqual([joined.run.id, joined.disposition], [rival.id, "coalesced"]);
  assert.equal((await add(store, once())).run.id, failed);
});

test("delete() of a run from which its key was taken leaves the key with the other", async ({ store }) => {
  const failed = await addFailed(store);
  const { run } = await add(store, once("ended"));

  await store.delete(failed);

  assert.equal((await add(store, once())).run.id, run.id);
});
