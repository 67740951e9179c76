import assert from "node:assert/strict";
import { ConflictError, NotFoundError, WaitExpiredError } from "../../../model/error.ts";
import { uuidV7 } from "../../../model/host.ts";
import type { Lease } from "../../../model/lease.ts";
import { parseRun, type Run } from "../../../model/run.ts";
import { stepId } from "../../../model/step.ts";
import type { Store } from "../../../store/store.ts";
import type { Claim } from "../../../store/claim.ts";
import type { NewRun } from "../../../store/new_run.ts";
import type { NewPause } from "../../../store/pause_request.ts";
import { isoTime } from "../../../values/iso_time.ts";
import { FAKE_START, type FakeHost } from "../../fake_host.ts";
import { aFailure, aLine, aLogged, aPause, aProgress, aRun, aStep } from "../fixtures.ts";
import { add, aRetry, claimOne, complete, inOrder, look, park, prepare, startRun } from "../arrange.ts";
import { newCases } from "../case.ts";
import { getRun, getRuns, getSteps, getWaits } from "../../../store/reads.ts";

const { cases, test, timed } = newCases();

/** What `Store.enqueue()` promises of runs that are retriggered. */
export const retriggerCases = cases;

test("enqueue() begins a retry from the failure with the completed steps of the old run", async ({ store }) => {
  const old = await addWithSteps(store);

  const { run } = await add(store, fromFailure(old));

  const steps = await getSteps(store, run.id);
  assert.deepEqual(steps.map(({ id, index, status, output, attempts }) => [id, index, status, output, attempts]), [
    [stepId(run.id, "read"), 0, "completed", "rows", 1],
    [stepId(run.id, "check"), 1, "completed", null, 2],
  ]);
});

test("enqueue() keeps the order in which copied steps were recorded", async ({ store }) => {
  const old = await addWithSteps(store);
  const { run } = await add(store, fromFailure(old));

  const claim = await claimOne(store);
  await store.saveStep(claim.lease, aStep({ name: "write", index: 2 }), []);
  await store.release(claim.lease, []);
  const again = await claimOne(store);

  assert.equal(claim.run.id, run.id);
  assert.deepEqual(inOrder(claim.steps).map(({ name }) => name), ["check", "read"]);
  assert.deepEqual(inOrder(again.steps).map(({ name }) => name), ["check", "read", "write"]);
});

timed("enqueue() copies nothing to a retry from the start", async ({ store, host }) => {
  const { old } = await addWithPauses(store, host);

  const { run } = await add(store, { retriggerOf: { runId: old.id, from: "start" } });

  const claim = await claimOne(store);
  assert.equal(claim.run.id, run.id);
  assert.deepEqual([claim.steps, claim.pauses], [[], []]);
});

timed("enqueue() changes nothing in the old run but its link to the retry", async ({ store, host }) => {
  const { old } = await addWithPauses(store, host);
  const before = await look(store, old.id);
  host.advance(10);

  const { run } = await add(store, fromFailure(old));

  assert.deepEqual(await look(store, old.id), { ...before, run: { ...before.run, retriggeredAs: run.id } });
});

timed("enqueue() copies resolved waits and finished sleeps to a retry from the failure", async ({ store, host }) => {
  const { old, claim: before } = await addWithPauses(store, host);

  const { run } = await add(store, fromFailure(old));

  const claim = await claimOne(store);
  assert.equal(claim.run.id, run.id);
  const copied = before.pauses.filter(({ name }) => ["answered", "expired", "nap"].includes(name));
  const withoutId = ({ id: _id, ...pause }: Claim["pauses"][number]) => pause;
  assert.deepEqual(claim.pauses.map(withoutId), copied.map(withoutId));
  assert.equal(new Set([...before.pauses, ...claim.pauses].map(({ id }) => id)).size, before.pauses.length + 3);
});

timed("enqueue() shows copied waits as they were, in the new run", async ({ store, host }) => {
  const { old } = await addWithPauses(store, host);
  const waits = await getWaits(store, old.id);

  const { run } = await add(store, fromFailure(old));

  const copies = await getWaits(store, run.id);
  const expected = waits.filter(({ name }) => name === "answered" || name === "expired");
  assert.deepEqual(copies, expected.map((wait, at) => ({ ...wait, id: copies[at]!.id, runId: run.id })));
  assert.partialDeepStrictEqual(copies[0], { outcome: "signal", payload: { ok: true }, signalId: "s-1" });
  assert.deepEqual(await store.getWait(copies[0]!.id), copies[0]);
});

