import assert from "node:assert/strict";
import { LeaseLostError } from "../../../../model/error.ts";
import { isoTime } from "../../../../values/iso_time.ts";
import { FAKE_START } from "../../../fake_host.ts";
import { aClaimRequest, aHold, aPause, aProgress, aStep } from "../../fixtures.ts";
import { add, claimOne, prepare, startRun } from "../../arrange.ts";
import { newCases } from "../../case.ts";
import { addHeld, factsOf } from "./arrange_holds.ts";
import { getRun } from "../../../../store/reads.ts";

const { cases, test, timed } = newCases();

/** What `Store.hold()` promises. */
export const holdCases = cases;

timed("hold() makes a run pending, and shows why", async ({ store, host }) => {
  const { lease } = await startRun(store);
  const before = await getRun(store, lease.runId);
  host.advance(250);

  await store.hold(lease, aHold({ code: "ended_early", message: "the job threw" }), []);

  const since = isoTime(FAKE_START + 250);
  assert.deepEqual(await getRun(store, lease.runId), {
    ...before,
    status: "pending",
    held: { code: "ended_early", message: "the job threw", since },
    leaseOwner: null,
    leaseExpiresAt: null,
    leaseGeneration: 2,
    updatedAt: since,
  });
});

timed("getHold() answers all that a hold says", async ({ store }) => {
  const issues = [{ message: "Required", path: ["currency"] }];
  const details = { isNew: null, unasked: [{ kind: "wait" as const, name: "ok?" }], issues };
  const runId = await addHeld(store, {}, { code: "input_refused", message: "no", details });

  const hold = await store.getHold(runId);

  const since = isoTime(FAKE_START);
  assert.deepEqual(hold, { code: "input_refused", message: "no", since, details, prints: ["print-1"] });
});

test("getHold() answers null for a run that is not held, and for an unknown one", async ({ store }) => {
  const { run } = await add(store);

  assert.deepEqual([await store.getHold(run.id), await store.getHold("unknown")], [null, null]);
});

timed("hold() counts neither as interrupted nor as abandoned", async ({ store, host }) => {
  const { lease } = await startRun(store);
  host.advance(1_000);
  const second = await claimOne(store); // the first lease was abandoned
  await store.hold(second.lease, aHold(), []);
  await store.resumeHeld(lease.runId, false);
  const third = await claimOne(store, { maxAbandonments: 2 });
  host.advance(1_000);

  const { failed } = await store.claim(aClaimRequest({ maxAbandonments: 2 }));

  assert.deepEqual([second.execution, third.execution], [2, 2]);
  assert.deepEqual(failed.map(({ run, failureKind }) => [run.id, failureKind]), [[lease.runId, "abandoned"]]);
});

test("hold() keeps the recorded steps and pauses", async ({ store }) => {
  const { lease } = await startRun(store);
  await store.saveStep(lease, aStep(), []);
  await prepare(store, lease, aPause({ prepared: true }));

  await store.hold(lease, aHold(), []);

  await store.resumeHeld(lease.runId, false);
  const { steps, pauses } = await claimOne(store);
  assert.deepEqual([steps.map(({ name }) => name), pauses.map(({ name }) => name)], [["read"], ["review"]]);
});

timed("hold() refuses a worker whose lease was lost", async ({ store, host }) => {
  const { lease } = await startRun(store);
  host.advance(1_000);
  await claimOne(store, { workerId: "worker-b" });

  const hold = store.hold(lease, aHold(), []);

  await assert.rejects(hold, LeaseLostError);
  assert.equal((await getRun(store, lease.runId))!.status, "running");
});

test("hold() ends the lease: nothing more is written under it", async ({ store }) => {
  const { lease } = await startRun(store);

  await store.hold(lease, aHold(), []);

  await assert.rejects(store.saveStep(lease, aStep(), []), LeaseLostError);
  assert.deepEqual([await store.renew([{ lease, reports: [] }], 1_000), await store.getLeases()], [[null], []]);
});

timed("hold() is harmless when it is repeated", async ({ store, host }) => {
  const { lease } = await startRun(store);
  await store.hold(lease, aHold(), []);
  const before = [await getRun(store, lease.runId), await store.getHold(lease.runId)];
  host.advance(100);

  const facts = await factsOf(store, () => store.hold(lease, aHold({ message: "again", print: "print-2" }), []));

  assert.deepEqual([await getRun(store, lease.runId), await store.getHold(lease.runId)], before);
  assert.deepEqual(facts, []);
});

test("hold() refuses a worker whose lease was lost though the run is held under a later one", async ({ store }) => {
  const { lease: stale } = await startRun(store);
  await store.release(stale, []);
  await store.hold((await claimOne(store)).lease, aHold(), []);

  await assert.rejects(store.hold(stale, aHold(), []), LeaseLostError);
});

test("hold() is refused when it is repeated after the run was resumed", async ({ store }) => {
  const { lease } = await startRun(store);
  await store.hold(lease, aHold(), []);
  await store.resumeHeld(lease.runId, false);

  await assert.rejects(store.hold(lease, aHold(), []), LeaseLostError);
});

test("hold() stores the reports, then notes that the run is held", async ({ store }) => {
  const { lease } = await startRun(store);
  const hold = aHold({ code: "ended_early", message: "the job threw" });

  const facts = await factsOf(store, () => store.hold(lease, hold, [aProgress({ current: 3 })]));

  assert.deepEqual(facts, [
    [lease.runId, "progressed", FAKE_START, { current: 3 }],
    [lease.runId, "held", "ended_early", "the job threw"],
  ]);
  assert.deepEqual((await getRun(store, lease.runId))!.progress, { current: 3 });
});
