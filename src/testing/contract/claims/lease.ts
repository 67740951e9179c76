import assert from "node:assert/strict";
import { LeaseLostError } from "../../../model/error.ts";
import { uuidV7 } from "../../../model/host.ts";
import type { Lease } from "../../../model/lease.ts";
import { isoTime } from "../../../values/iso_time.ts";
import { FAKE_START } from "../../fake_host.ts";
import { aClaimRequest, aPause, aProgress, aRun, aStep } from "../fixtures.ts";
import { claimOne, complete, look, park, startRun } from "../arrange.ts";
import { newCases } from "../case.ts";
import { getRun } from "../../../store/reads.ts";

const { cases, test, timed } = newCases();

/** What a store promises of keeping, giving back and taking away leases. */
export const leaseCases = cases;

timed("renew() extends a lease from now", async ({ store, host }) => {
  const { lease } = await startRun(store);
  host.advance(600);

  const ends = await store.renew([{ lease, reports: [] }], 1_000);

  const run = await getRun(store, lease.runId);
  assert.deepEqual(ends, [FAKE_START + 1_600]);
  assert.equal(run!.leaseExpiresAt, isoTime(FAKE_START + 1_600));
  assert.equal(run!.updatedAt, isoTime(FAKE_START + 600));
});

timed("renew() keeps the lease from being taken away", async ({ store, host }) => {
  const { lease } = await startRun(store);
  host.advance(600);
  await store.renew([{ lease, reports: [] }], 1_000);
  host.advance(999);

  const { claims } = await store.claim(aClaimRequest({ workerId: "worker-b" }));

  assert.deepEqual(claims, []);
});

timed(
  "renew() never shortens a lease, and shows that it was renewed after the clock was set back",
  async ({ store, host }) => {
    const { lease } = await startRun(store);
    host.jump(-60_000);

    const ends = await store.renew([{ lease, reports: [] }], 500);

    assert.deepEqual(ends, [FAKE_START + 1_001]);
  },
);

timed("renew() renews a lease that has expired as long as nobody has taken it away", async ({ store, host }) => {
  const { lease } = await startRun(store);
  host.advance(5_000);

  const ends = await store.renew([{ lease, reports: [] }], 1_000);

  assert.deepEqual(ends, [FAKE_START + 6_000]);
});

test("release() keeps the progress that comes along, under a current lease only", async ({ store }) => {
  const { lease } = await startRun(store);

  await store.release(lease, [aProgress({ current: 1 })]);
  await store.release(lease, [aProgress({ current: 2 }, 2)]);

  const { status, progress } = (await getRun(store, lease.runId))!;
  assert.deepEqual([status, progress], ["pending", { current: 1 }]);
});

timed("getLostLeases() answers the leases that are no longer current", async ({ store, host }) => {
  const [current, released, ended, cancelled, parked] = [
    await startRun(store),
    await startRun(store),
    await startRun(store),
    await startRun(store),
    await startRun(store),
  ].map(({ lease }) => lease) as [Lease, Lease, Lease, Lease, Lease];
  await store.release(released, []);
  await complete(store, ended);
  await store.cancel(cancelled.runId, "c1", null);
  await park(store, parked, aPause());
  const unknown = { runId: uuidV7(FAKE_START), generation: 1, claimId: "none", recorded: 0, concurrencyKey: null };
  const before = { ...current, generation: 0 };
  host.advance(5_000);

  const lost = await store.getLostLeases([current, released, ended, cancelled, parked, unknown, before]);

  assert.deepEqual(lost, [released, ended, cancelled, parked, unknown, before]);
  assert.deepEqual(await store.getLostLeases([]), []);
});

timed("renew() answers in the order of the renewals, null for those that are lost", async ({ store, host }) => {
  const [given, kept, ended, cancelled, parked] = [
    await startRun(store),
    await startRun(store),
    await startRun(store),
    await startRun(store),
    await startRun(store),
  ];
  await complete(store, ended.lease);
  await store.cancel(cancelled.run.id, "c1", null);
  await park(store, parked.lease, aPause());
  await store.release(given.lease, []);
  const stranger = { runId: uuidV7(FAKE_START), generation: 1, claimId: "none", recorded: 0, concurrencyKey: null };

  const ends = await store.renew(
    [given.lease, kept.lease, ended.lease, cancelled.lease, parked.lease, stranger]
      .map((lease) => ({ lease, reports: [] })),
    2_000,
  );

  assert.deepEqual(ends, [null, host.now() + 2_000, null, null, null, null]);
});

test("renew() keeps the progress that comes along, and the earlier one if none comes", async ({ store }) => {
  const { lease } = await startRun(store);

  await store.renew([{ lease, reports: [aProgress({ current: 1, total: 3 })] }], 1_000);
  await store.renew([{ lease, reports: [] }], 1_000);

  assert.deepEqual((await getRun(store, lease.runId))!.progress, { current: 1, total: 3 });
});

test("renew() keeps no progress of a lease that is lost", async ({ store }) => {
  const { lease } = await startRun(store);
  await store.release(lease, []);
  const before = await look(store, lease.runId);

  await store.renew([{ lease, reports: [aProgress({ current: 1 })] }], 1_000);

  assert.deepEqual(await look(store, lease.runId), before);
});

