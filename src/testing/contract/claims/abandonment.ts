import assert from "node:assert/strict";
import { LeaseLostError } from "../../../model/error.ts";
import type { Run } from "../../../model/run.ts";
import type { Store } from "../../../store/store.ts";
import type { NewRun } from "../../../store/new_run.ts";
import { isoTime } from "../../../values/iso_time.ts";
import { A_JOB, aClaimRequest, aKnownJob, aPause, aRun, aStep } from "../fixtures.ts";
import { add, claimedIds, claimOne, complete, park, prepare, startRun } from "../arrange.ts";
import type { FakeHost } from "../../fake_host.ts";
import { newCases } from "../case.ts";
import { getRun, getRuns, getWaits } from "../../../store/reads.ts";

const { cases, test, timed } = newCases();

/** A request for a run that is claimed alone. */
const ALONE = { isAlone: true, limit: 1 };

/** Adds a run, and lets two leases of it expire. The second of them is revoked. */
async function abandonTwice(store: Store, host: FakeHost, overrides: Partial<NewRun> = {}): Promise<Run> {
  const { run } = await add(store, overrides);
  for (let times = 0; times < 2; times++) {
    await claimOne(store);
    host.advance(1_000);
  }
  await store.claim(aClaimRequest({ limit: 0 }));
  return run;
}

/** What `Store.claim()` promises of leases that have expired. */
export const abandonmentCases = cases;

timed("claim() takes a lease away at the instant at which it expires", async ({ store, host }) => {
  const stale = await startRun(store);
  host.advance(999);
  const before = await store.claim(aClaimRequest());
  host.advance(1);

  const after = await store.claim(aClaimRequest({ workerId: "worker-b", claimId: "claim-2" }));

  assert.deepEqual(before.claims, []);
  assert.deepEqual(after.claims.map(({ lease }) => lease), [{ ...stale.lease, generation: 3, claimId: "claim-2" }]);
});

timed("claim() counts an interruption, and keeps when the run was first started", async ({ store, host }) => {
  await startRun(store);
  host.advance(5_000);

  const claim = await claimOne(store);

  assert.equal(claim.execution, 2);
  assert.equal(claim.startedAgoMs, 5_000);
});

timed("claim() takes expired leases away whatever the job", async ({ store, host }) => {
  const stale = await startRun(store);
  host.advance(1_000);

  await store.claim(aClaimRequest({ jobNames: ["export"], limit: 0 }));

  const run = await getRun(store, stale.run.id);
  assert.equal(run!.status, "pending");
  assert.equal(run!.leaseOwner, null);
  assert.equal(run!.leaseExpiresAt, null);
  assert.equal(run!.leaseGeneration, 2);
});

timed("claim() does not give a lease back that a clock set back makes last again", async ({ store, host }) => {
  const stale = await startRun(store);
  host.advance(1_000);
  await store.claim(aClaimRequest({ limit: 0 }));
  host.jump(-60_000);

  const write = store.saveStep(stale.lease, aStep(), []);

  await assert.rejects(write, LeaseLostError);
});

timed("claim() gives an interrupted run its old place", async ({ store, host }) => {
  const stale = await startRun(store);
  const { run: younger } = await add(store);
  host.advance(1_000);

  const { claims } = await store.claim(aClaimRequest());

  assert.deepEqual(claims.map(({ run }) => run.id), [stale.run.id, younger.id]);
});

