import assert from "node:assert/strict";
import { LeaseLostError } from "../../../model/error.ts";
import type { Lease } from "../../../model/lease.ts";
import type { Store } from "../../../store/store.ts";
import type { NewChildren } from "../../../store/pause_request.ts";
import { A_JOB, aClaimRequest, aHold, aPause, aProgress, aRun, aStep } from "../fixtures.ts";
import { claimedIds, claimOne, complete, look, NO_PAUSE, park, prepare, startRun } from "../arrange.ts";
import { newCases } from "../case.ts";
import { getSteps } from "../../../store/reads.ts";

const { cases, test, timed } = newCases();

/**
 * What a store promises if a lease names another claim, or more records than the run has: after a failover to a standby
 * that lacks the last commits, a generation is given out again, and workers know what the standby does not.
 */
export const fenceCases = cases;

/** The writes that are refused under a lease that is not current. */
const WRITES: Record<string, (store: Store, lease: Lease) => Promise<unknown>> = {
  saveStep: (store, lease) => store.saveStep(lease, aStep({ name: "stale" }), [aProgress({ current: 1 })]),
  pause: (store, lease) => prepare(store, lease, aPause({ name: "stale" })),
  park: (store, lease) => store.pause(lease, { ...NO_PAUSE, pauses: [aPause({ name: "stale" })], park: true }),
  finish: (store, lease) => complete(store, lease),
  hold: (store, lease) => store.hold(lease, aHold(), []),
  saveInput: (store, lease) => store.saveInput(lease, "print-2", '"stale"'),
};

for (const [name, write] of Object.entries(WRITES)) {
  test(`${name} is refused under the same generation of another claim`, async ({ store }) => {
    const { lease } = await startRun(store);
    const before = await look(store, lease.runId);

    const writing = write(store, { ...lease, claimId: "another" });

    await assert.rejects(writing, LeaseLostError);
    assert.deepEqual(await look(store, lease.runId), before);
    await assert.doesNotReject(write(store, lease));
  });

  test(`${name} is refused if the run has fewer records than its holder knows`, async ({ store }) => {
    const { lease } = await startRun(store);
    const { recordedNo } = await store.saveStep(lease, aStep(), []);
    const before = await look(store, lease.runId);

    const writing = write(store, { ...lease, recorded: recordedNo + 1 });

    await assert.rejects(writing, LeaseLostError);
    assert.deepEqual(await look(store, lease.runId), before);
    await assert.doesNotReject(write(store, { ...lease, recorded: recordedNo }));
  });

  test(`${name} is accepted if the run has more records than its holder knows`, async ({ store }) => {
    const { lease } = await startRun(store);
    const { pauses: [wait] } = await prepare(store, lease, aPause());
    await store.signal(wait!.id, { signalId: "s1", payload: 1 });

    await assert.doesNotReject(write(store, lease));
  });
}

test("claim() says how many records the run has, and which claim has given the lease", async ({ store }) => {
  const first = await startRun(store);
  await store.saveStep(first.lease, aStep(), []);
  await store.release(first.lease, []);
  const claimId = crypto.randomUUID();

  const second = await claimOne(store, { claimId });
  const repeated = await store.claim(aClaimRequest({ claimId, limit: 1 }));

  assert.deepEqual([first.lease.recorded, second.lease.recorded], [0, 1]);
  assert.equal(second.lease.claimId, claimId);
  assert.deepEqual(repeated.claims.map(({ lease }) => lease), [second.lease]);
});

test("getLostLeases() and renew() show that a lease is of another claim, or knows more", async ({ store }) => {
  const { lease } = await startRun(store);
  const stale = [{ ...lease, claimId: "another" }, { ...lease, recorded: 1 }];

  const lost = await store.getLostLeases([...stale, lease]);
  const ends = await store.renew([...stale, lease].map((lease) => ({ lease, reports: [] })), 1_000);

  assert.deepEqual(lost, stale);
  assert.deepEqual(ends.map((end) => end === null), [true, true, false]);
});

timed("claim() does not extend a lease of another claim that its worker seems to hold", async ({ store, host }) => {
  const { lease, run } = await startRun(store);
  host.advance(1_000);

  const { claims } = await store.claim(aClaimRequest({ holding: [{ ...lease, claimId: "another" }] }));

  assert.deepEqual(claims.map((claim) => claim.run.id), [run.id]);
});