timed("release() makes the run pending at once, under no lease", async ({ store, host }) => {
  const { lease } = await startRun(store);
  host.advance(100);

  await store.release(lease, []);

  const run = await getRun(store, lease.runId);
  assert.equal(run!.status, "pending");
  assert.equal(run!.leaseOwner, null);
  assert.equal(run!.leaseExpiresAt, null);
  assert.equal(run!.leaseGeneration, 2);
  assert.equal(run!.startedAt, isoTime(FAKE_START));
  assert.equal(run!.updatedAt, isoTime(FAKE_START + 100));
});

test("release() counts as an interruption", async ({ store }) => {
  const { lease } = await startRun(store);

  await store.release(lease, []);

  const again = await claimOne(store);
  assert.equal(again.execution, 2);
  assert.equal(again.lease.generation, 3);
});

test("release() ends the right to write", async ({ store }) => {
  const { lease } = await startRun(store);

  await store.release(lease, []);

  await assert.rejects(store.saveStep(lease, aStep(), []), LeaseLostError);
});

timed("release() does nothing for a lease that is none any more", async ({ store, host }) => {
  const { lease } = await startRun(store);
  host.advance(1_000);
  await claimOne(store, { workerId: "worker-b" });
  const before = await look(store, lease.runId);

  await store.release(lease, []);
  await store.release({ ...lease, runId: uuidV7(FAKE_START) }, []);

  assert.deepEqual(await look(store, lease.runId), before);
});

test("release() does nothing when it is repeated", async ({ store }) => {
  const { lease } = await startRun(store);
  await store.release(lease, []);
  const before = await look(store, lease.runId);

  await store.release(lease, []);

  assert.deepEqual(await look(store, lease.runId), before);
});

timed("getLeases() shows every lease", async ({ store }) => {
  await store.enqueue([aRun(), aRun({ concurrencyKey: "cust-1" }), aRun()]);
  const { claims } = await store.claim(aClaimRequest({ limit: 2, leaseMs: 700 }));

  const leases = await store.getLeases();

  assert.deepEqual(
    leases.toSorted((left, right) => left.runId < right.runId ? -1 : 1),
    claims.map(({ lease }) => ({ ...lease, expiresAt: FAKE_START + 700, leaseMs: 700 }))
      .toSorted((left, right) => left.runId < right.runId ? -1 : 1),
  );
});

test("getLeases() shows no lease of a run that has ended, waits, or was given back", async ({ store }) => {
  const [ended, parked, given] = [await startRun(store), await startRun(store), await startRun(store)];
  await complete(store, ended.lease);
  await park(store, parked.lease, aPause());
  await store.release(given.lease, []);

  const leases = await store.getLeases();

  assert.deepEqual(leases, []);
});

test("revoke() takes a lease away before it expires", async ({ store }) => {
  const { lease } = await startRun(store);

  await store.revoke(await store.getLeases());

  const again = await claimOne(store, { workerId: "worker-b" });
  assert.deepEqual(again.lease, { ...lease, generation: 3, claimId: again.lease.claimId });
  assert.equal(again.execution, 2);
  await assert.rejects(store.saveStep(lease, aStep(), []), LeaseLostError);
});

timed("revoke() leaves a lease that was renewed since it was seen", async ({ store, host }) => {
  const { lease } = await startRun(store);
  const seen = await store.getLeases();
  host.advance(1);
  await store.renew([{ lease, reports: [] }], 1_000);

  await store.revoke(seen);

  await assert.doesNotReject(store.saveStep(lease, aStep(), []));
});

test("revoke() leaves the lease of a worker that came after", async ({ store }) => {
  const { lease } = await startRun(store);
  const seen = await store.getLeases();
  await store.release(lease, []);
  const next = await claimOne(store, { workerId: "worker-b" });

  await store.revoke(seen);

  await assert.doesNotReject(store.saveStep(next.lease, aStep(), []));
});

test("revoke() is harmless for runs that have ended or are gone", async ({ store }) => {
  const ended = await startRun(store);
  const gone = await startRun(store);
  const seen = await store.getLeases();
  await complete(store, ended.lease);
  await complete(store, gone.lease);
  await store.delete(gone.run.id);
  const before = await look(store, ended.run.id);

  await store.revoke(seen);

  assert.deepEqual(await look(store, ended.run.id), before);
});

timed("revoke() counts as an abandonment", async ({ store, host }) => {
  const { run } = await startRun(store);
  await store.revoke(await store.getLeases());
  await claimOne(store, { maxAbandonments: 2 });
  host.advance(1_000);

  const { failed } = await store.claim(aClaimRequest({ maxAbandonments: 2 }));

  assert.deepEqual(failed.map((failure) => failure.run.id), [run.id]);
});

timed(
  "claim() extends the expired leases that its worker still holds, and takes those of others",
  async ({ store, host }) => {
    const [held, lost] = [await startRun(store), await startRun(store)];
    host.advance(5_000);

    const { claims } = await store.claim(aClaimRequest({ holding: [held.lease], limit: 5, leaseMs: 700 }));

    assert.deepEqual(claims.map(({ run }) => run.id), [lost.run.id]);
    assert.equal((await getRun(store, held.run.id))!.leaseExpiresAt, isoTime(FAKE_START + 5_700));
  },
);
