import assert from "node:assert/strict";
import { LeaseLostError, NotFoundError } from "../../../model/error.ts";
import { isoTime } from "../../../values/iso_time.ts";
import type { Lease } from "../../../model/lease.ts";
import type { Store } from "../../../store/store.ts";
import type { Claim } from "../../../store/claim.ts";
import type { NewRun } from "../../../store/new_run.ts";
import type { NewPause } from "../../../store/pause_request.ts";
import { parseRun } from "../../../model/run.ts";
import { FAKE_START } from "../../fake_host.ts";
import { A_JOB, aClaimRequest, aFailure, aHold, aKnownJob, aPause, aRun, aStep } from "../fixtures.ts";
import { add, addCompleted, addIds, aRetry, claimOne, complete, inOrder, park, prepare, startRun } from "../arrange.ts";
import { newCases } from "../case.ts";
import { getRun, getWaits } from "../../../store/reads.ts";

const { cases, test, timed } = newCases();

/** What a store promises of histories: inputs, patches, what retries have as copies, and runs that nobody knows. */
export const historyCases = cases;

test("getInput() answers null until an input is stored for the schema", async ({ store }) => {
  const { lease } = await startRun(store, { schemaPrint: "schema-1" });
  await store.saveInput(lease, "schema-2", "2");

  const answers = [
    await store.getInput(lease.runId, "schema-1"),
    await store.getInput(lease.runId, "schema-2"),
    await store.getInput(lease.runId, "schema-3"),
    await store.getInput("unknown", "schema-2"),
  ];

  assert.deepEqual(answers, [null, { input: "2" }, null, null]);
});

test("saveInput() keeps the input that is stored already", async ({ store }) => {
  const { lease } = await startRun(store);

  const answers = [
    await store.saveInput(lease, "schema-2", "1"),
    await store.saveInput(lease, "schema-2", "2"),
    await store.saveInput(lease, "schema-3", "3"),
  ];

  assert.deepEqual(answers, ["1", "1", "3"]);
  assert.deepEqual(await store.getInput(lease.runId, "schema-2"), { input: "1" });
});

test("saveInput() stores an input that is undefined, and keeps it", async ({ store }) => {
  const { lease } = await startRun(store);

  const answers = [await store.saveInput(lease, "schema-2", null), await store.saveInput(lease, "schema-2", "2")];

  assert.deepEqual(answers, [null, null]);
  assert.deepEqual(await store.getInput(lease.runId, "schema-2"), { input: null });
});

test("saveInput() leaves the input that a claim answers", async ({ store }) => {
  const { lease } = await startRun(store, { input: '{"n":1}' });
  await store.saveInput(lease, "schema-2", '{"n":2}');
  await store.release(lease, []);

  const { input } = await claimOne(store);

  assert.equal(input, '{"n":1}');
});

test("saveInput() refuses a worker whose lease was lost", async ({ store }) => {
  const { lease } = await startRun(store);
  await store.release(lease, []);

  await assert.rejects(store.saveInput(lease, "schema-2", "2"), LeaseLostError);
  assert.equal(await store.getInput(lease.runId, "schema-2"), null);
});

test("delete() deletes the stored inputs of a run", async ({ store }) => {
  const { lease } = await startRun(store);
  await store.saveInput(lease, "schema-2", "2");
  await complete(store, lease);

  await store.delete(lease.runId);

  assert.equal(await store.getInput(lease.runId, "schema-2"), null);
});