timed("enqueue() copies the receipt of a signal: the same signal again is a duplicate", async ({ store, host }) => {
  const { old } = await addWithPauses(store, host);
  const { run } = await add(store, fromFailure(old));
  const [answered, expired] = await getWaits(store, run.id);
  await claimOne(store);

  const again = await store.signal(answered!.id, { signalId: "s-1", payload: { ok: true } });

  assert.deepEqual([again.disposition, again.run.id], ["duplicate", run.id]);
  assert.deepEqual(again.wait, { ...answered, firstResumedAt: null });
  await assert.rejects(store.signal(answered!.id, { signalId: "s-2", payload: 1 }), ConflictError);
  await assert.rejects(store.signal(expired!.id, { signalId: "s-2", payload: 1 }), WaitExpiredError);
});

timed("enqueue() copies no wait that timed out if nothing was recorded after it", async ({ store, host }) => {
  const { lease } = await startRun(store);
  await park(store, lease, aPause({ deadline: { afterMs: 100 } }));
  host.advance(100);
  const resumed = await claimOne(store);
  await fail(store, resumed, null);

  const { run } = await add(store, fromFailure({ id: lease.runId }));

  assert.deepEqual(await getWaits(store, run.id), []);
});

timed("enqueue() copies a wait that timed out before a step failed", async ({ store, host }) => {
  const { lease } = await startRun(store);
  await park(store, lease, aPause({ deadline: { afterMs: 100 } }));
  host.advance(100);
  const resumed = await claimOne(store);
  await store.saveStep(resumed.lease, aFailedStep("remind"), []);
  await fail(store, resumed, "remind");

  const { run } = await add(store, fromFailure({ id: lease.runId }));

  assert.deepEqual((await getWaits(store, run.id)).map(({ outcome }) => outcome), ["timeout"]);
});

test("enqueue() copies no wait whose signal is the last record", async ({ store }) => {
  const { lease, waits: [asked] } = await answerWaits(store, "approve");
  await fail(store, await claimOne(store), null);
  await add(store, fromFailure({ id: lease.runId }));
  const retry = await claimOne(store);
  const again = aPause({ name: "approve" });

  const { pauses: [prepared] } = await park(store, retry.lease, again);

  assert.deepEqual([retry.steps.length, retry.pauses], [1, []]);
  assert.deepEqual(retry.copied!.unfinished, [{ kind: "wait", name: "approve" }]);
  assert.deepEqual([prepared!.id, prepared!.resolution], [again.id, null]);
  assert.notEqual(again.id, asked!.id);
  assert.equal((await store.signal(again.id, { signalId: "s-approve", payload: "yes" })).disposition, "accepted");
});

test("enqueue() copies a wait with its signal if anything was recorded after it: another signal, or a failed step", async ({ store }) => {
  const { lease } = await answerWaits(store, "approve", "sign", "send");
  const resumed = await claimOne(store);
  await fail(store, resumed, null);
  const other = await answerWaits(store, "approve");
  const { lease: failing } = await claimOne(store);
  await store.saveStep(failing, aRetry(0, { name: "charge", index: 1 }), []);
  await store.cancel(other.lease.runId, "request-1", null);

  const retries = [lease, failing].map(({ runId }) => add(store, fromFailure({ id: runId })));

  const names = (await Promise.all(retries)).map(async ({ run }) => {
    return (await getWaits(store, run.id)).map(({ name }) => name);
  });
  assert.deepEqual(await Promise.all(names), [["approve", "sign"], ["approve"]]);
});

test("enqueue() copies a wait with its signal if the run has parked on another pause after it", async ({ store }) => {
  const { lease } = await answerWaits(store, "approve");
  await park(store, (await claimOne(store)).lease, aPause({ name: "sign" }));
  await store.cancel(lease.runId, "request-1", null);
  const { run: second } = await add(store, fromFailure({ id: lease.runId }));
  await fail(store, await claimOne(store), null);
  const { run: third } = await add(store, fromFailure({ id: second.id }));

  const waits = await Promise.all([second, third].map(({ id }) => getWaits(store, id)));
  assert.deepEqual(waits.map((list) => list.map(({ name }) => name)), [["approve"], []]);
});