timed("claim() fails a run that was abandoned too often, and says so", async ({ store, host }) => {
  const { run } = await add(store, { labels: { org: "acme" } });
  const maxAbandonments = 3;
  for (let attempt = 1; attempt <= 3; attempt++) {
    await claimOne(store, { isAlone: attempt === 3 });
    host.advance(1_000);
    if (attempt !== 2) continue;
    await store.claim(aClaimRequest({ limit: 0 }));
    host.advance(250);
    await store.claim(aClaimRequest({ limit: 0 }));
  }

  const { claims, failed } = await store.claim(aClaimRequest({ maxAbandonments }));

  const found = await getRun(store, run.id);
  assert.deepEqual(claims, []);
  assert.deepEqual(failed, [{
    run: { id: run.id, jobName: A_JOB, labels: { org: "acme" } },
    error: found!.error!,
    failureKind: "abandoned",
  }]);
  assert.match(found!.error!, /^Abandoned 3 times in a row/);
  assert.equal(found!.status, "failed");
  const failure = { kind: "abandoned", name: "Error", message: found!.error, stack: null, cause: null };
  assert.deepEqual([found!.failure, found!.failedStepName], [failure, null]);
  assert.equal(found!.completedAt, isoTime(host.now()));
  assert.equal(found!.leaseOwner, null);
});

timed("claim() closes the waits of a run that was abandoned too often", async ({ store, host }) => {
  const { lease, run } = await startRun(store);
  await prepare(store, lease, aPause({ name: "early", deadline: { afterMs: 100 } }), aPause({ name: "open" }));
  host.advance(1_000);

  await store.claim(aClaimRequest({ maxAbandonments: 1 }));

  const waits = await getWaits(store, run.id);
  assert.deepEqual(waits.map(({ status, outcome }) => [status, outcome]), [["resolved", "timeout"], ["closed", null]]);
});

timed("claim() fails abandoned runs whatever the job", async ({ store, host }) => {
  const { run } = await startRun(store);
  host.advance(1_000);

  const { failed } = await store.claim(aClaimRequest({ jobNames: [], limit: 0, maxAbandonments: 1 }));

  assert.deepEqual(failed.map((failure) => failure.run.id), [run.id]);
});

timed("claim() does not count the abandonments of a worker that held other runs", async ({ store, host }) => {
  const [first, second] = [await add(store), await add(store)];
  await store.claim(aClaimRequest({ limit: 2 }));
  host.advance(1_000);
  const held = await claimOne(store, { workerId: "worker-b" });
  await claimOne(store, { workerId: "worker-b", holding: [held.lease] });
  host.advance(1_000);

  const { failed } = await store.claim(aClaimRequest({ limit: 0, maxAbandonments: 1 }));

  const runs = await Promise.all([first, second].map(({ run }) => getRun(store, run.id)));
  assert.deepEqual(failed, []);
  assert.deepEqual(runs.map((run) => run!.status), ["pending", "pending"]);
});

timed("claim() takes a run alone that was abandoned twice in a row, after a delay", async ({ store, host }) => {
  const run = await abandonTwice(store, host);
  const { run: other } = await add(store);
  const early = await claimedIds(store, ALONE);
  const { nextTimerAt } = await store.claim(aClaimRequest({ limit: 0 }));
  host.advance(250);

  const { claims, aloneSince } = await store.claim(aClaimRequest());
  const alone = await store.claim(aClaimRequest({ ...ALONE, workerId: "worker-b" }));

  assert.deepEqual(early, []);
  assert.equal(nextTimerAt, host.now());
  assert.deepEqual(claims.map((claim) => claim.run.id), [other.id]);
  assert.equal(aloneSince, host.now());
  assert.deepEqual(alone.claims.map((claim) => claim.run.id), [run.id]);
  assert.equal(alone.aloneSince, null);
});

timed(
  "claim() says that there is more while a run is claimed alone and it has taken another",
  async ({ store, host }) => {
    await abandonTwice(store, host);
    await add(store);
    host.advance(250);
    await store.claim(aClaimRequest({ limit: 0 }));

    const taking = await store.claim(aClaimRequest());
    const idle = await store.claim(aClaimRequest());

    assert.deepEqual([taking, idle].map(({ claims, hasMore }) => [claims.length, hasMore]), [[1, true], [0, false]]);
  },
);

