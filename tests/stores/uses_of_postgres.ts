import assert from "node:assert/strict";
import { PostgresStore } from "../../src/stores/postgres/postgres_store.ts";
import {
  add,
  addIds,
  aRetry,
  claimOne,
  complete,
  park,
  prepare,
  startRun,
} from "../../src/testing/contract/arrange.ts";
import { addHeld, offering } from "../../src/testing/contract/claims/holds/arrange_holds.ts";
import { A_JOB, aClaimRequest, aHold, aKnownJob, aLine, aPause, aStep } from "../../src/testing/contract/fixtures.ts";
import {
  aChild,
  addFailedParent,
  claimAll,
  end,
  fail,
  fromFailure,
  onChildren,
  PARENT,
  startParent,
} from "../../src/testing/contract/records/children/arrange_children.ts";
import type { FakeHost } from "../../src/testing/fake_host.ts";

/** Uses a store in ways that most cases of its contract do not. */
type Use = (store: PostgresStore, host: FakeHost) => Promise<void>;

// What is claimed is read by another call.
const LARGE = JSON.stringify("x".repeat(250_000));

/** Children that are retried, taken over and cancelled. */
async function useChildren(store: PostgresStore): Promise<void> {
  const { lease } = await startParent(store);
  const { pauses: [pause] } = await park(store, lease, onChildren([aChild()]));
  for (const claim of (await claimAll(store)).claims) await end(store, claim, '"done"');
  await store.readChildren(pause!.id, 0, Infinity);
  await fail(store, await claimOne(store, { jobNames: [PARENT] }));
  await add(store, { jobName: PARENT, ...fromFailure(lease) }); // its pause is copied
  const { run: completed, lease: last } = await claimOne(store, { jobNames: [PARENT] });
  await complete(store, last);
  const [retried] = await store.readRuns([lease.runId], Infinity);
  assert.equal(retried!.completedAs, completed.id);
  const old = await addFailedParent(store);
  const { run } = await add(store, { jobName: PARENT, ...fromFailure(old) });
  const retry = await claimOne(store, { jobNames: [PARENT] });
  const { created } = await park(store, retry.lease, onChildren(old.children.map(() => aChild())));
  await store.cancel(run.id, "request-1", null);
  await store.getBlockers(created[0]!.run.id);

  const { cancelled } = await claimAll(store);

  assert.ok(cancelled.length > 0);
}

/** Runs that are held, offered and resumed. */
async function useHolds(store: PostgresStore, host: FakeHost): Promise<void> {
  const runId = await addHeld(store);
  const hold = await store.getHold(runId);
  const { ids } = await store.findHeld({ after: 0, limit: 10, code: hold!.code, jobNames: [A_JOB] });
  host.advance(1_000);
  const stranded = await store.getStrandedJobs();
  await store.claim(offering("print-2", { limit: 0 }));
  const resumed = await store.resumeHeld(runId, false);
  await store.hold((await claimOne(store)).lease, aHold(), []);

  const { claims } = await store.claim(offering("print-2"));

  assert.deepEqual([hold!.code, ids, stranded.length, resumed!.id, claims.length], ["diverged", [runId], 1, runId, 1]);
}

/** What a run records, and how it is read. */
async function useRecords(store: PostgresStore): Promise<void> {
  const { run: { id: runId }, lease } = await startRun(store, { labels: { tenant: "a" }, payload: LARGE });
  const { seq } = (await store.getRunState(runId))!;
  await store.saveInput(lease, "schema-2", "{}");
  await store.getInput(runId, "schema-2");
  const { pauses: [pause] } = await prepare(store, lease, aPause({ payloadSchema: "{}", metadata: "{}" }));
  await store.saveStep(lease, aStep(), []);
  await store.appendLogs([aLine(runId)]);
  await store.getLostLeases([lease]);
  await complete(store, { ...lease, recorded: 1 });
  const logs = await store.readLogs(runId, null, Infinity);
  await store.readValue({ of: "wait", waitId: pause!.id, value: "metadata" }, 0);
  const value = await store.readValue({ of: "step", runId, stepName: "read", value: "output" }, 0);
  await store.readFactValues([{ run: seq, of: "step", stepName: "read" }], Infinity);
  await store.findCursor(await store.findCursor(null));
  await store.findLastFact(seq, 0, null);
  await store.getVersion();
  await store.readJournal(0, Infinity, 0);
  await store.findRuns({ parentRunId: runId });
  const found = await store.findRuns({ labels: { tenant: "a" } });

  const purged = await store.purge({ completed: 0 }, 10);

  assert.deepEqual([logs!.items.length, value!.next, found.total, purged.length], [1, null, 1, 1]);
}

/** What operators read. */
async function useOperation(store: PostgresStore, host: FakeHost): Promise<void> {
  const jobs = [aKnownJob({ concurrency: 5 })];
  const { lease } = await startRun(store, { concurrencyKey: "a" }, { jobs, leaseMs: 10 });
  await store.saveStep(lease, aRetry(0), []);
  const [runId] = await addIds(store, { concurrencyKey: "a" }, {});
  const blockers = await store.getBlockers(runId!);
  await store.getTimeline(lease.runId, { steps: 0, pauses: 0, interruptions: 0 }, 10);
  const failures = await store.getFailures(lease.runId);
  await store.getOpenWaits(null, 10, [lease.runId]);
  const hits = await store.searchRuns(runId!, 10);
  await store.getWorkers();
  await store.getJobs([]);
  await store.addStats([]);
  await store.readStats({ span: 60_000, from: 0, limit: 10, jobName: A_JOB });
  await store.getWarnings();
  await store.noteStopping("worker-a");
  for (let crashes = 0; crashes < 2; crashes++) {
    host.advance(10);
    await store.claim(aClaimRequest({ jobs, leaseMs: 10 }));
  }
  host.advance(1_000);
  const { aloneSince } = await store.claim(aClaimRequest({ jobs, leaseMs: 10, workerId: "worker-b" }));

  assert.deepEqual([blockers !== null, failures!.steps.length, hits.length], [true, 1, 1]);
  assert.notEqual(aloneSince, null);
}

/** Ways to use a store, by what they use. */
export const USES: Readonly<Record<string, Use>> = {
  children: useChildren,
  holds: useHolds,
  records: useRecords,
  operation: useOperation,
};
