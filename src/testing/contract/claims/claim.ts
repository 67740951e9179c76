import assert from "node:assert/strict";
import { uuidV7 } from "../../../model/host.ts";
import { isoTime } from "../../../values/iso_time.ts";
import { FAKE_START } from "../../fake_host.ts";
import { A_JOB, aClaimRequest, aFailure, aFlow, aPause, aRun, aStep } from "../fixtures.ts";
import { add, claimOne, complete, inOrder, prepare, startRun } from "../arrange.ts";
import { newCases } from "../case.ts";
import { getRun, getRuns } from "../../../store/reads.ts";

const { cases, test, timed } = newCases();

/** What `Store.claim()` promises of the runs that it takes. */
export const claimCases = cases;

timed("claim() answers what a replay needs", async ({ store, host }) => {
  const request = aRun({ labels: { org: "acme" }, concurrencyKey: "cust-1" });
  await store.enqueue([request]);

  const result = await store.claim(aClaimRequest({ claimId: "claim-1", leaseMs: 5_000 }));

  assert.deepEqual(result, {
    aloneSince: null,
    hasHeld: false,
    claims: [{
      run: { id: request.id, jobName: A_JOB, labels: { org: "acme" } },
      lease: { runId: request.id, generation: 1, claimId: "claim-1", recorded: 0, concurrencyKey: "cust-1" },
      leaseExpiresAt: host.now() + 5_000,
      input: request.input,
      execution: 1,
      startedAgoMs: 0,
      startDelayMs: 0,
      priority: 0,
      fairnessKey: null,
      depth: 0,
      slotAt: null,
      slot: null,
      trace: null,
      finishInMs: null,
      version: 1,
      schemaPrint: null,
      isResumed: false,
      continues: false,
      copied: null,
      originId: request.id,
      steps: [],
      pauses: [],
      resumed: [],
    }],
    failed: [],
    cancelled: [],
    nextTimerAt: host.now() + 5_000,
    hasMore: false,
    now: host.now(),
  });
});

timed("claim() shows the run as running under a lease", async ({ store, host }) => {
  const { run } = await add(store);
  host.advance(250);

  await store.claim(aClaimRequest({ workerId: "worker-b" }));

  assert.deepEqual(await getRun(store, run.id), {
    ...run,
    status: "running",
    leaseOwner: "worker-b",
    leaseExpiresAt: isoTime(FAKE_START + 1_250),
    leaseGeneration: 1,
    startedAt: isoTime(FAKE_START + 250),
    updatedAt: isoTime(FAKE_START + 250),
  });
});

test("claim() hands on an input that is undefined", async ({ store }) => {
  await add(store, { payload: "{}", input: null });

  const { input } = await claimOne(store);

  assert.equal(input, null);
});

timed("claim() answers nothing if nothing is due", async ({ store, host }) => {
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
});

test("claim() takes runs in the order in which they were triggered, up to the limit", async ({ store }) => {
  const [first, second, third] = await store.enqueue([aRun(), aRun(), aRun()]);

  const one = await store.claim(aClaimRequest({ limit: 2 }));
  const two = await store.claim(aClaimRequest({ limit: 2 }));

  assert.deepEqual(one.claims.map(({ run }) => run.id), [first!.run.id, second!.run.id]);
  assert.equal(one.hasMore, true);
  assert.deepEqual(two.claims.map(({ run }) => run.id), [third!.run.id]);
  assert.equal(two.hasMore, false);
});

test("claim() merges the jobs by age", async ({ store }) => {
  const requests = ["import", "export", "export", "import", "report"].map((jobName) => aRun({ jobName }));
  await store.enqueue(requests);

  const { claims } = await store.claim(aClaimRequest({ jobNames: ["report", "import", "export"] }));

  assert.deepEqual(claims.map(({ run }) => run.id), requests.map(({ id }) => id));
});

test("claim() leaves a run of an unknown job pending", async ({ store }) => {
  const { run } = await add(store, { jobName: "export" });

  const result = await store.claim(aClaimRequest({ jobNames: ["import"] }));

  assert.deepEqual(result.claims, []);
  assert.equal(result.hasMore, false);
  assert.deepEqual(await getRun(store, run.id), run);
});

timed("claim() takes a run that is pending whatever the clock says", async ({ store, host }) => {
  const { run } = await add(store);
  host.jump(-3_600_000);

  const claim = await claimOne(store);

  assert.equal(claim.run.id, run.id);
});

test("claim() takes nothing with a limit of 0, and says whether something is due", async ({ store }) => {
  const { run } = await add(store);

  const result = await store.claim(aClaimRequest({ limit: 0 }));

  assert.deepEqual(result.claims, []);
  assert.equal(result.hasMore, true);
  assert.deepEqual(await getRun(store, run.id), run);
});

