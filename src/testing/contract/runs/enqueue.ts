import assert from "node:assert/strict";
import { ConflictError } from "../../../model/error.ts";
import type { Coalesce, Labels } from "../../../model/run.ts";
import { DELETED_RUNS_KNOWN_MS } from "../../../stores/rules.ts";
import { isoTime } from "../../../values/iso_time.ts";
import { FAKE_START } from "../../fake_host.ts";
import { A_JOB, aPause, aRun } from "../fixtures.ts";
import { add, addCompleted, claimOne, park, startRun } from "../arrange.ts";
import { newCases } from "../case.ts";
import { getRun, getRuns } from "../../../store/reads.ts";

const { cases, test, timed } = newCases();

/** What `Store.enqueue()` promises. */
export const enqueueCases = cases;

timed("enqueue() adds a pending run that shows what was asked for", async ({ store }) => {
  const request = aRun({ labels: { org: "acme" }, idempotencyKey: "once", concurrencyKey: "cust-1" });

  const [added] = await store.enqueue([request]);

  assert.deepEqual(added, {
    run: {
      id: request.id,
      jobName: A_JOB,
      status: "pending",
      payload: '{"path":"a.csv"}',
      output: null,
      error: null,
      failedStepName: null,
      failure: null,
      progress: null,
      labels: { org: "acme" },
      idempotencyKey: "once",
      concurrencyKey: "cust-1",
      leaseOwner: null,
      leaseExpiresAt: null,
      leaseGeneration: 0,
      createdAt: isoTime(FAKE_START),
      triggeredBy: null,
      cancelledBy: null,
      updatedAt: isoTime(FAKE_START),
      startedAt: null,
      completedAt: null,
      startAt: null,
      priority: 0,
      fairnessKey: null,
      startBy: null,
      finishBy: null,
      failureKind: null,
      parentRunId: null,
      scheduleName: null,
      slotAt: null,
      version: 1,
      held: null,
      endOf: null,
      endRunId: null,
      retriggerOf: null,
      retriggeredAs: null,
      completedAs: null,
    },
    disposition: "created",
  });
});

test("enqueue() shows an input that is undefined as null", async ({ store }) => {
  const { run } = await add(store, { payload: null, input: null });

  assert.equal(run.payload, null);
});

test("enqueue() keeps labels whatever they are called", async ({ store }) => {
  const labels: Labels = JSON.parse('{"__proto__":"a","constructor":"b","toString":"c"}');
  const { run } = await add(store, { labels });

  const found = await getRun(store, run.id);

  assert.deepEqual(Object.entries(found!.labels).sort(), Object.entries(labels).sort());
});

test("enqueue() answers in the order of the requests", async ({ store }) => {
  const requests = [aRun(), aRun(), aRun()];

  const added = await store.enqueue(requests);

  assert.deepEqual(added.map(({ run }) => run.id), requests.map(({ id }) => id));
});

test("enqueue() adds nothing when it is asked for nothing", async ({ store }) => {
  const added = await store.enqueue([]);

  assert.deepEqual(added, []);
});

test("enqueue() changes nothing when it is repeated", async ({ store }) => {
  const request = aRun();
  const first = await store.enqueue([request]);

  const second = await store.enqueue([request]);

  assert.deepEqual(second, first);
  assert.equal((await getRuns(store, {})).total, 1);
});

test("enqueue() answers a repeated call with the run in its present state", async ({ store }) => {
  const request = aRun({ idempotencyKey: "once" });
  await store.enqueue([request]);
  await claimOne(store);

  const [repeated] = await store.enqueue([request]);

  assert.equal(repeated!.disposition, "created");
  assert.equal(repeated!.run.status, "running");
});

test("enqueue() answers the run that has the idempotency key", async ({ store }) => {
  const { run } = await add(store, { idempotencyKey: "once" });

  const again = await add(store, { idempotencyKey: "once", payload: '{"path":"b.csv"}' });

  assert.deepEqual(again, { run, disposition: "idempotent" });
});

test("enqueue() answers the run that has the idempotency key though it has ended", async ({ store }) => {
  const ended = await addCompleted(store, { idempotencyKey: "once" });

  const again = await add(store, { idempotencyKey: "once" });

  assert.deepEqual(again, { run: ended, disposition: "idempotent" });
});

test("enqueue() keeps the idempotency keys of jobs apart", async ({ store }) => {
  await add(store, { jobName: "import", idempotencyKey: "once" });

  const { disposition } = await add(store, { jobName: "export", idempotencyKey: "once" });

  assert.equal(disposition, "created");
});

test("enqueue() finds an idempotency key free once its run is deleted", async ({ store }) => {
  const ended = await addCompleted(store, { idempotencyKey: "once" });
  await store.delete(ended.id);

  const { disposition } = await add(store, { idempotencyKey: "once" });

  assert.equal(disposition, "created");
});

test("enqueue() prefers the run with the idempotency key to one to coalesce with", async ({ store }) => {
  const same = await addCompleted(store, { idempotencyKey: "once", concurrencyKey: "cust-1" });
  await add(store, { concurrencyKey: "cust-1" });

  const again = await add(store, { idempotencyKey: "once", concurrencyKey: "cust-1", coalesce: "active" });

  assert.deepEqual(again, { run: same, disposition: "idempotent" });
});

