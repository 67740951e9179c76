import assert from "node:assert/strict";
import { ConflictError, LeaseLostError } from "../../../model/error.ts";
import type { Lease } from "../../../model/lease.ts";
import type { Store } from "../../../store/store.ts";
import { FactReader, type NamedFact } from "../fact_reader.ts";
import { FAKE_START } from "../../fake_host.ts";
import { aClaimRequest, aFailure, aLogged, aPause, aProgress, aRun, aStart, aStep } from "../fixtures.ts";
import { add, addCompleted, aRetry, claimOne, complete, NO_PAUSE, park, startRun } from "../arrange.ts";
import { newCases } from "../case.ts";
import { getRun, getSteps } from "../../../store/reads.ts";

const { cases, test, timed } = newCases();

/** Which facts the calls of a `Store` promise to note. */
export const factCases = cases;

/** The facts that calls add, without those of what was before. */
async function factsOf(store: Store, act: () => Promise<unknown>): Promise<NamedFact[]> {
  const reader = new FactReader(store);
  await reader.skip();
  await act();
  return await reader.read();
}

test("enqueue() notes that runs were triggered, in their order", async ({ store }) => {
  const runs = [aRun(), aRun()];

  const facts = await factsOf(store, () => store.enqueue(runs));

  assert.deepEqual(facts, runs.map(({ id }) => [id, "triggered"]));
});

test("enqueue() notes a retry of the old run, too", async ({ store }) => {
  const old = await addCompleted(store);
  const retry = aRun({ retriggerOf: { runId: old.id, from: "failure" } });

  const facts = await factsOf(store, () => store.enqueue([retry]));

  assert.deepEqual(facts, [[retry.id, "triggered"], [old.id, "retried", retry.id]]);
});

test("enqueue() notes nothing of the steps that a retry begins with", async ({ store }) => {
  const { run, lease } = await startRun(store);
  for (const index of [0, 1, 2]) await store.saveStep(lease, aStep({ name: `step-${index}`, index }), []);
  await complete(store, lease);
  const retry = aRun({ retriggerOf: { runId: run.id, from: "failure" } });

  const facts = await factsOf(store, async () => {
    await store.enqueue([retry]);
    await add(store);
  });

  assert.deepEqual(facts.map(([, kind]) => kind), ["triggered", "retried", "triggered"]);
});

test("enqueue() notes what a coalesced trigger asked for", async ({ store }) => {
  const { run } = await add(store, { concurrencyKey: "key" });
  const joining = { concurrencyKey: "key", coalesce: "skip", payload: '{"n":1}', labels: { org: "a" } } as const;

  const facts = await factsOf(store, () => add(store, joining));

  assert.deepEqual(facts, [[run.id, "coalesced", "pending", { n: 1 }, { org: "a" }]]);
});

test("enqueue() notes of a long input that was skipped only how long it is", async ({ store }) => {
  const { run } = await add(store, { concurrencyKey: "key" });
  const payload = JSON.stringify("x".repeat(20_000));

  const facts = await factsOf(store, () => add(store, { concurrencyKey: "key", coalesce: "skip", payload }));

  assert.deepEqual(facts, [[run.id, "coalesced", "pending", { cut: true, length: payload.length }, {}]]);
});

test("enqueue() notes nothing when it finds a run, is repeated, or is refused", async ({ store }) => {
  const run = aRun({ idempotencyKey: "same" });
  await store.enqueue([run]);
  const deleted = await addCompleted(store, { jobName: "other" });
  await store.delete(deleted.id);

  const facts = await factsOf(store, async () => {
    await store.enqueue([run]);
    await add(store, { idempotencyKey: "same" });
    await assert.rejects(store.enqueue([aRun(), aRun({ id: deleted.id })]), ConflictError);
  });

  assert.deepEqual(facts, []);
});

