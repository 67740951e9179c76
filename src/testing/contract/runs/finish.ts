import assert from "node:assert/strict";
import { LeaseLostError } from "../../../model/error.ts";
import { uuidV7 } from "../../../model/host.ts";
import type { Ending } from "../../../store/claim.ts";
import { isoTime } from "../../../values/iso_time.ts";
import { parseRun } from "../../../model/run.ts";
import { FAKE_START } from "../../fake_host.ts";
import { aClaimRequest, aFailure, aPause, aProgress } from "../fixtures.ts";
import { aRetry, claimOne, complete, look, park, prepare, startRun } from "../arrange.ts";
import { newCases } from "../case.ts";
import { getRun, getRuns, getSteps, getWaits } from "../../../store/reads.ts";

const { cases, test, timed } = newCases();

/** What `Store.finish()` promises. */
export const finishCases = cases;

const COMPLETED: Ending = { status: "completed", output: '{"rows":3}', durationMs: 70 };
const FAILED: Ending = { status: "failed", failure: aFailure({ message: "no such file" }), failedStepName: "read" };

timed("finish() completes a run", async ({ store, host }) => {
  const { lease } = await startRun(store);
  const before = await getRun(store, lease.runId);
  host.advance(70);

  await store.finish(lease, COMPLETED, []);

  assert.deepEqual(await getRun(store, lease.runId), {
    ...before,
    status: "completed",
    output: { rows: 3 },
    leaseOwner: null,
    leaseExpiresAt: null,
    updatedAt: isoTime(FAKE_START + 70),
    completedAt: isoTime(FAKE_START + 70),
  });
});

test("finish() shows an output that is undefined as null", async ({ store }) => {
  const { lease } = await startRun(store);

  await store.finish(lease, { status: "completed", output: null, durationMs: 0 }, []);

  assert.equal((await getRun(store, lease.runId))!.output, null);
});

timed("finish() fails a run", async ({ store, host }) => {
  const { lease } = await startRun(store);

  await store.finish(lease, FAILED, []);

  const state = await store.getRunState(lease.runId);
  assert.equal(state!.run.status, "failed");
  assert.equal(state!.run.error, "no such file");
  assert.equal(state!.run.output, null);
  assert.equal(state!.run.completedAt, isoTime(host.now()));
  assert.equal(state!.run.failedStepName, "read");
  assert.deepEqual(state!.run.failure, aFailure({ message: "no such file" }));
  assert.deepEqual((await getRuns(store, {})).runs, [parseRun(state!.run)]);
});

test("finish() keeps a failure with its causes, and shows its name if it has no message", async ({ store }) => {
  const { lease } = await startRun(store);
  const failure = aFailure({ name: "AbortError", message: "", stack: null, cause: aFailure({ kind: "timeout" }) });

  await store.finish(lease, { status: "failed", failure, failedStepName: null }, []);

  const run = (await getRun(store, lease.runId))!;
  assert.deepEqual([run.error, run.failure], ["AbortError", failure]);
});

test("finish() keeps the progress that comes along", async ({ store }) => {
  const { lease } = await startRun(store);

  await store.finish(lease, COMPLETED, [aProgress({ current: 3, total: 3 })]);

  assert.deepEqual((await getRun(store, lease.runId))!.progress, { current: 3, total: 3 });
});

timed("finish() closes open waits, after it has committed the deadlines that passed", async ({ store, host }) => {
  const { lease } = await startRun(store);
  const signalled = aPause({ name: "signalled" });
  await prepare(
    store,
    lease,
    signalled,
    aPause({ name: "late", deadline: { afterMs: 100 } }),
    aPause({ name: "open" }),
  );
  await store.signal(signalled.id, { signalId: "s1", payload: null });
  host.advance(100);

  await store.finish(lease, COMPLETED, []);

  const waits = await getWaits(store, lease.runId);
  assert.deepEqual(waits.map(({ name, status, outcome, resolvedAt }) => [name, status, outcome, resolvedAt]), [
    ["signalled", "resolved", "signal", isoTime(FAKE_START)],
    ["late", "resolved", "timeout", isoTime(FAKE_START + 100)],
    ["open", "closed", null, null],
  ]);
});