timed("claim() waits longer for a run that is claimed alone with each abandonment", async ({ store, host }) => {
  await abandonTwice(store, host);
  const delays: number[] = [];

  for (let times = 0; times < 4; times++) {
    const { nextTimerAt } = await store.claim(aClaimRequest({ limit: 0 }));
    delays.push(nextTimerAt! - host.now());
    host.advance(delays.at(-1)!);
    await store.claim(aClaimRequest(ALONE));
    host.advance(1_000);
  }

  assert.deepEqual(delays, [250, 500, 750, 1_000]);
});

timed("claim() fails a run when it was abandoned alone too often", async ({ store, host }) => {
  const { run } = await add(store);
  await add(store);
  for (let times = 0; times < 2; times++) {
    await store.claim(aClaimRequest({ limit: 2 }));
    host.advance(1_000);
  }
  await store.claim(aClaimRequest({ limit: 0 }));
  host.advance(250);
  await store.claim(aClaimRequest({ ...ALONE, maxAbandonments: 1 }));
  host.advance(1_000);

  const { failed } = await store.claim(aClaimRequest({ limit: 0, maxAbandonments: 1 }));

  assert.deepEqual(failed.map((failure) => failure.run.id), [run.id]);
  assert.match(failed[0]!.error, /^Abandoned 3 times in a row/);
});

timed("claim() takes a run with others again once it has recorded a step", async ({ store, host }) => {
  const run = await abandonTwice(store, host);
  host.advance(250);
  await store.claim(aClaimRequest({ limit: 0 }));
  const { lease } = await claimOne(store, ALONE);
  await store.saveStep(lease, aStep(), []);
  host.advance(1_000);

  const { claims, aloneSince } = await store.claim(aClaimRequest());

  assert.deepEqual(claims.map((claim) => claim.run.id), [run.id]);
  assert.equal(aloneSince, null);
});

timed("release() leaves a run to be claimed alone, without another delay", async ({ store, host }) => {
  const run = await abandonTwice(store, host);
  host.advance(250);
  await store.claim(aClaimRequest({ limit: 0 }));
  const { lease } = await claimOne(store, ALONE);
  await store.release(lease, []);

  const { claims, aloneSince } = await store.claim(aClaimRequest());
  const alone = await claimedIds(store, ALONE);

  assert.deepEqual([claims, aloneSince, alone], [[], host.now(), [run.id]]);
});

timed("claim() tells of a run that is claimed alone only the first of the workers that hold runs", async ({
  store,
  host,
}) => {
  await abandonTwice(store, host);
  const { lease } = await startRun(store, { jobName: "export" });
  host.advance(250);
  await store.claim(aClaimRequest({ workerId: "worker-a", limit: 0 }));
  const request = { workerId: "worker-b", limit: 0 };

  const holding = await store.claim(aClaimRequest({ ...request, claimId: "claim-1", holding: [lease] }));
  const idle = await store.claim(aClaimRequest({ ...request, claimId: "claim-2" }));
  const first = await store.claim(aClaimRequest({ workerId: "worker-0", limit: 0, holding: [lease] }));

  assert.deepEqual([holding, idle, first].map(({ aloneSince }) => aloneSince), [null, host.now(), host.now()]);
});

timed(
  "claim() tells of no run that is claimed alone while another run holds its key, unless its job has a limit",
  async ({
    store,
    host,
  }) => {
    const run = await abandonTwice(store, host, { concurrencyKey: "acme" });
    await add(store, { concurrencyKey: "acme" });
    const { lease } = await claimOne(store, { leaseMs: 60_000 });
    host.advance(250);
    await store.claim(aClaimRequest({ limit: 0 }));
    const request = { limit: 0, holding: [lease] };

    const during = await store.claim(aClaimRequest(request));
    const limited = await store.claim(
      aClaimRequest({ ...request, jobs: [aKnownJob({ name: A_JOB, concurrency: 1 })] }),
    );
    await complete(store, lease);
    const after = await store.claim(aClaimRequest({ limit: 0 }));

    assert.deepEqual([during, limited, after].map(({ aloneSince }) => aloneSince), [null, host.now(), host.now()]);
    assert.deepEqual(await claimedIds(store, ALONE), [run.id]);
  },
);

