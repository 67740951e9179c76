import assert from "node:assert/strict";
import { isoTime } from "../../../values/iso_time.ts";
import { FAKE_START } from "../../fake_host.ts";
import { A_JOB, aClaimRequest, aFlow, aPause } from "../fixtures.ts";
import { add, addIds, claimedIds, claimOne, complete, park, startRun } from "../arrange.ts";
import { newCases } from "../case.ts";
import { getPausedJobs, getRun, getRuns, hasWorker } from "../../../store/reads.ts";

const { cases, test, timed } = newCases();

/** What a store promises of paused jobs. */
export const jobPauseCases = cases;

const BY = { by: "ann", note: "the import is broken" };
const NOBODY = { by: null, note: null };

timed("pauseJob() answers the pause, and getPausedJobs() lists it", async ({ store, host }) => {
  host.advance(250);

  const pause = await store.pauseJob(A_JOB, BY);

  assert.deepEqual(pause, { jobName: A_JOB, since: isoTime(FAKE_START + 250), ...BY });
  assert.deepEqual(await getPausedJobs(store), [pause]);
});

timed("pauseJob() keeps the pause of a job that is paused already", async ({ store, host }) => {
  const first = await store.pauseJob(A_JOB, BY);
  host.advance(250);

  const again = await store.pauseJob(A_JOB, NOBODY);

  assert.deepEqual(again, first);
  assert.deepEqual(await getPausedJobs(store), [first]);
});

test("getPausedJobs() lists the paused jobs in the order of their names", async ({ store }) => {
  for (const name of ["report", "Zip", "import", "export"]) await store.pauseJob(name, NOBODY);
  await store.resumeJob("import");

  const paused = await getPausedJobs(store);

  assert.deepEqual(paused.map(({ jobName }) => jobName), ["Zip", "export", "report"]);
});

test("getPausedJobs() lists nothing if no job is paused", async ({ store }) => {
  assert.deepEqual(await getPausedJobs(store), []);
});

test("resumeJob() answers whether the job was paused", async ({ store }) => {
  await store.pauseJob(A_JOB, NOBODY);

  const answers = [await store.resumeJob("export"), await store.resumeJob(A_JOB), await store.resumeJob(A_JOB)];

  assert.deepEqual(answers, [false, true, false]);
  assert.deepEqual(await getPausedJobs(store), []);
});

timed("pauseJob() pauses a job anew that was resumed", async ({ store, host }) => {
  await store.pauseJob(A_JOB, BY);
  await store.resumeJob(A_JOB);
  host.advance(250);

  const pause = await store.pauseJob(A_JOB, NOBODY);

  assert.deepEqual(pause, { jobName: A_JOB, since: isoTime(FAKE_START + 250), ...NOBODY });
});

test("claim() takes no run of a paused job, and has no more to do", async ({ store }) => {
  const { run } = await add(store);
  await store.pauseJob(A_JOB, NOBODY);

  for (const limit of [0, 10]) {
    const { claims, hasMore, nextTimerAt } = await store.claim(aClaimRequest({ limit }));
    assert.deepEqual([claims, hasMore, nextTimerAt], [[], false, null]);
  }
  assert.deepEqual(await getRun(store, run.id), run);
});

test("claim() takes the runs of a paused job when it is resumed, in their order", async ({ store }) => {
  const [one] = await addIds(store, {});
  await store.pauseJob(A_JOB, NOBODY);
  const [two, urgent] = await addIds(store, {}, { flow: aFlow({ priority: 1 }) });

  await store.resumeJob(A_JOB);

  assert.deepEqual(await claimedIds(store), [urgent, one, two]);
});

test("claim() takes the runs of other jobs while one is paused", async ({ store }) => {
  const [, other] = await addIds(store, {}, { jobName: "export" });
  await store.pauseJob(A_JOB, NOBODY);

  const { claims, hasMore } = await store.claim(aClaimRequest({ jobNames: [A_JOB, "export"], limit: 1 }));

  assert.deepEqual([claims.map(({ run }) => run.id), hasMore], [[other], false]);
});

timed("pauseJob() lets runs go on that are executed", async ({ store, host }) => {
  const { lease } = await startRun(store);
  await store.pauseJob(A_JOB, NOBODY);
  host.advance(500);

  const renewed = await store.renew([{ lease, reports: [] }], 1_000);
  await complete(store, lease);

  assert.deepEqual(renewed, [FAKE_START + 1_500]);
  assert.equal((await getRun(store, lease.runId))?.status, "completed");
});