timed("claim() notes under which leases it took runs, and is silent when it is repeated", async ({ store }) => {
  const runs = [aRun(), aRun()];
  await store.enqueue(runs);
  const request = aClaimRequest();

  const facts = await factsOf(store, async () => {
    await store.claim(request);
    await store.claim(request);
  });

  const expiresAt = FAKE_START + 1_000;
  assert.deepEqual(facts, runs.map(({ id }) => [id, "claimed", 1, "worker-a", expiresAt, 1]));
});

timed("claim() notes that a run failed that was abandoned too often", async ({ store, host }) => {
  const { run } = await startRun(store);
  host.advance(1_000);

  const facts = await factsOf(store, () => store.claim(aClaimRequest({ maxAbandonments: 1 })));

  assert.deepEqual(facts, [[run.id, "failed", "abandoned"]]);
});

timed("claim() counts the executions that were cut short", async ({ store }) => {
  const { run, lease } = await startRun(store);
  await store.release(lease, []);

  const facts = await factsOf(store, () => claimOne(store));

  assert.deepEqual(facts, [[run.id, "claimed", 3, "worker-a", FAKE_START + 1_000, 2]]);
});

timed("saveStep() notes one fact for a step whose start comes with it", async ({ store, host }) => {
  const { run, lease } = await startRun(store);
  host.advance(100);

  const facts = await factsOf(store, () => store.saveStep(lease, aStep({ startedAgoMs: 39.6 }), [aStart()]));

  assert.deepEqual(facts, [[run.id, "step_completed", "read", 0, 1, FAKE_START + 60, 40]]);
});

test("saveStep() leaves the start of a step out that was said before", async ({ store }) => {
  const { run, lease } = await startRun(store);

  const facts = await factsOf(store, async () => {
    await store.renew([{ lease, reports: [aStart()] }], 1_000);
    await store.saveStep(lease, aStep({ startedAgoMs: 40 }), [aStart()]);
  });

  assert.deepEqual(facts, [
    [run.id, "step_started", FAKE_START, "read", 0, 1],
    [run.id, "step_completed", "read", 0, 1, null, 40],
  ]);
});

test("saveStep() notes what was said before a step ended, in its order", async ({ store }) => {
  const { run, lease } = await startRun(store);
  const said = [aStart(), aProgress({ current: 1 }, 2), aLogged({ no: 3, stepName: "read", data: [1] })];

  const facts = await factsOf(store, () => store.saveStep(lease, aStep(), said));

  assert.deepEqual(facts, [
    [run.id, "step_started", FAKE_START, "read", 0, 1],
    [run.id, "progressed", FAKE_START, { current: 1 }],
    [run.id, "logged", FAKE_START, "read", "info", "hello", [1]],
    [run.id, "step_completed", "read", 0, 1, null, 0],
  ]);
});

timed("saveStep() notes what was said before a step began, and the start with its end", async ({ store }) => {
  const { run, lease } = await startRun(store);
  const said = [aStart({ stepName: "other", stepIndex: 1 }), aStart({ no: 2 })];

  const facts = await factsOf(store, () => store.saveStep(lease, aStep(), said));

  assert.deepEqual(facts, [
    [run.id, "step_started", FAKE_START, "other", 1, 1],
    [run.id, "step_completed", "read", 0, 1, FAKE_START, 0],
  ]);
});

timed(
  "saveStep() notes the attempts at a step, with the error of those that are followed by another",
  async ({ store }) => {
    const { run, lease } = await startRun(store);
    const failure = aFailure({ message: "no" });

    const facts = await factsOf(store, async () => {
      await store.saveStep(lease, aRetry(100), [aStart()]);
      await store.saveStep(lease, aRetry(200, { attempts: 2 }), [aStart({ no: 2, attempt: 2 })]);
      await store.saveStep(lease, aStep({ attempts: 3, result: { status: "failed", failure } }), []);
    });

    assert.deepEqual(facts, [
      [run.id, "step_failed", "read", 0, 1, FAKE_START, "not now", FAKE_START + 100],
      [run.id, "step_failed", "read", 0, 2, FAKE_START, "not now", FAKE_START + 200],
      [run.id, "step_failed", "read", 0, 3, null, null, null],
    ]);
  },
);