timed("getHistory() answers what a claim answers, and how the run ended", async ({ store, host }) => {
  const { lease } = await startRun(store);
  await store.saveStep(lease, aStep(), []);
  await prepare(store, lease, aPause({ name: "first" }), aPause({ name: "nap", kind: "sleep" }), aPatch());
  await store.saveStep(lease, aRetry(100, { name: "fetch", index: 1 }), []);
  await store.release(lease, []);
  const claim = await claimOne(store);
  host.advance(10);

  const history = await store.getHistory(lease.runId);

  assert.deepEqual(parseRun(history!.run), await getRun(store, lease.runId));
  assert.deepEqual([history!.run.payload, history!.input], ['{"path":"a.csv"}', '{"path":"a.csv","encoding":"utf-8"}']);
  const [read, fetch] = inOrder(history!.steps);
  const [readBefore, fetchBefore] = inOrder(claim.steps);
  assert.deepEqual(read, readBefore);
  assert.deepEqual([fetch!.result.status, fetch!.recordedNo], ["retrying", fetchBefore!.recordedNo]);
  assert.deepEqual(history!.pauses, claim.pauses);
  assert.deepEqual(history!.pauses.map(({ kind }) => kind), ["wait", "sleep", "patch"]);
  assert.equal(history!.copied, null);
  assert.equal(history!.schemaPrint, claim.schemaPrint);
});

test("getHistory() leaves out steps that were cancelled", async ({ store }) => {
  const { lease } = await startRun(store);
  await store.saveStep(lease, aStep(), []);
  await store.saveStep(lease, aRetry(100, { name: "fetch", index: 1 }), []);
  const executing = { name: "write", index: 2, attempts: 1, startedAgoMs: 0 };
  await store.cancel(lease.runId, "request-1", { lease, steps: [executing], reports: [] });

  const history = await store.getHistory(lease.runId);

  assert.equal(history!.run.status, "cancelled");
  assert.deepEqual(history!.steps.map(({ name }) => name), ["read"]);
});

test("getHistory() answers the history of a held run, and of one without input", async ({ store }) => {
  const { lease } = await startRun(store, { payload: null, input: null });
  await store.saveStep(lease, aStep(), []);
  await store.hold(lease, aHold(), []);

  const history = await store.getHistory(lease.runId);

  assert.equal(history!.run.held!.code, "diverged");
  assert.deepEqual([history!.run.payload, history!.input, history!.steps.length], [null, null, 1]);
});

test("getHistory() answers null for an unknown run, and for a deleted one", async ({ store }) => {
  const run = await addCompleted(store);
  await store.delete(run.id);

  assert.deepEqual([await store.getHistory("unknown"), await store.getHistory(run.id)], [null, null]);
});

timed(
  "a retry from the failure knows which of its records are copies, and what was not finished",
  async ({ store, host }) => {
    const { lease } = await startRun(store);
    await store.saveStep(lease, aStep(), []);
    await prepare(
      store,
      lease,
      aPause({ name: "answered" }),
      aPause({ name: "open" }),
      aPause({ name: "done", kind: "sleep", deadline: { afterMs: 10 } }),
      aPause({ name: "long", kind: "sleep", deadline: { afterMs: 10_000 } }),
      aPatch(),
    );
    const [answered] = await getWaits(store, lease.runId);
    await store.signal(answered!.id, { signalId: "s-1", payload: null });
    host.advance(10);
    await store.saveStep(lease, aRetry(100, { name: "fetch", index: 1 }), []);
    await failAt(store, lease, "charge");

    const retry = await startRetry(store, lease.runId);

    // The records: read, the patch, the signal, two attempts, and the end of the sleep, which the end of the run commits.
    assert.equal(retry.copied!.upTo, 6);
    assert.deepEqual(sorted(retry), ["sleep long", "step charge", "step fetch", "wait open"]);
    assert.deepEqual((await store.getHistory(retry.run.id))!.copied, retry.copied);
  },
);

test("a retry has as unfinished what was cancelled with the old run", async ({ store }) => {
  const { lease } = await startRun(store);
  await prepare(store, lease, aPause({ name: "open" }));
  const executing = { name: "charge", index: 0, attempts: 1, startedAgoMs: 0 };
  await store.cancel(lease.runId, "request-1", { lease, steps: [executing], reports: [] });
  await store.release(lease, []);

  const retry = await startRetry(store, lease.runId);

  assert.deepEqual(sorted(retry), ["step charge", "wait open"]);
});

