import assert from "node:assert/strict";
import { LeaseLostError } from "../../../model/error.ts";
import type { Lease } from "../../../model/lease.ts";
import { getRun, getRuns, getSteps } from "../../../store/reads.ts";
import type { Store } from "../../../store/store.ts";
import { claimOne, look, prepare, startRun } from "../arrange.ts";
import { newCases } from "../case.ts";
import { aClaimRequest, aPause, aProgress, aRun, aStart, aStep } from "../fixtures.ts";

const { cases, test, timed } = newCases();

/** What a store promises of many writes that come at the same moment: it may write them together. */
export const manyWritesCases = cases;

const MANY = 40;

async function startMany(store: Store, count = MANY): Promise<Lease[]> {
  await store.enqueue(Array.from({ length: count }, () => aRun()));
  const { claims } = await store.claim(aClaimRequest({ limit: count }));
  assert.equal(claims.length, count);
  return claims.map(({ lease }) => lease);
}

function outputOf(at: number): string | null {
  return at % 3 === 0 ? null : String(at % 3);
}

function finish(store: Store, lease: Lease, at: number): Promise<void> {
  return store.finish(lease, { status: "completed", output: outputOf(at), durationMs: at }, []);
}

timed("many runs record steps and end at once, as each would alone", async ({ store, host }) => {
  const [alone, ...leases] = await startMany(store);
  const reports = [aStart({ at: host.now() })];
  const work = async (lease: Lease, at: number) => {
    const write = (index: number) => aStep({ name: `step ${index}`, index, startedAgoMs: 5 });
    const steps = [store.saveStep(lease, write(0), reports), store.saveStep(lease, write(1), reports)];
    const saved = await Promise.all(steps);
    await finish(store, lease, at);
    return saved;
  };
  const ofAlone = await work(alone!, 0);
  const { run: { id: _, ...run }, steps } = await look(store, alone!.runId) as { run: { id: string }; steps: object[] };

  const ofAll = await Promise.all(leases.map((lease, at) => work(lease, at)));

  for (const [at, lease] of leases.entries()) {
    assert.deepEqual(ofAll[at], ofAlone);
    const found = await look(store, lease.runId);
    const output = JSON.parse(outputOf(at) ?? "null");
    assert.deepEqual(found.run, { ...run, id: lease.runId, output });
    const ids = { runId: lease.runId };
    assert.deepEqual(found.steps, steps.map((step, index) => ({ ...step, ...ids, id: found.steps[index]!.id })));
  }
  assert.equal((await getRuns(store, { status: "completed" })).total, MANY);
});

timed("of many steps at once, those that are recorded already change nothing", async ({ store }) => {
  const leases = await startMany(store);
  const repeated = leases.slice(0, 3);
  for (const lease of repeated) await store.saveStep(lease, aStep(), []);
  const before = await Promise.all(repeated.map(({ runId }) => look(store, runId)));

  const saved = await Promise.all(leases.map((lease) => store.saveStep(lease, aStep(), [])));

  assert.deepEqual(saved, leases.map(() => ({ recordedNo: 1, retry: null })));
  assert.deepEqual(await Promise.all(repeated.map(({ runId }) => look(store, runId))), before);
  for (const { runId } of leases) assert.equal((await getSteps(store, runId)).length, 1);
});

test("of many steps at once, those under a lost lease are refused, and those of other kinds recorded", async ({ store }) => {
  const leases = await startMany(store);
  const [cancelled, other, progressed, failed, ...plain] = leases;

  const answers = await Promise.allSettled([
    ...plain.slice(0, 20).map((lease) => store.saveStep(lease, aStep(), [])),
    store.cancel(cancelled!.runId, "request-1", null),
    store.saveStep(cancelled!, aStep(), []),
    store.saveStep({ ...other!, claimId: "another" }, aStep(), []),
    store.saveStep(progressed!, aStep(), [aProgress({ current: 1 })]),
    store.saveStep(
      failed!,
      aStep({
        result: { status: "failed", failure: { kind: "error", name: "E", message: "no", stack: null, cause: null } },
      }),
      [],
    ),
    ...plain.slice(20).map((lease) => store.saveStep(lease, aStep(), [])),
  ]);

  const refused = answers.filter(({ status }) => status === "rejected") as PromiseRejectedResult[];
  assert.deepEqual(refused.map(({ reason }) => reason instanceof LeaseLostError), [true, true]);
  assert.deepEqual((await getRun(store, progressed!.runId))!.progress, { current: 1 });
  const steps = await Promise.all(leases.map(({ runId }) => getSteps(store, runId)));
  const statuses = steps.map((ofRun) => ofRun.map(({ status }) => status));
  assert.deepEqual(statuses, [[], [], ["completed"], ["failed"], ...plain.map(() => ["completed"])]);
});

test("of many ends at once, each has its consequences", async ({ store }) => {
  const old = await startRun(store);
  await store.finish(old.lease, {
    status: "failed",
    failure: { kind: "error", name: "E", message: "no", stack: null, cause: null },
    failedStepName: null,
  }, []);
  await store.enqueue([aRun({ retriggerOf: { runId: old.run.id, from: "start" } })]);
  const { lease: retry } = await claimOne(store);
  await store.enqueue([aRun({ concurrencyKey: "k" }), aRun({ concurrencyKey: "k" })]);
  const { lease: keyed } = await claimOne(store);
  const { lease: pausing } = await startRun(store, { jobName: "pausing" });
  const [plain, ...others] = await startMany(store);
  await Promise.all([...others, pausing].map((lease) => prepare(store, lease, aPause({ prepared: true }))).slice(-1));
  const all = [retry, keyed, pausing, plain!, ...others];

  await Promise.all(all.map((lease) => store.finish(lease, { status: "completed", output: "1", durationMs: 1 }, [])));

  for (const { runId } of all) assert.equal((await getRun(store, runId))!.status, "completed");
  assert.equal((await getRun(store, old.run.id))!.completedAs, retry.runId);
  assert.equal((await look(store, pausing.runId)).waits[0]!.status, "closed");
  assert.equal((await claimOne(store)).lease.concurrencyKey, "k");
  await Promise.all(all.map((lease) => store.finish(lease, { status: "completed", output: "1", durationMs: 1 }, [])));
  const failed = { kind: "error", name: "E", message: "no", stack: null, cause: null } as const;
  const ends = all.map((lease) => store.finish(lease, { status: "failed", failure: failed, failedStepName: null }, []));
  for (const end of await Promise.allSettled(ends)) assert.equal(end.status, "rejected");
});