test("enqueue() copies a wait with its signal from a retry that was cancelled before it began", async ({ store }) => {
  const { lease } = await answerWaits(store, "approve");
  await park(store, (await claimOne(store)).lease, aPause({ name: "sign" }));
  await store.cancel(lease.runId, "request-1", null);
  const { run: second } = await add(store, fromFailure({ id: lease.runId }));
  await store.cancel(second.id, "request-2", null);

  const { run: third } = await add(store, fromFailure({ id: second.id }));

  assert.deepEqual((await getWaits(store, third.id)).map(({ name, outcome }) => [name, outcome]), [[
    "approve",
    "signal",
  ]]);
});

test("enqueue() copies no wait whose signal is the last record if the run has prepared another one, and not parked", async ({ store }) => {
  const { lease } = await answerWaits(store, "approve");
  const { lease: current } = await claimOne(store);
  await store.pause(current, { pauses: [aPause({ name: "sign" })], retryAt: null, park: false, reports: [] });
  await store.cancel(lease.runId, "request-1", null);

  const { run } = await add(store, fromFailure({ id: lease.runId }));

  assert.deepEqual(await getWaits(store, run.id), []);
});

timed("enqueue() copies a wait with its signal if a sleep ended after it", async ({ store, host }) => {
  const { lease } = await answerWaits(store, "approve");
  await park(store, (await claimOne(store)).lease, aPause({ kind: "sleep", name: "nap", deadline: { afterMs: 100 } }));
  host.advance(100);
  await fail(store, await claimOne(store), null);

  await add(store, fromFailure({ id: lease.runId }));

  assert.deepEqual((await claimOne(store)).pauses.map(({ name }) => name), ["approve", "nap"]);
});

test("enqueue() copies no wait whose signal is the last record, whatever its run has reported or logged since", async ({ store }) => {
  const { lease } = await answerWaits(store, "approve");
  const { lease: current } = await claimOne(store);
  await store.renew([{ lease: current, reports: [aProgress({ current: 1 }), { ...aLogged(), no: 2 }] }], 1_000);
  await store.appendLogs([aLine(lease.runId)]);
  await store.finish(current, { status: "failed", failure: aFailure(), failedStepName: null }, [
    aProgress({ current: 2 }, 3),
  ]);

  const { run } = await add(store, fromFailure({ id: lease.runId }));

  assert.deepEqual(await getWaits(store, run.id), []);
});

test("enqueue() asks again only for the last answer of the run that is retried, not for those of the runs before it", async ({ store }) => {
  const { lease } = await answerWaits(store, "approve", "sign");
  await fail(store, await claimOne(store), null);
  await add(store, fromFailure({ id: lease.runId }));
  const second = await claimOne(store);
  await fail(store, second, null);
  const { run: third } = await add(store, fromFailure({ id: second.run.id }));
  const claim = await claimOne(store);
  const sign = aPause({ name: "sign" });
  await park(store, claim.lease, sign);
  await store.signal(sign.id, { signalId: "s", payload: 1 });
  await fail(store, await claimOne(store), null);

  const { run: fourth } = await add(store, fromFailure({ id: third.id }));

  const waits = await Promise.all([second.run, third, fourth].map(({ id }) => getWaits(store, id)));
  assert.deepEqual(waits.map((list) => list.map(({ name }) => name)), [["approve"], ["approve", "sign"], ["approve"]]);
});

timed("enqueue() copies a sleep that was the last thing that was recorded", async ({ store, host }) => {
  const { lease } = await startRun(store);
  await park(store, lease, aPause({ kind: "sleep", name: "nap", deadline: { afterMs: 100 } }));
  host.advance(100);
  await fail(store, await claimOne(store), null);

  await add(store, fromFailure({ id: lease.runId }));

  const { pauses } = await claimOne(store);
  assert.deepEqual(pauses.map(({ name, resolution }) => [name, resolution?.outcome]), [["nap", "timeout"]]);
});