test("claim() returns the runs again that it claimed before the job was paused, if it is repeated", async ({ store }) => {
  const { run } = await add(store);
  const request = aClaimRequest();
  await store.claim(request);
  await store.pauseJob(A_JOB, NOBODY);

  const { claims } = await store.claim(request);

  assert.deepEqual(claims.map((claim) => claim.run.id), [run.id]);
});

timed("claim() takes no interrupted run of a paused job", async ({ store, host }) => {
  const released = await startRun(store);
  await startRun(store);
  await store.pauseJob(A_JOB, NOBODY);
  await store.release(released.lease, []);
  host.advance(1_000);

  const { claims, hasMore, nextTimerAt } = await store.claim(aClaimRequest());

  assert.deepEqual([claims, hasMore, nextTimerAt], [[], false, null]);
  assert.deepEqual((await getRuns(store, { status: "pending" })).total, 2);
});

timed("claim() processes the timers of a paused job", async ({ store, host }) => {
  const { lease } = await startRun(store);
  const review = aPause({ deadline: { afterMs: 400 } });
  await park(store, lease, review);
  await add(store, { flow: aFlow({ start: { afterMs: 500 } }) });
  await store.pauseJob(A_JOB, NOBODY);
  const first = await store.claim(aClaimRequest());
  host.advance(400);
  const second = await store.claim(aClaimRequest());
  host.advance(100);
  const third = await store.claim(aClaimRequest());

  assert.deepEqual(
    [first, second, third].map(({ nextTimerAt }) => nextTimerAt),
    [FAKE_START + 400, FAKE_START + 500, null],
  );
  assert.deepEqual([first, second, third].flatMap(({ claims }) => claims), []);
  assert.equal((await store.getWait(review.id))?.outcome, "timeout");
  await store.resumeJob(A_JOB);
  assert.equal((await claimedIds(store)).length, 2);
});

test("signal() is accepted by a run of a paused job, which resumes when the job does", async ({ store }) => {
  const { lease } = await startRun(store);
  const review = aPause();
  await park(store, lease, review);
  await store.pauseJob(A_JOB, NOBODY);

  const { disposition } = await store.signal(review.id, { signalId: "s1", payload: null });
  const during = await claimedIds(store);
  await store.resumeJob(A_JOB);

  assert.deepEqual([disposition, during], ["accepted", []]);
  assert.deepEqual(await claimedIds(store), [lease.runId]);
});

test("pauseJob() lets the runs of other jobs pass the paused ones of their key", async ({ store }) => {
  const jobNames = [A_JOB, "export"];
  await store.claim(aClaimRequest({ workerId: "worker-x", jobNames: [A_JOB], limit: 0 }));
  const [paused, other] = await addIds(
    store,
    { concurrencyKey: "cust-1" },
    { concurrencyKey: "cust-1", jobName: "export" },
  );
  const held = await claimedIds(store, { jobNames: ["export"] });

  await store.pauseJob(A_JOB, NOBODY);

  assert.deepEqual(held, []);
  const { lease } = await claimOne(store, { jobNames: ["export"] });
  assert.equal(lease.runId, other);
  await store.resumeJob(A_JOB);
  assert.deepEqual(await claimedIds(store, { jobNames }), []);
  await store.cancel(other!, "c1", null);
  await store.release(lease, []);
  assert.deepEqual(await claimedIds(store, { jobNames }), [paused]);
});

test("pauseJob() lets the runs of other jobs pass a paused one that wants the key for itself", async ({ store }) => {
  const jobNames = [A_JOB, "export"];
  const flow = aFlow({ keyConcurrency: 5 });
  await startRun(store, { jobName: "export", concurrencyKey: "cust-1", flow });
  const [, other] = await addIds(
    store,
    { concurrencyKey: "cust-1" },
    { concurrencyKey: "cust-1", jobName: "export", flow },
  );

  await store.pauseJob(A_JOB, NOBODY);

  assert.deepEqual(await claimedIds(store, { jobNames }), [other]);
});

test("enqueue() adds runs of a paused job, and coalesces onto them", async ({ store }) => {
  await store.pauseJob(A_JOB, NOBODY);

  const { run } = await add(store, { concurrencyKey: "cust-1" });
  const joined = await add(store, { concurrencyKey: "cust-1", coalesce: "queue" });

  assert.deepEqual([run.status, joined.disposition, joined.run.id], ["pending", "coalesced", run.id]);
});

test("hasWorker() and cancel() take no notice of a pause", async ({ store }) => {
  const { run } = await add(store);
  await store.pauseJob(A_JOB, NOBODY);
  await store.claim(aClaimRequest());

  assert.equal(await hasWorker(store, A_JOB), true);
  assert.equal((await store.cancel(run.id, "c1", null))?.status, "cancelled");
});