timed("a retry has the wait that timed out last as unfinished", async ({ store, host }) => {
  const { lease } = await startRun(store);
  await park(store, lease, aPause({ name: "ok?", deadline: { afterMs: 100 } }));
  host.advance(100);
  const resumed = await claimOne(store);
  await store.finish(resumed.lease, { status: "failed", failure: aFailure(), failedStepName: null }, []);

  const retry = await startRetry(store, lease.runId);

  assert.deepEqual([sorted(retry), retry.copied!.upTo], [["wait ok?"], 1]);
});

test("a retry has children that did not all complete as unfinished", async ({ store }) => {
  const { lease } = await startRun(store, { jobName: "parent" });
  const children = { total: 1, from: 0, runs: [aRun()] };
  await park(store, lease, aPause({ kind: "children", name: "all", children }));
  const child = await claimOne(store);
  await store.finish(child.lease, { status: "failed", failure: aFailure(), failedStepName: null }, []);
  const resumed = await claimOne(store, { jobNames: ["parent"] });
  await store.finish(resumed.lease, { status: "failed", failure: aFailure(), failedStepName: null }, []);

  const retry = await startRetry(store, lease.runId, { jobName: "parent" });

  assert.deepEqual(sorted(retry), ["children all"]);
});

test("a retry of a retry has what all earlier runs have not finished, each once", async ({ store }) => {
  const { lease } = await startRun(store);
  await prepare(store, lease, aPause({ name: "open" }));
  await failAt(store, lease, "charge");
  const second = await startRetry(store, lease.runId);
  await prepare(store, second.lease, aPause({ name: "open" }));
  await store.saveStep(second.lease, aStep({ name: "charge" }), []);
  await failAt(store, second.lease, "send");

  const third = await startRetry(store, second.run.id);

  assert.deepEqual(third.steps.map(({ name }) => name), ["charge"]);
  assert.deepEqual(sorted(third), ["step charge", "step send", "wait open"]);
  assert.ok(third.copied!.upTo > second.copied!.upTo);
});

test("a retry from the start has no copies", async ({ store }) => {
  const { lease } = await startRun(store);
  await failAt(store, lease, "charge");

  await add(store, { retriggerOf: { runId: lease.runId, from: "start" } });

  const { copied, run } = await claimOne(store);
  assert.equal(copied, null);
  assert.equal((await store.getHistory(run.id))!.copied, null);
});

timed("pause() prepares a patch once, with a record number of its own", async ({ store }) => {
  const { lease } = await startRun(store);
  await store.saveStep(lease, aStep(), []);
  const patch = aPatch();

  const first = await prepare(store, lease, patch);
  const second = await prepare(store, lease, aPatch({ metadata: "false" }));

  assert.deepEqual(first.pauses, [{
    id: patch.id,
    kind: "patch",
    name: "gift wrap",
    childCount: 0,
    childTotal: 0,
    child: null,
    metadata: "true",
    deadlineAt: null,
    createdAt: FAKE_START,
    preparedNo: 2,
    resolution: null,
  }]);
  assert.deepEqual(second.pauses, first.pauses);
});

test("a patch is no wait: it is not listed, and takes no signal", async ({ store }) => {
  const { lease } = await startRun(store);
  const { pauses: [patch] } = await prepare(store, lease, aPatch());

  assert.deepEqual(await getWaits(store, lease.runId), []);
  assert.deepEqual((await store.readWaits(lease.runId, null, Infinity))!.items, []);
  assert.equal(await store.getWait(patch!.id), null);
  await assert.rejects(store.signal(patch!.id, { signalId: "s-1", payload: null }), NotFoundError);
});

test("pause() never makes a run wait for a patch", async ({ store }) => {
  const { lease } = await startRun(store);

  await park(store, lease, aPause({ name: "ok?" }), aPatch());

  const state = await store.getRunState(lease.runId);
  assert.deepEqual(state!.pauses.map(({ name }) => name), ["ok?"]);
});

test("pause() counts the names of patches apart from those of waits and sleeps", async ({ store }) => {
  const { lease } = await startRun(store);

  await prepare(store, lease, aPause({ name: "gift wrap" }), aPatch(), aPause({ name: "gift wrap", kind: "sleep" }));

  const { pauses } = (await store.getHistory(lease.runId))!;
  assert.deepEqual(pauses.map(({ kind }) => kind), ["wait", "patch", "sleep"]);
});