timed("claim() brings all that was recorded, in the order in which it was committed", async ({ store, host }) => {
  const { lease } = await startRun(store);
  await store.saveStep(lease, aStep({ name: "read", index: 1 }), []);
  const failure = aFailure({ name: "TypeError", message: "no" });
  await store.saveStep(lease, aStep({ name: "check", index: 0, result: { status: "failed", failure } }), []);
  const review = aPause({ name: "review", metadata: '{"who":"ann"}', deadline: { afterMs: 9_000 } });
  const nap = aPause({ kind: "sleep", name: "nap", deadline: { afterMs: 200 } });
  await prepare(store, lease, review, nap);
  await store.signal(review.id, { signalId: "s1", payload: [1] });
  await store.saveStep(
    lease,
    aStep({ name: "send", index: 2, result: { status: "retrying", failure, delayMs: 500 } }),
    [],
  );
  host.advance(1_000);

  const { steps, pauses } = await claimOne(store);

  assert.deepEqual(inOrder(steps), [
    { name: "read", index: 1, attempts: 1, result: { status: "completed", output: '"rows"' }, recordedNo: 1 },
    { name: "check", index: 0, attempts: 1, result: { status: "failed", failure }, recordedNo: 2 },
    {
      name: "send",
      index: 2,
      attempts: 1,
      result: { status: "retrying", failure, retry: { at: FAKE_START + 500, inMs: 0 } },
      recordedNo: 4,
    },
  ]);
  assert.deepEqual(pauses, [
    {
      id: review.id,
      kind: "wait",
      name: "review",
      metadata: '{"who":"ann"}',
      deadlineAt: FAKE_START + 9_000,
      createdAt: FAKE_START,
      childCount: 0,
      childTotal: 0,
      child: null,
      preparedNo: null,
      resolution: { outcome: "signal", payload: "[1]", signalId: "s1", recordedNo: 3 },
    },
    {
      id: nap.id,
      kind: "sleep",
      name: "nap",
      metadata: null,
      deadlineAt: FAKE_START + 200,
      createdAt: FAKE_START,
      childCount: 0,
      childTotal: 0,
      child: null,
      preparedNo: null,
      resolution: { outcome: "timeout", recordedNo: 5 },
    },
  ]);
});

timed("claim() answers a repeated call with the same claims, and takes nothing new", async ({ store, host }) => {
  await add(store);
  const request = aClaimRequest();
  const first = await store.claim(request);
  await add(store);
  host.advance(10);

  const second = await store.claim(request);

  assert.deepEqual(second.claims, first.claims.map((claim) => ({ ...claim, startedAgoMs: 10 })));
  assert.equal(second.now, host.now());
});

timed("claim() answers a repeated call without what the worker claimed before", async ({ store }) => {
  await store.enqueue([aRun(), aRun()]);
  await store.claim(aClaimRequest({ limit: 1 }));
  const request = aClaimRequest({ limit: 1 });
  const first = await store.claim(request);

  const second = await store.claim(request);

  assert.deepEqual(second.claims, first.claims);
});

test("claim() leaves out of a repeated call what is no longer held", async ({ store }) => {
  const [first, second, third] = await store.enqueue([aRun(), aRun(), aRun()]);
  const request = aClaimRequest();
  const { claims } = await store.claim(request);
  await store.release(claims[0]!.lease, []);
  await complete(store, claims[1]!.lease);

  const repeated = await store.claim(request);

  assert.deepEqual(repeated.claims.map(({ run }) => run.id), [third!.run.id]);
  assert.equal((await getRun(store, first!.run.id))!.status, "pending");
  assert.equal((await getRun(store, second!.run.id))!.status, "completed");
});

test("claim() answers a repeated call in the order in which the runs were claimed", async ({ store }) => {
  await store.enqueue([aRun(), aRun({ flow: aFlow({ priority: 1 }) })]);
  const request = aClaimRequest();
  const first = await store.claim(request);

  const repeated = await store.claim(request);

  assert.deepEqual(repeated.claims.map(({ run }) => run.id), first.claims.map(({ run }) => run.id));
});

test("claim() knows a repeated call by the worker as well", async ({ store }) => {
  await store.enqueue([aRun(), aRun()]);
  const claimId = uuidV7(FAKE_START);
  const first = await store.claim(aClaimRequest({ workerId: "worker-a", claimId, limit: 1 }));

  const second = await store.claim(aClaimRequest({ workerId: "worker-b", claimId, limit: 1 }));

  assert.equal(second.claims.length, 1);
  assert.notEqual(second.claims[0]!.run.id, first.claims[0]!.run.id);
});

test("claim() answers all of a run's history or nothing of the run, if it is cancelled and deleted in the same moment", async ({ store }) => {
  const { run } = await add(store);
  const first = await claimOne(store);
  await store.saveStep(first.lease, aStep(), []);
  await store.release(first.lease, []);
  const { run: fresh } = await add(store);

  const claiming = store.claim(aClaimRequest({ workerId: "worker-b" }));
  for (let turn = 0; turn < 20; turn++) await null; // so that it is the first of the writes that are ready together
  const ending = [run.id, fresh.id].flatMap((id) => [store.cancel(id, uuidV7(FAKE_START), null), store.delete(id)]);
  const [{ claims }] = await Promise.all([claiming, ...ending]);

  for (const { run: { id }, input, steps } of claims) {
    assert.equal(input, aRun().input);
    assert.equal(steps.length, id === run.id ? 1 : 0);
  }
  assert.equal((await getRuns(store, {})).total, 0);
});

test("claim() takes a retry from the failure of a run of which no step had completed", async ({ store }) => {
  const { run } = await add(store);
  const { lease } = await claimOne(store);
  await store.saveStep(lease, aStep({ result: { status: "failed", failure: aFailure() } }), []);
  await store.finish(lease, { status: "failed", failure: aFailure(), failedStepName: "read" }, []);
  const { run: again } = await add(store, { retriggerOf: { runId: run.id, from: "failure" } });

  const claim = await claimOne(store);

  assert.deepEqual([claim.run.id, claim.steps], [again.id, []]);
});
