import assert from "node:assert/strict";
import { noRuns } from "../../../statistics/no_runs.ts";
import type { JobStatistics, StatisticsRow } from "../../../store/operate.ts";
import { FAKE_START } from "../../fake_host.ts";
import { A_JOB, aClaimRequest, aFlow, aHold, aKnownJob, aPause, someDetails } from "../fixtures.ts";
import { add, addCompleted, addIds, claimedIds, claimOne, complete, park, startRun } from "../arrange.ts";
import { newCases } from "../case.ts";
import { addHeld, offering } from "./holds/arrange_holds.ts";

const { cases, test, timed } = newCases();

/** What a store promises of the numbers that operators read. */
export const operateCases = cases;

const MINUTE_MS = 60_000;
const NO_SAMPLE = { samples: 0, pending: 0, running: 0, waiting: 0, busy: 0 };

timed(
  "getWorkers() lists the workers by their first claims, with what they say of themselves",
  async ({ store, host }) => {
    await store.claim(aClaimRequest({ workerId: "worker-b", leaseMs: 5_000, jobNames: ["zip", "import"] }));
    host.advance(100);
    await startRun(store, {}, { workerId: "worker-a", leaseMs: 2_000, worker: someDetails({ name: "web-1", pid: 8 }) });
    await startRun(store, {}, { workerId: "worker-a", leaseMs: 2_000, worker: someDetails({ name: "web-2", pid: 8 }) });

    const { workers, now } = await store.getWorkers();

    assert.deepEqual({ workers, now }, {
      now: FAKE_START + 100,
      workers: [{
        id: "worker-b",
        details: someDetails(),
        jobNames: ["import", "zip"],
        startedAt: FAKE_START,
        seenAt: FAKE_START,
        isStopping: false,
        leases: 0,
        leaseMs: 5_000,
      }, {
        id: "worker-a",
        details: someDetails({ name: "web-2", pid: 8 }),
        jobNames: [A_JOB],
        startedAt: FAKE_START + 100,
        seenAt: FAKE_START + 100,
        isStopping: false,
        leases: 2,
        leaseMs: 2_000,
      }],
    });
  },
);

timed("getWorkers() keeps the first claim of a worker that claims again", async ({ store, host }) => {
  await store.claim(aClaimRequest({ claimId: "first", leaseMs: 1_000 }));
  host.advance(900);
  await store.claim(aClaimRequest({ claimId: "second", leaseMs: 1_000 }));

  const { workers: [worker] } = await store.getWorkers();

  assert.deepEqual([worker!.startedAt, worker!.seenAt], [FAKE_START, FAKE_START + 900]);
});

timed("getWorkers() lists a worker until 100 lengths of its lease have passed", async ({ store, host }) => {
  await store.claim(aClaimRequest({ leaseMs: 1_000 }));
  host.advance(100_000);
  const { workers: before } = await store.getWorkers();
  host.advance(1);

  const { workers: after } = await store.getWorkers();

  assert.deepEqual([before.length, after.length], [1, 0]);
});

test("noteStopping() is listed until the worker is forgotten", async ({ store }) => {
  await store.claim(aClaimRequest());
  await store.noteStopping("worker-a");
  await store.noteStopping("nobody");
  const { workers: stopping } = await store.getWorkers();
  await store.forgetWorker("worker-a");

  const { workers: left } = await store.getWorkers();

  assert.deepEqual([stopping.map(({ isStopping }) => isStopping), left], [[true], []]);
});

timed(
  "claim() says how long a run was due before its first claim, and of later claims nothing",
  async ({ store, host }) => {
    await add(store);
    host.advance(700);
    const first = await claimOne(store, { leaseMs: 1_000 });
    await store.release(first.lease, []);
    const second = await claimOne(store, { claimId: "second" });
    await complete(store, second.lease);
    await add(store, { flow: aFlow({ start: { afterMs: 400 } }) });
    host.advance(650);

    const delayed = await claimOne(store, { claimId: "third" });

    assert.deepEqual([first.startDelayMs, second.startDelayMs, delayed.startDelayMs], [700, null, 250]);
  },
);

