import assert from "node:assert/strict";
import { uuidV7 } from "../../../model/host.ts";
import type { TerminalStatus } from "../../../model/run.ts";
import type { Store } from "../../../store/store.ts";
import { FAKE_START, type FakeHost } from "../../fake_host.ts";
import { A_JOB, aFailure, aLine, aPause, aRun, aStep } from "../fixtures.ts";
import { add, addCompleted, aRetry, claimOne, complete, look, park, prepare, startRun } from "../arrange.ts";
import { newCases } from "../case.ts";
import { getRuns } from "../../../store/reads.ts";

const { cases, test, timed } = newCases();

/** What `Store.delete()` and `Store.purge()` promise. */
export const deleteCases = cases;

test("delete() removes a run with everything that belongs to it, and answers who it was", async ({ store }) => {
  const { lease, run } = await startRun(store, { labels: { org: "acme" } });
  const review = aPause();
  await store.saveStep(lease, aStep(), []);
  await prepare(store, lease, review);
  await store.appendLogs([aLine(run.id)]);
  await complete(store, lease);

  const deleted = await store.delete(run.id);

  assert.deepEqual(deleted, { id: run.id, jobName: A_JOB, labels: { org: "acme" } });
  assert.deepEqual(await look(store, run.id), { run: null, steps: [], waits: [], logs: [] });
  assert.equal(await store.getWait(review.id), null);
  assert.deepEqual(await getRuns(store, { labels: { org: "acme" } }), { runs: [], total: 0, hasMore: false });
});

test("delete() leaves the other runs", async ({ store }) => {
  const [kept, gone] = [await addCompleted(store), await addCompleted(store)];

  await store.delete(gone.id);

  assert.deepEqual((await getRuns(store, {})).runs, [kept]);
});

test("delete() answers null for an unknown run", async ({ store }) => {
  assert.equal(await store.delete(uuidV7(FAKE_START)), null);
});

test("delete() leaves a run that has not ended", async ({ store }) => {
  const waiting = await startRun(store);
  await park(store, waiting.lease, aPause());
  const running = await startRun(store);
  const { run: pending } = await add(store);

  for (const runId of [waiting.run.id, running.run.id, pending.id]) {
    const before = await look(store, runId);

    const deleted = await store.delete(runId);

    assert.equal(deleted, null);
    assert.deepEqual(await look(store, runId), before);
  }
});

timed("purge() removes runs that ended so long ago, and not those that ended later", async ({ store, host }) => {
  const early = await addCompleted(store);
  host.advance(1);
  const late = await addCompleted(store);
  host.advance(999);

  const purged = await store.purge({ completed: 1_000 }, 10);

  assert.deepEqual(purged, [{ id: early.id, jobName: A_JOB, labels: {} }]);
  assert.deepEqual((await getRuns(store, {})).runs, [late]);
});

timed("purge() looks at each status alone, and keeps those that are left out", async ({ store, host }) => {
  await addEnded(store, "completed");
  await addEnded(store, "failed");
  await addEnded(store, "cancelled");
  host.advance(500);

  const purged = await store.purge({ completed: 1_000, cancelled: 500 }, 10);

  const { runs } = await getRuns(store, {});
  assert.equal(purged.length, 1);
  assert.deepEqual(runs.map(({ status }) => status), ["failed", "completed"]);
});

timed("purge() removes those that ended first, up to the limit", async ({ store, host }) => {
  const ids = await addEndedInTurn(store, host, ["completed", "cancelled", "failed", "completed", "cancelled"]);
  host.advance(1_000);
  const retention = { completed: 0, failed: 0, cancelled: 0 };

  const first = await store.purge(retention, 2);
  const second = await store.purge(retention, 2);
  const third = await store.purge(retention, 2);

  assert.deepEqual(first.map(({ id }) => id).sort(), ids.slice(0, 2).sort());
  assert.deepEqual(second.map(({ id }) => id).sort(), ids.slice(2, 4).sort());
  assert.deepEqual(third.map(({ id }) => id), ids.slice(4));
});

timed("purge() goes by when a run ended, not by when it was triggered", async ({ store, host }) => {
  await store.enqueue([aRun(), aRun()]);
  const [older, younger] = [await claimOne(store), await claimOne(store)];
  await complete(store, younger.lease);
  host.advance(10);
  await complete(store, older.lease);
  host.advance(10);

  const purged = await store.purge({ completed: 0 }, 1);

  assert.deepEqual(purged.map(({ id }) => id), [younger.run.id]);
});

timed("purge() leaves runs that have not ended", async ({ store, host }) => {
  const { lease } = await startRun(store);
  await park(store, lease, aPause());
  await startRun(store);
  await add(store);
  host.advance(60_000);

  const purged = await store.purge({ completed: 0, failed: 0, cancelled: 0 }, 10);

  assert.deepEqual(purged, []);
  assert.equal((await getRuns(store, {})).total, 3);
});

test("purge() removes everything that belongs to a run", async ({ store }) => {
  const { lease, run } = await startRun(store, { idempotencyKey: "once" });
  const review = aPause();
  await store.saveStep(lease, aRetry(100), []);
  await prepare(store, lease, review);
  await store.appendLogs([aLine(run.id)]);
  await complete(store, lease);

  await store.purge({ completed: 0 }, 1);

  assert.deepEqual(await look(store, run.id), { run: null, steps: [], waits: [], logs: [] });
  assert.equal(await store.getWait(review.id), null);
  assert.equal((await add(store, { idempotencyKey: "once" })).disposition, "created");
});

/** Adds a run that has ended like this. No older run may be due. */
async function addEnded(store: Store, status: TerminalStatus): Promise<string> {
  const { lease } = await startRun(store);
  if (status === "completed") await complete(store, lease);
  else if (status === "cancelled") await store.cancel(lease.runId, "c1", null);
  else await store.finish(lease, { status: "failed", failure: aFailure(), failedStepName: null }, []);
  return lease.runId;
}

async function addEndedInTurn(store: Store, host: FakeHost, statuses: readonly TerminalStatus[]): Promise<string[]> {
  const ids = [];
  for (const status of statuses) {
    ids.push(await addEnded(store, status));
    host.advance(1);
  }
  return ids;
}