timed("saveStep() notes a step that failed at its first attempt", async ({ store }) => {
  const { run, lease } = await startRun(store);
  const result = { status: "failed", failure: aFailure() } as const;

  const facts = await factsOf(store, () => store.saveStep(lease, aStep({ result, startedAgoMs: 5 }), [aStart()]));

  assert.deepEqual(facts, [[run.id, "step_failed", "read", 0, 1, FAKE_START - 5, null, null]]);
});

test("saveStep() says nothing twice when it is repeated, and then what was not said", async ({ store }) => {
  const { run, lease } = await startRun(store);
  await store.saveStep(lease, aStep(), [aStart()]);

  const facts = await factsOf(store, async () => {
    await store.saveStep(lease, aStep(), [aStart()]);
    await store.saveStep(lease, aStep(), [aStart(), aProgress({ current: 1 }, 2)]);
    await store.saveStep(lease, aStep(), [aStart(), aProgress({ current: 1 }, 2)]);
  });

  assert.deepEqual(facts, [[run.id, "progressed", FAKE_START, { current: 1 }]]);
});

test("saveStep() notes a step that waited for its write after what was said of the run meanwhile", async ({ store }) => {
  const { run, lease } = await startRun(store);

  const facts = await factsOf(store, () =>
    Promise.all([
      store.renew([{ lease, reports: [aProgress({ current: 1 })] }], 1_000),
      store.saveStep(lease, aStep({ name: "first" }), []),
      store.saveStep(lease, aStep({ name: "second", index: 1 }), []),
      complete(store, lease),
    ]));

  assert.deepEqual(facts.map(([runId, kind, name]) => [runId, kind, name]), [
    [run.id, "progressed", FAKE_START],
    [run.id, "step_completed", "first"],
    [run.id, "step_completed", "second"],
    [run.id, "completed", 0],
  ]);
});

test("renew() notes reports once, and those of a lost lease never", async ({ store }) => {
  const [{ run, lease }, lost] = [await startRun(store), await startRun(store)];
  await store.release(lost.lease, []);
  const reports = [aProgress({ current: 1 }), aLogged({ no: 2 })];

  const facts = await factsOf(store, async () => {
    await store.renew([{ lease: lost.lease, reports }, { lease, reports: reports.slice(0, 1) }], 1_000);
    await store.renew([{ lease, reports }, { lease, reports }], 1_000);
  });

  assert.deepEqual(facts, [
    [run.id, "progressed", FAKE_START, { current: 1 }],
    [run.id, "logged", FAKE_START, null, "info", "hello", null],
  ]);
});

test("renew() counts the reports of each lease from 1", async ({ store }) => {
  const { run, lease } = await startRun(store);
  await store.renew([{ lease, reports: [aProgress({ current: 1 }), aProgress({ current: 2 }, 2)] }], 1_000);
  await store.release(lease, []);
  const next = await claimOne(store);

  const facts = await factsOf(
    store,
    () => store.renew([{ lease: next.lease, reports: [aProgress({ current: 9 })] }], 1_000),
  );

  assert.deepEqual(facts, [[run.id, "progressed", FAKE_START, { current: 9 }]]);
  assert.deepEqual((await getRun(store, run.id))!.progress, { current: 9 });
});

test("renew() keeps later progress when reports come again that were kept before it", async ({ store }) => {
  const { run, lease } = await startRun(store);
  await store.renew([{ lease, reports: [aProgress({ current: 1 }), aProgress({ current: 2 }, 2)] }], 1_000);

  await store.renew([{ lease, reports: [aProgress({ current: 1 })] }], 1_000);

  assert.deepEqual((await getRun(store, run.id))!.progress, { current: 2 });
});