timed("getJobs() counts the runs of each job by status", async ({ store }) => {
  await addIds(store, { jobName: "zip" }, { jobName: "zip" });
  await addCompleted(store);
  const { lease } = await startRun(store);
  await park(store, lease, aPause());
  const { run } = await add(store);
  await store.cancel(run.id, "request", null);
  await startRun(store);

  const { jobs, now } = await store.getJobs([]);

  assert.deepEqual(jobs.map(({ jobName, byStatus }) => ({ jobName, byStatus })), [
    { jobName: A_JOB, byStatus: { ...noRuns(), completed: 1, waiting: 1, cancelled: 1, running: 1 } },
    { jobName: "zip", byStatus: { ...noRuns(), pending: 2 } },
  ]);
  assert.equal(now, FAKE_START);
});

test("getJobs() adds up the versions of a job, and leaves out jobs whose runs were deleted", async ({ store }) => {
  await addIds(store, { version: 1 }, { version: 2 });
  const { id } = await addCompleted(store, { jobName: "zip" });
  await store.delete(id);

  const { jobs } = await store.getJobs([]);

  assert.deepEqual(jobs.map(({ jobName, byStatus }) => [jobName, byStatus.pending]), [[A_JOB, 2]]);
});

timed("getJobs() finds the oldest due run, and since when it is due", async ({ store, host }) => {
  const [delayed, first] = await addIds(store, { flow: aFlow({ start: { afterMs: 1_000 } }) }, {}, {});
  host.advance(500);
  const { jobs: [early] } = await store.getJobs([]);
  await store.cancel(first!, "request", null);
  const { claims } = await store.claim(aClaimRequest({ claimId: "take", leaseMs: 10_000, limit: 1 }));
  host.advance(1_000);
  await store.claim(aClaimRequest({ claimId: "timers", limit: 0 }));

  const { jobs: [late] } = await store.getJobs([]);

  assert.deepEqual(early!.oldestDue, { runId: first, dueSince: FAKE_START });
  assert.equal(claims.length, 1);
  assert.deepEqual(late!.oldestDue, { runId: delayed, dueSince: FAKE_START + 1_000 });
});

timed("getJobs() takes a run as due since it was interrupted, or resumed", async ({ store, host }) => {
  const { lease } = await startRun(store, { jobName: "interrupted" }, { claimId: "one", leaseMs: 60_000 });
  const waiting = await startRun(store, { jobName: "signalled" }, { claimId: "two", leaseMs: 60_000 });
  const { pauses: [wait] } = await park(store, waiting.lease, aPause());
  host.advance(300);
  await store.release(lease, []);
  host.advance(300);
  await store.signal(wait!.id, { signalId: "go", payload: null });

  const { jobs } = await store.getJobs([]);

  assert.deepEqual(jobs.map(({ oldestDue }) => oldestDue), [
    { runId: lease.runId, dueSince: FAKE_START + 300 },
    { runId: waiting.lease.runId, dueSince: FAKE_START + 600 },
  ]);
});

test("getJobs() passes over runs that wait for their key, their start or a signal, and takes turns", async ({ store }) => {
  const { lease } = await startRun(store, { concurrencyKey: "k" });
  await addIds(store, { concurrencyKey: "k" }, { jobName: "zip", flow: aFlow({ start: { afterMs: 1 } }) });
  const { jobs: blocked } = await store.getJobs([]);
  const [fair] = await addIds(store, { jobName: "mail", flow: aFlow({ fairnessKey: "a" }) });
  const [urgent] = await addIds(store, { jobName: "mail", flow: aFlow({ priority: 5 }) });

  const { jobs } = await store.getJobs([]);
  await claimedIds(store, { jobNames: ["mail"], claimId: "one", limit: 1 });
  const { jobs: left } = await store.getJobs([]);

  assert.deepEqual(blocked.map(({ oldestDue }) => oldestDue), [null, null]);
  assert.deepEqual([jobs, left].map((all) => all.find(({ jobName }) => jobName === "mail")!.oldestDue?.runId), [
    urgent,
    fair,
  ]);
  await store.release(lease, []);
});

timed("getJobs() counts cancelled runs that may still be executed", async ({ store, host }) => {
  const { lease } = await startRun(store, {}, { leaseMs: 1_000 });
  await add(store);
  await store.cancel(lease.runId, "request", null);
  const { jobs: [before] } = await store.getJobs([]);
  host.advance(1_000);
  await store.claim(aClaimRequest({ claimId: "timers", limit: 0 }));

  const { jobs: [after] } = await store.getJobs([]);

  assert.deepEqual([before!.ghosts, after!.ghosts], [1, 0]);
});