test("finish() leaves a step between two attempts as it is", async ({ store }) => {
  const { lease } = await startRun(store);
  await store.saveStep(lease, aRetry(100), []);
  const before = await getSteps(store, lease.runId);

  await store.finish(lease, FAILED, []);

  assert.deepEqual(await getSteps(store, lease.runId), before);
});

timed("finish() ends a run for good", async ({ store, host }) => {
  const { lease } = await startRun(store);
  await prepare(store, lease, aPause({ deadline: { afterMs: 5_000 } }));
  await store.finish(lease, COMPLETED, []);
  const before = await look(store, lease.runId);
  host.advance(60_000);

  const result = await store.claim(aClaimRequest());

  assert.deepEqual(result, {
    aloneSince: null,
    hasHeld: false,
    claims: [],
    failed: [],
    cancelled: [],
    nextTimerAt: null,
    hasMore: false,
    now: host.now(),
  });
  assert.deepEqual(await look(store, lease.runId), before);
});

for (const ending of [COMPLETED, FAILED]) {
  timed(`finish() changes nothing when it is repeated for a run that has ${ending.status}`, async ({ store, host }) => {
    const { lease } = await startRun(store);
    await store.finish(lease, ending, []);
    const before = await look(store, lease.runId);
    host.advance(50);

    await store.finish(lease, ending, []);

    assert.deepEqual(await look(store, lease.runId), before);
  });
}

test("finish() refuses another ending than the one that was", async ({ store }) => {
  const { lease } = await startRun(store);
  await store.finish(lease, COMPLETED, []);
  const before = await look(store, lease.runId);

  const other = store.finish(lease, FAILED, []);

  await assert.rejects(other, LeaseLostError);
  assert.deepEqual(await look(store, lease.runId), before);
});

timed("finish() refuses a worker whose lease has passed on, without a trace", async ({ store, host }) => {
  const { lease } = await startRun(store);
  host.advance(1_000);
  await claimOne(store, { workerId: "worker-b" });
  const before = await look(store, lease.runId);

  const ending = store.finish(lease, COMPLETED, [aProgress({ current: 1 })]);

  await assert.rejects(ending, LeaseLostError);
  assert.deepEqual(await look(store, lease.runId), before);
});

timed("finish() refuses a worker after another one has ended the run", async ({ store, host }) => {
  const { lease } = await startRun(store);
  host.advance(1_000);
  const second = await claimOne(store, { workerId: "worker-b" });
  await complete(store, second.lease);

  const ending = store.finish(lease, { status: "completed", output: null, durationMs: 0 }, []);

  await assert.rejects(ending, LeaseLostError);
});

timed(
  "finish() refuses a run that was cancelled, failed as abandoned, waits, or is unknown",
  async ({ store, host }) => {
    const abandoned = await startRun(store);
    host.advance(1_000);
    await store.claim(aClaimRequest({ maxAbandonments: 1 }));
    const cancelled = await startRun(store);
    await store.cancel(cancelled.run.id, "c1", null);
    const waiting = await startRun(store);
    await park(store, waiting.lease, aPause());
    const unknown = { runId: uuidV7(FAKE_START), generation: 1, claimId: "none", recorded: 0, concurrencyKey: null };

    for (const lease of [abandoned.lease, cancelled.lease, waiting.lease, unknown]) {
      const before = await look(store, lease.runId);

      await assert.rejects(store.finish(lease, COMPLETED, []), LeaseLostError);
      await assert.rejects(store.finish(lease, FAILED, []), LeaseLostError);

      assert.deepEqual(await look(store, lease.runId), before);
    }
  },
);