timed("pause() notes what a run parks on, after what it said", async ({ store }) => {
  const { run, lease } = await startRun(store);
  await store.saveStep(lease, aRetry(900, { name: "send" }), []);
  const review = aPause({ name: "review", deadline: { afterMs: 500 } });
  const nap = aPause({ kind: "sleep", name: "nap", deadline: { afterMs: 700 } });
  const reports = [aProgress({ current: 1 })];
  const request = { pauses: [nap, review], retryAt: FAKE_START + 900, park: true, reports };

  const facts = await factsOf(store, async () => {
    await store.pause(lease, request);
    await store.pause(lease, request);
  });

  assert.deepEqual(facts, [
    [run.id, "progressed", FAKE_START, { current: 1 }],
    [run.id, "waiting", null, "nap", FAKE_START + 700],
    [run.id, "waiting", review.id, "review", FAKE_START + 500],
    [run.id, "waiting", null, "send", FAKE_START + 900],
  ]);
});

test("pause() notes only what was said if the run does not park", async ({ store }) => {
  const { run, lease } = await startRun(store);
  const over = aPause({ deadline: { afterMs: 0 } });

  const facts = await factsOf(store, async () => {
    await store.pause(lease, {
      ...NO_PAUSE,
      pauses: [aPause({ name: "later" })],
      reports: [aProgress({ current: 1 })],
    });
    await store.pause(lease, { ...NO_PAUSE, pauses: [over], park: true });
  });

  assert.deepEqual(facts, [[run.id, "progressed", FAKE_START, { current: 1 }]]);
});

test("finish() notes the end of a run once, after what it said", async ({ store }) => {
  const { run, lease } = await startRun(store);
  const ending = { status: "completed", output: "1", durationMs: 70 } as const;

  const facts = await factsOf(store, async () => {
    await store.finish(lease, ending, [aProgress({ current: 1 })]);
    await store.finish(lease, ending, [aProgress({ current: 1 })]);
  });

  assert.deepEqual(facts, [[run.id, "progressed", FAKE_START, { current: 1 }], [run.id, "completed", 70]]);
});

test("finish() notes that a run failed", async ({ store }) => {
  const { run, lease } = await startRun(store);
  const ending = { status: "failed", failure: aFailure(), failedStepName: null } as const;

  const facts = await factsOf(store, () => store.finish(lease, ending, []));

  assert.deepEqual(facts, [[run.id, "failed"]]);
});

test("release() notes only what was said", async ({ store }) => {
  const { run, lease } = await startRun(store);

  const facts = await factsOf(store, () => store.release(lease, [aProgress({ current: 1 })]));

  assert.deepEqual(facts, [[run.id, "progressed", FAKE_START, { current: 1 }]]);
});

test("cancel() notes the steps that it records as cancelled, and itself, once", async ({ store }) => {
  const { run, lease } = await startRun(store);
  await store.saveStep(lease, aStep({ name: "done" }), []);
  await store.saveStep(lease, aRetry(100, { name: "again", index: 1 }), []);
  await store.saveStep(lease, aRetry(100, { name: "idle", index: 2 }), []);
  const steps = ["done", "again", "new"].map((name, index) => ({ name, index, attempts: 2, startedAgoMs: 0 }));
  const execution = { lease, steps, reports: [aProgress({ current: 1 })] };

  const facts = await factsOf(store, async () => {
    await store.cancel(run.id, "c1", execution);
    await store.cancel(run.id, "c1", execution);
    await store.cancel(run.id, "c2", execution);
  });

  assert.deepEqual(facts, [
    [run.id, "progressed", FAKE_START, { current: 1 }],
    [run.id, "step_cancelled", "again", 1],
    [run.id, "step_cancelled", "new", 2],
    [run.id, "cancelled"],
  ]);
});

