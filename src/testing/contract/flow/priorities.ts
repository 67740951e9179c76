import assert from "node:assert/strict";
import { aClaimRequest, aFlow, aPause } from "../fixtures.ts";
import { add, addIds, claimedIds, claimOne, complete, park, parkUntilRetry, startRun } from "../arrange.ts";
import { newCases } from "../case.ts";
import { getRun, getRuns } from "../../../store/reads.ts";

const { cases, test, timed } = newCases();

/** What a store promises of runs with a priority. */
export const priorityCases = cases;

const KEY = "cust-1";

test("enqueue() shows the priority of a run", async ({ store }) => {
  const { run } = await add(store, { flow: aFlow({ priority: -3 }) });

  assert.equal(run.priority, -3);
  assert.equal((await getRun(store, run.id))?.priority, -3);
});

test("claim() takes runs of a higher priority first, and those of one priority by age", async ({ store }) => {
  const [low, plain, high, second, top] = await addIds(
    store,
    { flow: aFlow({ priority: -1 }) },
    {},
    { flow: aFlow({ priority: 1 }) },
    { flow: aFlow({ priority: 1 }) },
    { flow: aFlow({ priority: 2 }) },
  );

  assert.deepEqual(await claimedIds(store), [top, high, second, plain, low]);
});

test("claim() takes the first by priority when it cannot take all", async ({ store }) => {
  const [plain, low, high] = await addIds(
    store,
    {},
    { flow: aFlow({ priority: -1 }) },
    { flow: aFlow({ priority: 1 }) },
  );

  const first = await store.claim(aClaimRequest({ limit: 1 }));

  assert.deepEqual([first.claims.map(({ run }) => run.id), first.hasMore], [[high], true]);
  assert.deepEqual(await claimedIds(store, { limit: 1 }), [plain]);
  assert.deepEqual(await claimedIds(store, { limit: 1 }), [low]);
});

test("claim() merges jobs by priority", async ({ store }) => {
  const [one, two, three] = await addIds(
    store,
    { jobName: "import" },
    { jobName: "export", flow: aFlow({ priority: 1 }) },
    { jobName: "import", flow: aFlow({ priority: 2 }) },
  );

  assert.deepEqual(await claimedIds(store, { jobNames: ["import", "export"] }), [three, two, one]);
});

test("claim() takes an interrupted run by its priority", async ({ store }) => {
  const { lease } = await startRun(store, { flow: aFlow({ priority: 1 }) });
  const [plain, top] = await addIds(store, {}, { flow: aFlow({ priority: 2 }) });

  await store.release(lease, []);

  assert.deepEqual(await claimedIds(store), [top, lease.runId, plain]);
});

timed("claim() takes a run whose lease has expired by its priority", async ({ store, host }) => {
  const { lease } = await startRun(store, { flow: aFlow({ priority: 1 }) });
  const [plain, top] = await addIds(store, {}, { flow: aFlow({ priority: 2 }) });
  host.advance(1_000);

  assert.deepEqual(await claimedIds(store), [top, lease.runId, plain]);
});

test("claim() takes a resumed run by its priority", async ({ store }) => {
  const { lease } = await startRun(store, { flow: aFlow({ priority: 1 }) });
  const review = aPause();
  await park(store, lease, review);
  const [plain, top] = await addIds(store, {}, { flow: aFlow({ priority: 2 }) });

  await store.signal(review.id, { signalId: "s1", payload: null });

  assert.deepEqual(await claimedIds(store), [top, lease.runId, plain]);
});

timed("claim() takes a run after its retry delay by its priority", async ({ store, host }) => {
  const { lease } = await startRun(store, { flow: aFlow({ priority: 1 }) });
  await parkUntilRetry(store, lease, host.now() + 500);
  const [plain, top] = await addIds(store, {}, { flow: aFlow({ priority: 2 }) });
  host.advance(500);

  assert.deepEqual(await claimedIds(store), [top, lease.runId, plain]);
});