for (const ending of ["closed", "cancelled"] as const) {
  test(`enqueue() copies no wait that is ${ending}`, async ({ store }) => {
    const { lease } = await startRun(store);
    await prepare(store, lease, aPause({ prepared: true }));
    await (ending === "closed" ? complete(store, lease) : store.cancel(lease.runId, "request-1", null));
    assert.deepEqual((await getWaits(store, lease.runId)).map(({ status }) => status), [ending]);

    const { run } = await add(store, fromFailure({ id: lease.runId }));

    assert.deepEqual(await getWaits(store, run.id), []);
  });
}

timed("enqueue() lets a retry ask again for a wait that was not copied", async ({ store, host }) => {
  const { old } = await addWithPauses(store, host);
  await add(store, fromFailure(old));
  const { lease } = await claimOne(store);

  const { pauses: [open] } = await park(store, lease, aPause({ name: "open" }));
  await store.signal(open!.id, { signalId: "s-3", payload: 3 });

  const again = await claimOne(store);
  assert.equal(again.run.id, lease.runId);
  assert.deepEqual(
    inOrder(again.pauses.map(({ name, resolution }) => ({ name, ...resolution! }))).at(-1)!.name,
    "open",
  );
});

test("enqueue() names in every retry from the failure the first run, and from the start the run itself", async (context) => {
  const { store } = context;
  const first = await failed(store);
  const second = await failed(store, fromFailure(first.run));

  const third = await failed(store, fromFailure(second.run));
  const anew = await failed(store, { retriggerOf: { runId: third.run.id, from: "start" } });
  const next = await failed(store, fromFailure(anew.run));

  const origins = [first, second, third, anew, next].map(({ originId }) => originId);
  assert.deepEqual(origins, [first.run.id, first.run.id, first.run.id, anew.run.id, anew.run.id]);
});

for (const from of ["start", "failure"] as const) {
  test(`enqueue() links a run with its newest retry from the ${from}`, async ({ store }) => {
    const { run: { id } } = await failed(store);

    const first = await failed(store, { retriggerOf: { runId: id, from } });
    const { run: second } = await add(store, { retriggerOf: { runId: id, from } });

    const [oldRun, firstRun, secondRun] = await Promise.all(
      [id, first.run.id, second.id].map((id) => getRun(store, id)),
    );
    assert.deepEqual([oldRun!.retriggerOf, oldRun!.retriggeredAs], [null, second.id]);
    assert.deepEqual([firstRun!.retriggerOf, firstRun!.retriggeredAs], [id, null]);
    assert.deepEqual([second.retriggerOf, second.retriggeredAs], [id, null]);
    assert.deepEqual(secondRun, second);
    assert.deepEqual((await getRuns(store, {})).runs, [secondRun, firstRun, oldRun]);
    assert.deepEqual(parseRun((await store.getRunState(id))!.run), oldRun);
  });

  test(`enqueue() answers the newest retry from the ${from} while it has not ended`, async ({ store }) => {
    const { run: { id } } = await failed(store);
    const { run } = await add(store, { retriggerOf: { runId: id, from } });

    const pending = await add(store, fromFailure({ id }));
    const { lease } = await claimOne(store);
    const running = await add(store, { retriggerOf: { runId: id, from: "start" } });
    await park(store, lease, aPause());
    const waiting = await add(store, fromFailure({ id }));

    assert.deepEqual(pending, { run, disposition: "idempotent" });
    for (const again of [running, waiting]) {
      assert.deepEqual([again.run.id, again.disposition], [run.id, "idempotent"]);
    }
    assert.deepEqual([running.run.status, waiting.run.status], ["running", "waiting"]);
    assert.equal((await getRuns(store, {})).total, 2);
  });
}

for (const from of ["start", "failure"] as const) {
  test(`enqueue() answers a retry from the ${from} of a retry, too, while it has not ended`, async ({ store }) => {
    const { run: { id } } = await failed(store);
    const second = await failed(store, { retriggerOf: { runId: id, from } });
    const { run: third } = await add(store, { retriggerOf: { runId: second.run.id, from } });

    const again = await add(store, { retriggerOf: { runId: id, from } });

    assert.deepEqual([again.run.id, again.disposition], [third.id, "idempotent"]);
  });
}