test("cancel() leaves out what was said and executed under a lease that is lost", async ({ store }) => {
  const { run, lease } = await startRun(store);
  await store.release(lease, []);
  await claimOne(store);
  const reports = [aProgress({ current: 1 })];
  const steps = [{ name: "stale", index: 0, attempts: 1, startedAgoMs: 0 }];

  const facts = await factsOf(
    store,
    () => store.cancel(run.id, "c1", { lease, steps, reports }),
  );

  assert.deepEqual(facts, [[run.id, "cancelled"]]);
  assert.deepEqual(await getSteps(store, run.id), []);
  assert.equal((await getRun(store, run.id))!.progress, null);
});

test("cancel() of a run that has parked leaves out what its last execution had under way", async ({ store }) => {
  const { run, lease } = await startRun(store);
  const result = { status: "retrying" as const, failure: aFailure(), delayMs: 60_000 };
  const { retry } = await store.saveStep(lease, aStep({ name: "send", result }), []);
  await store.pause(lease, { pauses: [], retryAt: retry!.at, park: true, reports: [] });
  const steps = [{ name: "send", index: 0, attempts: 1, startedAgoMs: 5 }];

  const facts = await factsOf(
    store,
    () => store.cancel(run.id, "c1", { lease, steps, reports: [aProgress({ current: 1 })] }),
  );

  assert.deepEqual(facts, [[run.id, "cancelled"]]);
});

test("delete() and purge() note who is gone", async ({ store }) => {
  const first = await addCompleted(store, { labels: { org: "a" } });
  const second = await addCompleted(store);

  const facts = await factsOf(store, async () => {
    await store.delete(first.id);
    await store.delete(first.id);
    await store.purge({ completed: 0 }, 10);
  });

  assert.deepEqual(facts, [
    [first.id, "deleted", first.id, first.jobName, { org: "a" }],
    [second.id, "deleted", second.id, second.jobName, {}],
  ]);
});

timed("a signal, a deadline, a revocation and kept log lines are no facts", async ({ store, host }) => {
  const [{ lease }, revoked] = [await startRun(store), await startRun(store)];
  const wait = aPause();
  await park(store, lease, wait, aPause({ name: "late", deadline: { afterMs: 10 } }));

  const facts = await factsOf(store, async () => {
    await store.signal(wait.id, { signalId: "s1", payload: null });
    host.advance(10);
    await store.claim(aClaimRequest({ limit: 0 }));
    await store.revoke((await store.getLeases()).filter(({ runId }) => runId === revoked.run.id));
    await store.appendLogs([]);
  });

  assert.deepEqual(facts, []);
});

const UNDER_LEASE: Record<string, (store: Store, lease: Lease) => Promise<unknown>> = {
  saveStep: (store, lease) => store.saveStep(lease, aStep(), [aProgress({ current: 1 })]),
  pause: (store, lease) =>
    store.pause(lease, { ...NO_PAUSE, pauses: [aPause()], park: true, reports: [aProgress({ current: 1 })] }),
  finish: (store, lease) =>
    store.finish(lease, { status: "completed", output: null, durationMs: 0 }, [aProgress({ current: 1 })]),
};

for (const [name, write] of Object.entries(UNDER_LEASE)) {
  test(`${name}() notes nothing, not even what was said, when it is refused among others`, async ({ store }) => {
    const { lease } = await startRun(store);
    await store.release(lease, []);
    const { run } = await claimOne(store);
    const other = aRun({ jobName: "other" });

    const facts = await factsOf(store, async () => {
      const [refused] = await Promise.allSettled([write(store, lease), store.enqueue([other])]);
      assert.ok(refused.status === "rejected" && refused.reason instanceof LeaseLostError);
    });

    assert.deepEqual(facts, [[other.id, "triggered"]]);
    assert.equal((await getRun(store, run.id))!.progress, null);
  });
}