test("claim() takes the runs of a key by priority", async ({ store }) => {
  const [plain, high, top] = await addIds(
    store,
    { concurrencyKey: KEY },
    { concurrencyKey: KEY, flow: aFlow({ priority: 1 }) },
    { concurrencyKey: KEY, flow: aFlow({ priority: 2 }) },
  );

  const taken = [];
  for (let i = 0; i < 3; i++) {
    const { run, lease } = await claimOne(store, { limit: 10 });
    taken.push(run.id);
    await complete(store, lease);
  }

  assert.deepEqual(taken, [top, high, plain]);
});

test("claim() lets a younger, urgent run take the place of the first in the line of a key", async ({ store }) => {
  const { lease } = await startRun(store, { concurrencyKey: KEY });
  const [plain] = await addIds(store, { concurrencyKey: KEY });
  const [urgent] = await addIds(store, { concurrencyKey: KEY, flow: aFlow({ priority: 1 }) });
  await complete(store, lease);

  const first = await claimOne(store);

  assert.equal(first.run.id, urgent);
  await store.cancel(urgent!, "c1", null);
  await store.release(first.lease, []);
  assert.deepEqual(await claimedIds(store), [plain]);
});

test("claim() lets no run of a key pass an urgent one whose job another live worker knows", async ({ store }) => {
  await store.claim(aClaimRequest({ workerId: "worker-x", jobNames: ["export"], limit: 0 }));
  await add(store, { concurrencyKey: KEY });
  const { run: urgent } = await add(store, { jobName: "export", concurrencyKey: KEY, flow: aFlow({ priority: 1 }) });

  assert.deepEqual(await claimedIds(store), []);
  assert.deepEqual(await claimedIds(store, { workerId: "worker-x", jobNames: ["export"] }), [urgent.id]);
});

timed("claim() takes a run that kept its key over a retry delay before all urgent ones", async ({ store, host }) => {
  const { lease } = await startRun(store, { concurrencyKey: KEY, flow: aFlow({ priority: -2 }) });
  await parkUntilRetry(store, lease, host.now() + 500);
  const [urgent, ofKey] = await addIds(
    store,
    { flow: aFlow({ priority: 2 }) },
    { concurrencyKey: KEY, flow: aFlow({ priority: 2 }) },
  );
  host.advance(500);

  const first = await claimOne(store);
  const others = await claimedIds(store);
  await complete(store, first.lease);

  assert.equal(first.run.id, lease.runId);
  assert.deepEqual(others, [urgent]);
  assert.deepEqual(await claimedIds(store), [ofKey]);
});

timed("claim() takes a run that kept its key over a retry delay before older ones", async ({ store, host }) => {
  const sleeper = await startRun(store);
  await park(store, sleeper.lease, aPause({ kind: "sleep", deadline: { afterMs: 500 } }));
  const { lease } = await startRun(store, { concurrencyKey: KEY });
  await parkUntilRetry(store, lease, host.now() + 500);
  host.advance(500);

  assert.deepEqual(await claimedIds(store), [lease.runId, sleeper.run.id]);
});

test("enqueue() coalesces onto the oldest pending run whatever the priorities", async ({ store }) => {
  const [oldest] = await addIds(
    store,
    { concurrencyKey: KEY },
    { concurrencyKey: KEY, flow: aFlow({ priority: 1 }) },
  );

  const { run } = await add(store, { concurrencyKey: KEY, coalesce: "queue" });

  assert.equal(run.id, oldest);
});

test("getRuns() orders runs by their triggers, not by their priorities", async ({ store }) => {
  const ids = await addIds(store, { flow: aFlow({ priority: 2 }) }, {}, { flow: aFlow({ priority: 1 }) });

  const { runs } = await getRuns(store, {});

  assert.deepEqual(runs.map(({ id }) => id), ids.toReversed());
});