timed("getJobs() says when a rate opens, and when the next timer expires", async ({ store, host }) => {
  const rate = { limit: 1, period: 5_000 };
  await addIds(store, {}, {}, { flow: aFlow({ start: { afterMs: 9_000 } }) });
  const before = await store.getJobs([{ jobName: A_JOB, rate }]);
  await store.claim(aClaimRequest({ jobs: [aKnownJob({ rate })], leaseMs: 60_000 }));

  const closed = await store.getJobs([{ jobName: "other", rate }, { jobName: A_JOB, rate }]);
  host.advance(5_000);
  const open = await store.getJobs([{ jobName: A_JOB, rate }]);

  assert.deepEqual(before.openings, [null]);
  assert.deepEqual(closed.openings, [null, FAKE_START + 5_000]);
  assert.deepEqual(open.openings, [null]);
  assert.equal(closed.nextTimerAt, FAKE_START + 9_000);
});

timed("addStats() adds to the slots of now, of a minute and of 15 minutes", async ({ store, host }) => {
  await store.addStats([someStatistics({ triggered: 2, latencies: { "3": 1, "60": 2 } })]);
  host.advance(MINUTE_MS);
  await store.addStats([someStatistics({ triggered: 1, failed: 1, latencies: { "3": 4, "100": 1 } })]);
  await store.addStats([someStatistics({ steps: 3, stepFailures: 1 })]);

  const { rows: minutes, now } = await store.readStats({ span: 60_000, from: 0, limit: 10 });
  const { rows: quarters } = await store.readStats({ span: 900_000, from: 0, limit: 10 });

  assert.deepEqual(minutes, [
    toRow(FAKE_START, someStatistics({ triggered: 2, latencies: { "3": 1, "60": 2 } })),
    toRow(
      FAKE_START + MINUTE_MS,
      someStatistics({ triggered: 1, failed: 1, steps: 3, stepFailures: 1, latencies: { "3": 4, "100": 1 } }),
    ),
  ]);
  assert.deepEqual(quarters, [
    toRow(
      FAKE_START,
      someStatistics({ triggered: 3, failed: 1, steps: 3, stepFailures: 1, latencies: { "3": 5, "60": 2, "100": 1 } }),
    ),
  ]);
  assert.equal(now, FAKE_START + MINUTE_MS);
});

timed("addStats() samples the numbers of runs for all jobs together", async ({ store, host }) => {
  await startRun(store, {}, { leaseMs: 60_000, workerId: "live" });
  const { lease } = await startRun(store, {}, { leaseMs: 10_000, workerId: "lost" });
  await park(store, (await startRun(store, {}, { leaseMs: 60_000, workerId: "live", claimId: "2" })).lease, aPause());
  await addIds(store, {}, {});
  host.advance(10_000);
  await store.addStats([someStatistics({ jobName: "" }), someStatistics({})]);
  await store.addStats([someStatistics({ jobName: "" })]);

  const { rows } = await store.readStats({ span: 60_000, from: 0, limit: 10 });

  assert.equal(lease.generation, 1);
  assert.deepEqual(rows.map(({ jobName, sampled }) => [jobName, sampled]), [
    ["", { samples: 2, pending: 4, running: 4, waiting: 2, busy: 2 }],
    [A_JOB, NO_SAMPLE],
  ]);
});

timed("readStats() reads by slot and job, some rows at a time, of one job or of all", async ({ store, host }) => {
  for (const jobName of ["b", "a", ""]) await store.addStats([someStatistics({ jobName })]);
  host.advance(MINUTE_MS);
  for (const jobName of ["b", "a"]) await store.addStats([someStatistics({ jobName })]);
  const read = async (more: object) => {
    const { rows } = await store.readStats({ span: 60_000, from: 0, limit: 10, ...more });
    return rows.map(({ at, jobName }) => `${(at - FAKE_START) / MINUTE_MS}${jobName}`);
  };

  assert.deepEqual(await read({}), ["0", "0a", "0b", "1a", "1b"]);
  assert.deepEqual(await read({ limit: 2 }), ["0", "0a"]);
  assert.deepEqual(await read({ limit: 2, after: { at: FAKE_START, jobName: "a" } }), ["0b", "1a"]);
  assert.deepEqual(await read({ jobName: "b" }), ["0b", "1b"]);
  assert.deepEqual(await read({ jobName: "" }), ["0"]);
  assert.deepEqual(await read({ jobName: "a", after: { at: FAKE_START, jobName: "a" } }), ["1a"]);
  assert.deepEqual(await read({ from: FAKE_START + 1 }), ["1a", "1b"]);
  assert.deepEqual(await read({ span: 900_000 }), ["0", "0a", "0b"]);
});