test("release() under another claim does nothing", async ({ store }) => {
  const { lease } = await startRun(store);
  const before = await look(store, lease.runId);

  await store.release({ ...lease, claimId: "another" }, [aProgress({ current: 1 })]);

  assert.deepEqual(await look(store, lease.runId), before);
});

test("release() releases a run that has fewer records than its holder knows: others go on from there", async ({ store }) => {
  const { lease, run } = await startRun(store);

  await store.release({ ...lease, recorded: 1 }, []);

  assert.deepEqual(await claimedIds(store), [run.id]);
});

test("release() under another claim leaves the key of a cancelled run", async ({ store }) => {
  const { lease } = await startRun(store, { concurrencyKey: "key" });
  await store.cancel(lease.runId, "c1", null);
  await store.enqueue([aRun({ concurrencyKey: "key" })]);

  await store.release({ ...lease, claimId: "another" }, []);

  assert.deepEqual(await claimedIds(store), []);
  await store.release(lease, []);
  assert.equal((await claimedIds(store)).length, 1);
});

test("cancel() stores nothing of an execution under another claim", async ({ store }) => {
  const { lease } = await startRun(store);
  const steps = [{ name: "stale", index: 0, attempts: 1, startedAgoMs: 0 }];
  const execution = { lease: { ...lease, claimId: "another" }, steps, reports: [aProgress({ current: 1 })] };

  const run = await store.cancel(lease.runId, "c1", execution);

  assert.deepEqual([run!.status, run!.progress], ["cancelled", null]);
  assert.deepEqual(await getSteps(store, lease.runId), []);
});

test("a repeated finish(), hold() or pause() is known by its claim", async ({ store }) => {
  const [ended, held, parked] = [await startRun(store), await startRun(store), await startRun(store)];
  const request = { ...NO_PAUSE, pauses: [aPause()], park: true };
  await complete(store, ended.lease);
  await store.hold(held.lease, aHold(), []);
  await park(store, parked.lease, ...request.pauses);
  const stale = (lease: Lease) => ({ ...lease, claimId: "another" });

  await assert.rejects(complete(store, stale(ended.lease)), LeaseLostError);
  await assert.rejects(store.hold(stale(held.lease), aHold(), []), LeaseLostError);
  await assert.rejects(store.pause(stale(parked.lease), request), LeaseLostError);

  await complete(store, ended.lease);
  await store.hold(held.lease, aHold(), []);
  assert.equal((await store.pause(parked.lease, request)).parked, true);
});

test("a write is repeated after its holder has learned of what it recorded", async ({ store }) => {
  const { lease } = await startRun(store);
  const saved = await store.saveStep(lease, aStep(), []);

  const repeated = await store.saveStep({ ...lease, recorded: saved.recordedNo }, aStep(), []);

  assert.equal(repeated.recordedNo, saved.recordedNo);
});

test("parallel steps of a run are recorded, whatever each knew of the others when it was sent", async ({ store }) => {
  const { lease } = await startRun(store);
  const steps = Array.from({ length: 5 }, (_, index) => aStep({ name: `step ${index}`, index }));

  const saved = await Promise.all(steps.map((step) => store.saveStep(lease, step, [])));

  assert.deepEqual(saved.map(({ recordedNo }) => recordedNo).sort(), [1, 2, 3, 4, 5]);
});

test("pause() is refused if the run lacks children that were added before", async ({ store }) => {
  const { lease } = await startRun(store);
  const before = await look(store, lease.runId);
  const runs = [aRun({ jobName: "child" })];
  const ask = (children: NewChildren | null) =>
    prepare(store, lease, aPause({ kind: "children", name: "all", children }));

  await assert.rejects(ask(null), LeaseLostError);
  await assert.rejects(ask({ total: 3, from: 1, runs }), LeaseLostError);
  assert.deepEqual(await look(store, lease.runId), before);
  await ask({ total: 3, from: 0, runs });
  await assert.rejects(ask(null), LeaseLostError);
  await assert.rejects(ask({ total: 3, from: 2, runs }), LeaseLostError);
  await ask({ total: 3, from: 1, runs: [aRun({ jobName: "child" })] });

  assert.equal((await claimedIds(store, { jobNames: ["child"] })).length, 2);
  assert.deepEqual(await claimedIds(store, { jobNames: [A_JOB] }), []);
});