timed("claim() leaves a run that is claimed alone its place in the queue of its key", async ({ store, host }) => {
  const run = await abandonTwice(store, host, { concurrencyKey: "acme" });
  const younger = await add(store, { concurrencyKey: "acme" });
  const during = await claimOne(store);
  await complete(store, during.lease);
  const { run: youngest } = await add(store, { concurrencyKey: "acme" });
  host.advance(250);
  const before = await claimedIds(store);
  const { lease } = await claimOne(store, ALONE);
  await complete(store, lease);

  const after = await claimedIds(store);

  assert.equal(during.run.id, younger.run.id);
  assert.deepEqual(before, []);
  assert.equal(lease.runId, run.id);
  assert.deepEqual(after, [youngest.id]);
});

timed("enqueue() coalesces onto a run that waits to be claimed alone", async ({ store, host }) => {
  const run = await abandonTwice(store, host, { concurrencyKey: "acme" });

  const joined = await add(store, { concurrencyKey: "acme", coalesce: "skip" });

  assert.deepEqual([joined.disposition, joined.run.id], ["coalesced", run.id]);
});

timed("getBlockers() says that a run is claimed alone, and when", async ({ store, host }) => {
  const run = await abandonTwice(store, host);

  const delayed = await store.getBlockers(run.id);
  host.advance(250);
  await store.claim(aClaimRequest({ limit: 0 }));
  const due = await store.getBlockers(run.id);

  assert.deepEqual(delayed!.blockers, [{ kind: "alone", abandonments: 2, until: host.now() }]);
  assert.deepEqual(due!.blockers, [{ kind: "alone", abandonments: 2, until: null }]);
});

timed("claim() counts abandonments anew once a step is recorded", async ({ store, host }) => {
  const { lease, run } = await startRun(store);
  host.advance(1_000);
  const second = await claimOne(store);
  await store.saveStep(second.lease, aStep(), []);
  host.advance(1_000);

  const { failed, claims } = await store.claim(aClaimRequest({ maxAbandonments: 2 }));

  assert.deepEqual(failed, []);
  assert.equal(claims[0]!.run.id, run.id);
  assert.equal(claims[0]!.lease.generation, lease.generation + 4);
});

timed("claim() counts abandonments anew once the run has paused", async ({ store, host }) => {
  await startRun(store);
  host.advance(1_000);
  const second = await claimOne(store);
  await park(store, second.lease, aPause({ kind: "sleep", deadline: { afterMs: 10 } }));
  host.advance(10);
  await claimOne(store);
  host.advance(1_000);

  const { failed } = await store.claim(aClaimRequest({ maxAbandonments: 2 }));

  assert.deepEqual(failed, []);
});

test("claim() counts a lease that was handed back as no abandonment", async ({ store }) => {
  const { lease } = await startRun(store);
  await store.release(lease, []);

  const { claims, failed } = await store.claim(aClaimRequest({ maxAbandonments: 1 }));

  assert.equal(claims.length, 1);
  assert.deepEqual(failed, []);
});

timed("claim() works off any number of expired leases, in several calls", async ({ store, host }) => {
  await store.enqueue(Array.from({ length: 250 }, () => aRun()));
  for (let no = 1; no <= 250; no++) await claimOne(store, { workerId: `worker-${no}` });
  host.advance(1_000);

  const failed = [];
  let hasMore = true;
  for (let calls = 0; hasMore && calls < 250; calls++) {
    const result = await store.claim(aClaimRequest({ maxAbandonments: 1 }));
    failed.push(...result.failed);
    hasMore = result.hasMore;
  }

  assert.equal(failed.length, 250);
  assert.equal((await getRuns(store, { status: "failed" })).total, 250);
});