timed("addStats() removes slots that are no longer kept", async ({ store, host }) => {
  await store.addStats([someStatistics({})]);
  host.advance(2 * 3_600_000 + MINUTE_MS);
  await store.addStats([someStatistics({})]);
  const { rows: minutes } = await store.readStats({ span: 60_000, from: 0, limit: 10 });
  const { rows: quarters } = await store.readStats({ span: 900_000, from: 0, limit: 10 });
  host.advance(8 * 86_400_000 + 900_000);
  await store.addStats([someStatistics({})]);
  const { rows: later } = await store.readStats({ span: 900_000, from: 0, limit: 10 });

  assert.deepEqual([minutes.length, quarters.length, later.length], [1, 2, 1]);
});

test("getInfo() says what the store is, and how many runs it has", async ({ store }) => {
  await addIds(store, {}, {});

  const info = await store.getInfo();

  assert.equal(info.runs, 2);
  assert.ok(info.id.length > 10);
  assert.equal((await store.getInfo()).id, info.id);
  assert.ok(["memory", "sqlite", "postgres"].includes(info.kind));
  assert.ok(info.schemaVersion >= 1);
  if (info.kind !== "memory") assert.ok(info.bytes! > 1_000);
});

function someStatistics(overrides: Partial<JobStatistics>): JobStatistics {
  return {
    jobName: A_JOB,
    triggered: 0,
    started: 0,
    completed: 0,
    failed: 0,
    cancelled: 0,
    steps: 0,
    stepFailures: 0,
    latencies: {},
    ...overrides,
  };
}

function toRow(at: number, counts: JobStatistics): StatisticsRow {
  return { at, ...counts, sampled: NO_SAMPLE };
}

test("getOpenWaits() lists the waits of some runs alone, in pages", async ({ store }) => {
  const ids = [];
  for (let n = 0; n < 3; n++) {
    const { run, lease } = await startRun(store);
    await park(store, lease, aPause({ name: "b" }), aPause({ name: "a" }));
    ids.push(run.id);
  }

  const own = [ids[0]!, ids[2]!, "unknown"];
  const first = await store.getOpenWaits(null, 3, own);
  const second = await store.getOpenWaits(first.waits.at(-1)!.place, 3, own);
  const none = await store.getOpenWaits(null, 3, []);

  const runsOf = ({ waits }: typeof first) => waits.map(({ run }) => run.id);
  assert.deepEqual([runsOf(first), runsOf(second)], [[ids[0], ids[0], ids[2]], [ids[2]]]);
  assert.deepEqual([none.waits, first.total], [[], 6]);
});

timed("getJobs() counts the held runs of each job, of all versions, and says since when", async ({ store, host }) => {
  await add(store, { jobName: "other" });
  await addHeld(store, { jobName: "export" });
  host.advance(1_000);
  await addHeld(store);
  host.advance(1_000);
  const { lease } = await startRun(store, { version: 2 }, { jobs: [aKnownJob({ version: 2 })] });
  await store.hold(lease, aHold(), []);
  const offered = await addHeld(store);
  await store.claim(offering("print-2", { limit: 0 }));
  const before = await store.getJobs([]);

  await store.cancel(offered, "request-1", null);
  const { jobs } = await store.getJobs([]);

  const heldOf = (list: typeof jobs) => list.map(({ jobName, held }) => [jobName, held]);
  const others = [["export", { runs: 1, since: FAKE_START }]];
  const none = ["other", null];
  assert.deepEqual(heldOf(before.jobs), [...others, [A_JOB, { runs: 3, since: FAKE_START + 1_000 }], none]);
  assert.deepEqual(heldOf(jobs), [...others, [A_JOB, { runs: 2, since: FAKE_START + 1_000 }], none]);
});