test("enqueue() begins no second retry with the same steps, whichever of the runs before is retried", async ({ store }) => {
  const { run: first } = await failed(store);
  const second = await failed(store, fromFailure(first));
  const newest = await failed(store, fromFailure(first));
  const { run: open } = await add(store, fromFailure(second.run));

  const again = await Promise.all([first, second.run, newest.run].map((run) => add(store, fromFailure(run))));

  assert.deepEqual(again.map(({ run, disposition }) => [run.id, disposition]), Array(3).fill([open.id, "idempotent"]));
});

test("enqueue() finds by its key the open retry of a retry that was deleted", async ({ store }) => {
  const key = { idempotencyKey: "a", idempotencyUntil: "ended" } as const;
  const first = await failed(store, key);
  const second = await failed(store, fromFailure(first.run));
  const { run: open } = await add(store, fromFailure(second.run));
  await store.delete(second.run.id);

  const again = await add(store, key);

  assert.deepEqual([again.run.id, again.disposition], [open.id, "idempotent"]);
});

test("enqueue() makes one run of two retriggers in one call", async ({ store }) => {
  const { run: { id } } = await failed(store);

  const [first, second] = await store.enqueue([aRun(fromFailure({ id })), aRun(fromFailure({ id }))]);

  assert.deepEqual([first!.disposition, second!.disposition], ["created", "idempotent"]);
  assert.equal(second!.run.id, first!.run.id);
});

test("enqueue() makes another retry once the newest one has ended or is deleted", async ({ store }) => {
  const { run: { id } } = await failed(store);
  const ended = await failed(store, fromFailure({ id }));

  const second = await failed(store, fromFailure({ id }));
  await store.delete(second.run.id);
  const third = await add(store, fromFailure({ id }));

  assert.equal(third.disposition, "created");
  assert.equal(new Set([ended.run.id, second.run.id, third.run.id]).size, 3);
  assert.equal((await getRun(store, id))!.retriggeredAs, third.run.id);
});

test("enqueue() recognises a retrigger that is repeated, whatever has become of the retry", async ({ store }) => {
  const { run: { id } } = await failed(store);
  const request = aRun(fromFailure({ id }));
  const [first] = await store.enqueue([request]);

  const [second] = await store.enqueue([request]);
  await fail(store, await claimOne(store), null);
  await add(store, fromFailure({ id }));
  const [third] = await store.enqueue([request]);

  assert.deepEqual(second, first);
  assert.equal(first!.disposition, "created");
  assert.deepEqual([third!.run.id, third!.disposition, third!.run.status], [request.id, "created", "failed"]);
  assert.equal((await getRuns(store, {})).total, 3);
});

for (const from of ["start", "failure"] as const) {
  test(`enqueue() refuses a retry from the ${from} of a run that does not exist, and adds nothing`, async ({ store }) => {
    const requests = [aRun(), aRun({ retriggerOf: { runId: uuidV7(FAKE_START), from } }), aRun()];

    const adding = store.enqueue(requests);

    await assert.rejects(adding, NotFoundError);
    assert.equal((await getRuns(store, {})).total, 0);
  });
}

test("enqueue() can be repeated when the old run is gone, whose id its retry keeps", async ({ store }) => {
  const old = await addWithSteps(store);
  const request = aRun(fromFailure(old));
  const first = await store.enqueue([request]);
  await store.delete(old.id);

  const second = await store.enqueue([request]);

  assert.deepEqual(second, first);
  assert.equal(second[0]!.run.retriggerOf, old.id);
});

test("enqueue() copies nothing to a run that it has found", async ({ store }) => {
  const old = await addWithSteps(store);
  const { run } = await add(store, { idempotencyKey: "once" });

  await add(store, { idempotencyKey: "once", ...fromFailure(old) });

  assert.deepEqual(await getSteps(store, run.id), []);
  assert.equal((await getRun(store, run.id))!.retriggerOf, null);
  assert.equal((await getRun(store, old.id))!.retriggeredAs, null);
});