test("enqueue() sees earlier runs of the same call", async ({ store }) => {
  const added = await store.enqueue([
    aRun({ idempotencyKey: "once" }),
    aRun({ idempotencyKey: "once" }),
    aRun({ concurrencyKey: "cust-1" }),
    aRun({ concurrencyKey: "cust-1", coalesce: "skip" }),
  ]);

  assert.deepEqual(added.map(({ disposition }) => disposition), ["created", "idempotent", "created", "coalesced"]);
  assert.equal(added[1]!.run.id, added[0]!.run.id);
  assert.equal(added[3]!.run.id, added[2]!.run.id);
});

for (const coalesce of ["active", "skip", "queue"] as Coalesce[]) {
  test(`enqueue() joins the oldest pending run by "${coalesce}"`, async ({ store }) => {
    const { run: oldest } = await add(store, { concurrencyKey: "cust-1" });
    await add(store, { concurrencyKey: "cust-1" });

    const joined = await add(store, { concurrencyKey: "cust-1", coalesce });

    assert.deepEqual(joined, { run: oldest, disposition: "coalesced" });
  });

  test(`enqueue() joins no run of another job by "${coalesce}"`, async ({ store }) => {
    await add(store, { jobName: "export", concurrencyKey: "cust-1" });

    const { disposition } = await add(store, { concurrencyKey: "cust-1", coalesce });

    assert.equal(disposition, "created");
  });

  test(`enqueue() joins no run of another key by "${coalesce}"`, async ({ store }) => {
    await add(store, { concurrencyKey: "cust-2" });

    const { disposition } = await add(store, { concurrencyKey: "cust-1", coalesce });

    assert.equal(disposition, "created");
  });

  test(`enqueue() joins no run that has ended by "${coalesce}"`, async ({ store }) => {
    await addCompleted(store, { concurrencyKey: "cust-1" });

    const { disposition } = await add(store, { concurrencyKey: "cust-1", coalesce });

    assert.equal(disposition, "created");
  });
}

for (const coalesce of ["skip", "queue"] as Coalesce[]) {
  test(`enqueue() queues behind what executes or waits by "${coalesce}"`, async ({ store }) => {
    const waiting = await startRun(store, { concurrencyKey: "cust-1" });
    await park(store, waiting.lease, aPause());
    await startRun(store, { concurrencyKey: "cust-1" });

    const { disposition } = await add(store, { concurrencyKey: "cust-1", coalesce });

    assert.equal(disposition, "created");
  });
}

test('enqueue() prefers a pending run to a leased one by "active"', async ({ store }) => {
  await startRun(store, { concurrencyKey: "cust-1" });
  const { run: pending } = await add(store, { concurrencyKey: "cust-1" });

  const joined = await add(store, { concurrencyKey: "cust-1", coalesce: "active" });

  assert.deepEqual(joined, { run: pending, disposition: "coalesced" });
});

test('enqueue() prefers a leased run to a waiting one by "active"', async ({ store }) => {
  const waiting = await startRun(store, { concurrencyKey: "cust-1" });
  await park(store, waiting.lease, aPause());
  const leased = await startRun(store, { concurrencyKey: "cust-1" });

  const joined = await add(store, { concurrencyKey: "cust-1", coalesce: "active" });

  assert.equal(joined.run.id, leased.run.id);
  assert.equal(joined.disposition, "coalesced");
});

test('enqueue() joins the oldest waiting run by "active" if no other will do', async ({ store }) => {
  const waiting = await startRun(store, { concurrencyKey: "cust-1" });
  await park(store, waiting.lease, aPause());
  const younger = await startRun(store, { concurrencyKey: "cust-1" });
  await park(store, younger.lease, aPause());

  const joined = await add(store, { concurrencyKey: "cust-1", coalesce: "active" });

  assert.equal(joined.run.id, waiting.run.id);
  assert.equal(joined.disposition, "coalesced");
});

timed('enqueue() does not join a run whose lease has expired by "active"', async ({ store, host }) => {
  const stale = await startRun(store, { concurrencyKey: "cust-1" });
  host.advance(999);
  const before = await add(store, { concurrencyKey: "cust-1", coalesce: "active" });
  host.advance(1);

  const after = await add(store, { concurrencyKey: "cust-1", coalesce: "active" });

  assert.equal(before.run.id, stale.run.id);
  assert.equal(after.disposition, "created");
});

test("enqueue() adds another run of the key when it is not to coalesce", async ({ store }) => {
  await add(store, { concurrencyKey: "cust-1" });

  const { disposition } = await add(store, { concurrencyKey: "cust-1" });

  assert.equal(disposition, "created");
});

for (const how of ["delete", "purge"] as const) {
  test(`enqueue() that is repeated after ${how}() has removed a run is refused, and adds nothing`, async (context) => {
    const { store } = context;
    const request = aRun();
    await addCompleted(store, request);
    if (how === "delete") await store.delete(request.id);
    else await store.purge({ completed: 0 }, 1);

    const repeated = store.enqueue([aRun(), request]);

    await assert.rejects(repeated, ConflictError);
    assert.equal((await getRuns(store, {})).total, 0);
  });
}

timed("enqueue() knows long enough which runs were deleted, and not permanently", async ({ store, host }) => {
  const request = aRun();
  await addCompleted(store, request);
  await store.delete(request.id);
  host.advance(DELETED_RUNS_KNOWN_MS - 1);
  await store.delete((await addCompleted(store)).id); // makes room by what is old enough
  const repeated = store.enqueue([request]);
  await assert.rejects(repeated, ConflictError);
  host.advance(1);
  await store.delete((await addCompleted(store)).id);

  const [added] = await store.enqueue([request]);

  assert.equal(added!.disposition, "created");
});