test("a retry from the failure has the patches of the old run, however that ended", async ({ store }) => {
  const ends = [
    (lease: Lease) => failAt(store, lease, "charge"),
    (lease: Lease) => complete(store, lease),
    (lease: Lease) => store.cancel(lease.runId, "request-1", null),
  ];
  for (const end of ends) {
    const { lease } = await startRun(store);
    const { pauses: [patch] } = await prepare(store, lease, aPatch());
    await end(lease);

    const retry = await startRetry(store, lease.runId);

    const { pauses: [kept] } = (await store.getHistory(lease.runId))!;
    assert.deepEqual(kept, patch);
    assert.deepEqual(retry.pauses, [{ ...patch, id: retry.pauses[0]!.id }]);
    assert.notEqual(retry.pauses[0]!.id, patch!.id);
    assert.equal(retry.copied!.unfinished.some(({ name }) => name === "gift wrap"), false);
    await complete(store, retry.lease);
  }
});

timed(
  "getStrandedJobs() counts the open runs of each job and version that no live worker knows",
  async ({ store, host }) => {
    await add(store, { jobName: "b", version: 2 });
    host.advance(100);
    await addIds(store, { jobName: "b" }, { jobName: "a" }, { jobName: "b", version: 2 }, {
      jobName: "b",
      version: 10,
    });
    await store.claim(aClaimRequest({ jobs: [aKnownJob({ name: "b" })] }));

    const stranded = await store.getStrandedJobs();

    assert.deepEqual(stranded, [
      { jobName: "a", version: 1, runs: 1, oldestAt: isoTime(FAKE_START + 100) },
      { jobName: "b", version: 2, runs: 2, oldestAt: isoTime(FAKE_START) },
      { jobName: "b", version: 10, runs: 1, oldestAt: isoTime(FAKE_START + 100) },
    ]);
  },
);

timed("getStrandedJobs() counts runs of any status that have not ended", async ({ store }) => {
  const { lease: held } = await startRun(store);
  await store.hold(held, aHold(), []);
  const { lease: waiting } = await startRun(store);
  await park(store, waiting, aPause());
  await startRun(store);
  await add(store);
  await store.cancel((await add(store)).run.id, "request-1", null);
  await store.forgetWorker("worker-a");

  const stranded = await store.getStrandedJobs();

  assert.deepEqual(stranded, [{ jobName: A_JOB, version: 1, runs: 4, oldestAt: isoTime(FAKE_START) }]);
});

timed("getStrandedJobs() goes by the workers that are live", async ({ store, host }) => {
  await add(store);
  const before = await store.getStrandedJobs();
  await store.claim(aClaimRequest({ limit: 0, leaseMs: 1_000 }));
  const during = await store.getStrandedJobs();
  host.advance(1_000);
  const after = await store.getStrandedJobs();

  assert.deepEqual([before.length, during.length, after.length], [1, 0, 1]);
});

function aPatch(overrides: Partial<NewPause> = {}): NewPause {
  return aPause({ kind: "patch", name: "gift wrap", metadata: "true", prepared: true, ...overrides });
}

/** Fails a run at a step. */
async function failAt(store: Store, lease: Lease, name: string): Promise<void> {
  const failure = aFailure();
  await store.saveStep(lease, aStep({ name, index: 9, result: { status: "failed", failure } }), []);
  await store.finish(lease, { status: "failed", failure, failedStepName: name }, []);
}

/** Adds a retry of a run from the failure, and claims it. No older run may be due. */
function startRetry(store: Store, runId: string, overrides: Partial<NewRun> = {}): Promise<Claim> {
  return startRun(store, { retriggerOf: { runId, from: "failure" }, ...overrides });
}

/** What earlier runs have not finished, in an order. */
function sorted({ copied }: Claim): string[] {
  return copied!.unfinished.map(({ kind, name }) => `${kind} ${name}`).sort();
}