timed("enqueue() copies what was copied, and what was recorded since", async ({ store, host }) => {
  const { old } = await addWithPauses(store, host);
  await add(store, fromFailure(old));
  const second = await claimOne(store);
  await store.saveStep(second.lease, aStep({ name: "more", index: 9 }), []);
  await fail(store, second, null);

  await add(store, fromFailure({ id: second.run.id }));

  const third = await claimOne(store);
  assert.deepEqual(third.steps.map(({ name }) => name).sort(), ["more", "read"]);
  assert.deepEqual(third.pauses.map(({ name }) => name), ["answered", "expired", "nap"]);
});

timed("delete() of a run leaves the waits of its retry", async ({ store, host }) => {
  const { old } = await addWithPauses(store, host);
  const { run } = await add(store, fromFailure(old));
  const waits = await getWaits(store, run.id);

  await store.delete(old.id);

  assert.deepEqual(await getWaits(store, run.id), waits);
  assert.deepEqual(await store.getWait(waits[0]!.id), waits[0]);
});

function fromFailure({ id }: Pick<Run, "id">): Pick<NewRun, "retriggerOf"> {
  return { retriggerOf: { runId: id, from: "failure" } };
}

function aFailedStep(name: string) {
  const failure = aFailure();
  return aStep({ name, index: 5, result: { status: "failed", failure } });
}

function fail(store: Store, { lease }: Claim, failedStepName: string | null): Promise<void> {
  return store.finish(lease, { status: "failed", failure: aFailure(), failedStepName }, []);
}

/** Adds a run that waits after a step, and answers its waits one after another. It is due then. */
async function answerWaits(store: Store, ...names: string[]): Promise<{ lease: Lease; waits: NewPause[] }> {
  const { lease } = await startRun(store);
  await store.saveStep(lease, aStep(), []);
  const waits = names.map((name) => aPause({ name }));
  await park(store, lease, ...waits);
  for (const { id, name } of waits) await store.signal(id, { signalId: `s-${name}`, payload: "yes" });
  return { lease, waits };
}

/** Adds a run that has failed already, and answers its claim. */
async function failed(store: Store, overrides: Partial<NewRun> = {}): Promise<Claim> {
  const claim = await startRun(store, overrides);
  await fail(store, claim, null);
  return claim;
}

/** Adds a run that failed with two completed steps, of which the second was recorded first. */
async function addWithSteps(store: Store): Promise<Run> {
  const { lease } = await startRun(store);
  await store.saveStep(lease, aRetry(10, { name: "check", index: 1 }), []);
  await store.saveStep(
    lease,
    aStep({ name: "check", index: 1, attempts: 2, result: { status: "completed", output: null } }),
    [],
  );
  await store.saveStep(lease, aStep({ name: "read", index: 0 }), []);
  await store.saveStep(lease, aFailedStep("write"), []);
  await store.saveStep(lease, aRetry(10, { name: "send", index: 3 }), []);
  await store.finish(lease, { status: "failed", failure: aFailure(), failedStepName: "write" }, []);
  return (await getRun(store, lease.runId))!;
}

/**
 * Adds a run that failed after a step, a wait that was signalled, a wait that timed out and a sleep, beside a wait
 * and a sleep that were not over. Answers it with its last claim.
 */
async function addWithPauses(store: Store, host: FakeHost): Promise<{ old: Run; claim: Claim }> {
  const pauses: NewPause[] = [
    aPause({ name: "answered", metadata: '{"for":"you"}', prepared: true }),
    aPause({ name: "expired", deadline: { afterMs: 100 } }),
    aPause({ name: "nap", kind: "sleep", deadline: { afterMs: 200 } }),
    aPause({ name: "open" }),
    aPause({ name: "long nap", kind: "sleep", deadline: { afterMs: 10_000 } }),
  ];
  const first = await startRun(store);
  await store.saveStep(first.lease, aStep(), []);
  await park(store, first.lease, ...pauses);
  host.advance(50);
  await store.signal(pauses[0]!.id, { signalId: "s-1", payload: { ok: true } });
  host.advance(200);
  const claim = await claimOne(store);
  await store.saveStep(claim.lease, aFailedStep("write"), []);
  await store.finish(claim.lease, { status: "failed", failure: aFailure(), failedStepName: "write" }, []);
  const [answered] = await getWaits(store, claim.run.id);
  assert.equal(answered!.resolvedAt, isoTime(FAKE_START + 50));
  return { old: (await getRun(store, claim.run.id))!, claim };
}
