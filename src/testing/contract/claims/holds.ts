import assert from "node:assert/strict";
import { LeaseLostError } from "../../../error.ts";
import { isoTime } from "../../../values/iso_time.ts";
import type { Store } from "../../../store.ts";
import type { ClaimRequest } from "../../../store/claim.ts";
import type { HeldQuery, NewHold } from "../../../store/hold_record.ts";
import type { NewRun } from "../../../store/new_run.ts";
import { FactReader, type NamedFact } from "../fact_reader.ts";
import { FAKE_START } from "../../fake_host.ts";
import {
  A_JOB,
  aClaimRequest,
  aFlow,
  aHold,
  aKnownJob,
  aPause,
  aProgress,
  aRun,
  aStep,
  type ClaimOverrides,
} from "../fixtures.ts";
import { add, addIds, claimedIds, claimOne, complete, park, prepare, startRun } from "../arrange.ts";
import { newCases } from "../case.ts";

const { cases, test, timed } = newCases();

/** What a store promises of runs that are held. */
export const holdCases = cases;

const KEY = "cust-1";

timed("hold() makes a run pending, and shows why", async ({ store, host }) => {
  const { lease } = await startRun(store);
  const before = await store.getRun(lease.runId);
  host.advance(250);

  await store.hold(lease, aHold({ code: "ended_early", message: "the job threw" }), []);

  const since = isoTime(FAKE_START + 250);
  assert.deepEqual(await store.getRun(lease.runId), {
    ...before,
    status: "pending",
    held: { code: "ended_early", message: "the job threw", since },
    leaseOwner: null,
    leaseExpiresAt: null,
    leaseGeneration: 2,
    updatedAt: since,
  });
});

timed("getHold() answers all that a hold says", async ({ store }) => {
  const issues = [{ message: "Required", path: ["currency"] }];
  const details = { isNew: null, unasked: [{ kind: "wait" as const, name: "ok?" }], issues };
  const runId = await addHeld(store, {}, { code: "input_refused", message: "no", details });

  const hold = await store.getHold(runId);

  const since = isoTime(FAKE_START);
  assert.deepEqual(hold, { code: "input_refused", message: "no", since, details, prints: ["print-1"] });
});

test("getHold() answers null for a run that is not held, and for an unknown one", async ({ store }) => {
  const { run } = await add(store);

  assert.deepEqual([await store.getHold(run.id), await store.getHold("unknown")], [null, null]);
});

timed("hold() counts neither as interrupted nor as abandoned", async ({ store, host }) => {
  const { lease } = await startRun(store);
  host.advance(1_000);
  const second = await claimOne(store); // the first lease was abandoned
  await store.hold(second.lease, aHold(), []);
  await store.resumeHeld(lease.runId, false);
  const third = await claimOne(store, { maxAbandonments: 2 });
  host.advance(1_000);

  const { failed } = await store.claim(aClaimRequest({ maxAbandonments: 2 }));

  assert.deepEqual([second.execution, third.execution], [2, 2]);
  assert.deepEqual(failed.map(({ run, failureKind }) => [run.id, failureKind]), [[lease.runId, "abandoned"]]);
});

test("hold() keeps the recorded steps and pauses", async ({ store }) => {
  const { lease } = await startRun(store);
  await store.saveStep(lease, aStep(), []);
  await prepare(store, lease, aPause({ prepared: true }));

  await store.hold(lease, aHold(), []);

  await store.resumeHeld(lease.runId, false);
  const { steps, pauses } = await claimOne(store);
  assert.deepEqual([steps.map(({ name }) => name), pauses.map(({ name }) => name)], [["read"], ["review"]]);
});

timed("hold() refuses a worker whose lease was lost", async ({ store, host }) => {
  const { lease } = await startRun(store);
  host.advance(1_000);
  await claimOne(store, { workerId: "worker-b" });

  const hold = store.hold(lease, aHold(), []);

  await assert.rejects(hold, LeaseLostError);
  assert.equal((await store.getRun(lease.runId))!.status, "running");
});

test("hold() ends the lease: nothing more is written under it", async ({ store }) => {
  const { lease } = await startRun(store);

  await store.hold(lease, aHold(), []);

  await assert.rejects(store.saveStep(lease, aStep(), []), LeaseLostError);
  assert.deepEqual([await store.renew([{ lease, reports: [] }], 1_000), await store.getLeases()], [[null], []]);
});

timed("hold() is harmless when it is repeated", async ({ store, host }) => {
  const { lease } = await startRun(store);
  await store.hold(lease, aHold(), []);
  const before = [await store.getRun(lease.runId), await store.getHold(lease.runId)];
  host.advance(100);

  const facts = await factsOf(store, () => store.hold(lease, aHold({ message: "again", print: "print-2" }), []));

  assert.deepEqual([await store.getRun(lease.runId), await store.getHold(lease.runId)], before);
  assert.deepEqual(facts, []);
});

test("hold() refuses a worker whose lease was lost though the run is held under a later one", async ({ store }) => {
  const { lease: stale } = await startRun(store);
  await store.release(stale, []);
  await store.hold((await claimOne(store)).lease, aHold(), []);

  await assert.rejects(store.hold(stale, aHold(), []), LeaseLostError);
});

test("hold() is refused when it is repeated after the run was resumed", async ({ store }) => {
  const { lease } = await startRun(store);
  await store.hold(lease, aHold(), []);
  await store.resumeHeld(lease.runId, false);

  await assert.rejects(store.hold(lease, aHold(), []), LeaseLostError);
});

test("hold() stores the reports, then notes that the run is held", async ({ store }) => {
  const { lease } = await startRun(store);
  const hold = aHold({ code: "ended_early", message: "the job threw" });

  const facts = await factsOf(store, () => store.hold(lease, hold, [aProgress({ current: 3 })]));

  assert.deepEqual(facts, [
    [lease.runId, "progressed", FAKE_START, { current: 3 }],
    [lease.runId, "held", "ended_early", "the job threw"],
  ]);
  assert.deepEqual((await store.getRun(lease.runId))!.progress, { current: 3 });
});

test("claim() takes no held run, and has no more to do", async ({ store }) => {
  await addHeld(store);

  const { claims, hasMore, nextTimerAt } = await store.claim(aClaimRequest());

  assert.deepEqual([claims, hasMore, nextTimerAt], [[], false, null]);
});

test("hold() releases the concurrency key, and a held run blocks no other", async ({ store }) => {
  const { lease } = await startRun(store, { concurrencyKey: KEY });
  const others = await addIds(store, { concurrencyKey: KEY, jobName: "export" }, { concurrencyKey: KEY });

  await store.hold(lease, aHold(), []);

  const first = await claimOne(store, { jobNames: [A_JOB, "export"], limit: 10 });
  await complete(store, first.lease);
  const second = await claimOne(store, { jobNames: [A_JOB, "export"], limit: 10 });
  assert.deepEqual([first.run.id, second.run.id], others);
});

test("a held run does not count under the limit of its job", async ({ store }) => {
  const jobs = [aKnownJob({ concurrency: 1 })];
  const { lease } = await startRun(store, {}, { jobs });
  const [next] = await addIds(store, {});

  await store.hold(lease, aHold(), []);

  assert.deepEqual(await claimedIds(store, { jobs }), [next]);
});

test("enqueue() joins no held run", async ({ store }) => {
  const [runId] = [await addHeld(store, { concurrencyKey: KEY }), await addHeld(store, { concurrencyKey: KEY })];
  await store.claim(offering("print-2", { limit: 1 })); // takes the first, and makes the second due
  await store.cancel(runId, "request-1", null);

  const { disposition } = await add(store, { concurrencyKey: KEY, coalesce: "active" });

  assert.equal(disposition, "created");
});

test("enqueue() finds a held run by its idempotency key", async ({ store }) => {
  const runId = await addHeld(store, { idempotencyKey: "once" });

  const { run, disposition } = await add(store, { idempotencyKey: "once" });

  assert.deepEqual([run.id, disposition], [runId, "idempotent"]);
});

test("signal() ends a wait of a held run, which stays held", async ({ store }) => {
  const { lease } = await startRun(store);
  const { pauses: [wait] } = await prepare(store, lease, aPause());
  await store.hold(lease, aHold(), []);

  const { disposition } = await store.signal(wait!.id, { signalId: "s-1", payload: true });

  assert.equal(disposition, "accepted");
  assert.deepEqual(await claimedIds(store), []);
  await store.resumeHeld(lease.runId, false);
  const { pauses } = await claimOne(store);
  assert.partialDeepStrictEqual(pauses[0]!.resolution, { outcome: "signal", payload: "true" });
});

test("cancel() ends a held run, which is not held any more", async ({ store }) => {
  const runId = await addHeld(store, { concurrencyKey: KEY });

  const run = await store.cancel(runId, "request-1", null);

  assert.deepEqual([run!.status, run!.held], ["cancelled", null]);
  assert.deepEqual([await store.getHold(runId), await findHeldIds(store), await store.getLeases()], [null, [], []]);
  assert.equal(await store.resumeHeld(runId, false), null);
});

test("claim() cancels held children whose parent has ended", async ({ store }) => {
  const { lease } = await startRun(store, { jobName: "parent" });
  const child = aRun();
  await prepare(
    store,
    lease,
    aPause({ kind: "children", name: "all", children: { total: 1, from: 0, runs: [child] } }),
  );
  await store.hold((await claimOne(store)).lease, aHold(), []);
  await complete(store, lease);

  const { cancelled } = await store.claim(aClaimRequest());

  assert.deepEqual(cancelled.map(({ id }) => id), [child.id]);
  assert.deepEqual(await findHeldIds(store), []);
});

timed("a held run fails at the deadline for its end, but not at that for its start", async ({ store, host }) => {
  const runId = await addHeld(store, { flow: aFlow({ startWithin: 100, finishWithin: 500 }) });

  const { nextTimerAt } = await store.claim(aClaimRequest());
  host.advance(499);
  const before = await store.claim(aClaimRequest());
  host.advance(1);
  const after = await store.claim(aClaimRequest());

  assert.equal(nextTimerAt, FAKE_START + 500);
  assert.deepEqual(before.failed, []);
  assert.deepEqual(after.failed.map(({ run, failureKind }) => [run.id, failureKind]), [[runId, "timeout"]]);
  const run = await store.getRun(runId);
  assert.deepEqual([run!.status, run!.held], ["failed", null]);
});

test("resumeHeld() makes a run due for all workers that know its version, at its old position", async ({ store }) => {
  const runId = await addHeld(store);
  const [younger] = await addIds(store, {});

  const run = await store.resumeHeld(runId, false);

  assert.deepEqual([run!.id, run!.status, run!.held], [runId, "pending", null]);
  assert.deepEqual([await store.getHold(runId), await findHeldIds(store)], [null, []]);
  assert.deepEqual(await claimedIds(store), [runId, younger]);
});

test("resumeHeld() answers null for a run that is not held, for an unknown one, and when it is repeated", async ({ store }) => {
  const { run } = await add(store);
  const heldId = await addHeld(store, { jobName: "export" });
  await store.resumeHeld(heldId, false);

  const answers = [run.id, "unknown", heldId].map((id) => store.resumeHeld(id, true));

  assert.deepEqual(await Promise.all(answers), [null, null, null]);
  assert.equal((await claimOne(store, { jobNames: ["export"] })).continues, false);
});

test("resumeHeld() keeps that the run is never held again", async ({ store }) => {
  const runId = await addHeld(store);

  await store.resumeHeld(runId, true);

  const first = await claimOne(store);
  await store.release(first.lease, []);
  const second = await claimOne(store);
  assert.deepEqual([first.continues, second.continues], [true, true]);
});

test("resumeHeld() does not take back that the run is never held again", async ({ store }) => {
  const runId = await addHeld(store);
  await store.resumeHeld(runId, true);
  await store.hold((await claimOne(store)).lease, aHold(), []);

  await store.resumeHeld(runId, false);

  assert.equal((await claimOne(store)).continues, true);
});

test("resumeHeld() forgets which prints have tried the run", async ({ store }) => {
  const runId = await addHeld(store);
  await store.resumeHeld(runId, false);

  await store.hold((await claimOne(store)).lease, aHold({ print: "print-2" }), []);

  assert.deepEqual((await store.getHold(runId))!.prints, ["print-2"]);
});

test("resumeHeld() takes the run back from the print to which it was offered", async ({ store }) => {
  const [, second] = [await addHeld(store), await addHeld(store)];
  await store.claim(offering("print-2", { limit: 1 }));

  await store.resumeHeld(second, false);

  assert.deepEqual(await findHeldIds(store), []);
  assert.deepEqual(await claimedIds(store), [second]);
});

test("resumeHeld() notes that the run resumes", async ({ store }) => {
  const runId = await addHeld(store);

  const facts = await factsOf(store, () => store.resumeHeld(runId, false));

  assert.deepEqual(facts, [[runId, "resumed"]]);
});

test("findHeld() finds held runs by job and code, in the order of the triggers", async ({ store }) => {
  const imported = await addHeld(store, { jobName: "import" });
  const exported = await addHeld(store, { jobName: "export" }, { code: "ended_early" });
  const again = await addHeld(store, { jobName: "import" }, { code: "ended_early" });
  await add(store);

  const of = (query: Partial<HeldQuery>) => findHeldIds(store, query);
  assert.deepEqual(await of({}), [imported, exported, again]);
  assert.deepEqual(await of({ jobNames: ["import"] }), [imported, again]);
  assert.deepEqual(await of({ jobNames: ["export", "other"] }), [exported]);
  assert.deepEqual(await of({ jobNames: [] }), []);
  assert.deepEqual(await of({ code: "ended_early" }), [exported, again]);
  assert.deepEqual(await of({ jobNames: ["import"], code: "ended_early" }), [again]);
});

test("findHeld() finds the held runs of all versions of a job", async ({ store }) => {
  const ids: string[] = [];
  for (const version of [2, 1]) {
    const { lease } = await startRun(store, { version }, { jobs: [aKnownJob({ version })] });
    await store.hold(lease, aHold(), []);
    ids.push(lease.runId);
  }

  assert.deepEqual(await findHeldIds(store, { jobNames: [A_JOB] }), ids);
});

test("findHeld() continues after a row number", async ({ store }) => {
  const ids = [await addHeld(store), await addHeld(store), await addHeld(store)];

  const first = await store.findHeld({ after: 0, limit: 2 });
  const rest = await store.findHeld({ after: first.seqs.at(-1)!, limit: 2 });

  assert.deepEqual([first.ids, rest.ids], [ids.slice(0, 2), ids.slice(2)]);
  assert.deepEqual([first.seqs.length, rest.seqs.length], [2, 1]);
});

test("claim() offers a held run to code that has not tried it, and takes it at once", async ({ store }) => {
  const runId = await addHeld(store);

  const sameCode = await claimedIds(store, offering("print-1"));
  const newCode = await store.claim(offering("print-2"));

  assert.deepEqual([sameCode, newCode.claims.map(({ run }) => run.id)], [[], [runId]]);
  const run = await store.getRun(runId);
  assert.deepEqual([run!.status, run!.held, await store.getHold(runId)], ["running", null, null]);
});

test("claim() says which runs were held before, and says it again when it is repeated", async ({ store }) => {
  await addHeld(store);
  await store.enqueue([aRun()]);
  const request = offering("print-2");

  const first = await store.claim(request);
  const repeated = await store.claim(request);

  assert.deepEqual(first.claims.map(({ isResumed }) => isResumed), [true, false]);
  assert.deepEqual(repeated.claims.map(({ isResumed }) => isResumed), [true, false]);
  await store.release(first.claims[0]!.lease, []);
  const { claims } = await store.claim(offering("print-3"));
  assert.deepEqual(claims.map(({ isResumed }) => isResumed), [false]);
});

test("claim() notes of an offered run that it resumes, then that it is claimed", async ({ store }) => {
  const runId = await addHeld(store);

  const facts = await factsOf(store, () => store.claim(offering("print-2")));

  assert.deepEqual(facts.map(([id, kind]) => [id, kind]), [[runId, "resumed"], [runId, "claimed"]]);
});

test("claim() offers nothing unless it is asked to, and nothing with a limit of 0", async ({ store }) => {
  await addHeld(store);

  await store.claim(offering("print-2", { offersHeld: false }));
  await store.claim(offering("print-2", { limit: 0 }));

  assert.deepEqual(await claimedIds(store, offering("print-2", { offersHeld: false })), []);
});

test("claim() offers no held run of a version or a job that the worker does not know", async ({ store }) => {
  const runId = await addHeld(store);

  const version = await claimedIds(store, { offersHeld: true, jobs: [aKnownJob({ version: 2, print: "print-2" })] });
  const job = await claimedIds(store, { offersHeld: true, jobs: [aKnownJob({ name: "export", print: "print-2" })] });

  assert.deepEqual([version, job, await findHeldIds(store)], [[], [], [runId]]);
});

test("claim() offers 20 held runs at most, in the order of the triggers", async ({ store }) => {
  const ids: string[] = [];
  for (let i = 0; i < 25; i++) ids.push(await addHeld(store, { flow: aFlow({ priority: i === 24 ? 1 : 0 }) }));

  const first = await claimedIds(store, offering("print-2", { limit: 100 }));
  const rest = await claimedIds(store, offering("print-2", { limit: 100 }));

  assert.deepEqual(first, ids.slice(0, 20));
  assert.deepEqual(rest, [ids[24], ...ids.slice(20, 24)]);
});

test("claim() offers runs in the order of the triggers whatever code has tried them", async ({ store }) => {
  const ids: string[] = [];
  for (let i = 0; i < 24; i++) ids.push(await addHeld(store, {}, { print: i % 2 === 0 ? "print-9" : "print-1" }));

  const first = await claimedIds(store, offering("print-2", { limit: 100 }));

  assert.deepEqual(first, ids.slice(0, 20));
});

test("claim() passes over held runs that it may not take when it counts those that it offers", async ({ store }) => {
  for (let i = 0; i < 20; i++) await addHeld(store, {}, { print: "print-2" });
  const runId = await addHeld(store);

  assert.deepEqual(await claimedIds(store, offering("print-2")), [runId]);
});

test("an offered run is held until it is claimed, and due for the workers with the print alone", async ({ store }) => {
  const [, second] = [await addHeld(store), await addHeld(store)];
  await store.claim(offering("print-2", { limit: 1 })); // offers both, and takes the first

  const held = await findHeldIds(store);
  const other = await claimedIds(store, offering("print-3", { workerId: "worker-b" }));
  const unoffered = await claimedIds(store, { workerId: "worker-c" });
  const same = await claimedIds(store, offering("print-2", { workerId: "worker-d", offersHeld: false }));

  assert.deepEqual([held, other, unoffered, same], [[second], [], [], [second]]);
});

test("claim() says that there is more while an offered run is left", async ({ store }) => {
  await addHeld(store);
  await addHeld(store);

  const { hasMore } = await store.claim(offering("print-2", { limit: 1 }));

  assert.equal(hasMore, true);
});

test("an offered run passes the gates of its job and its key", async ({ store }) => {
  const runId = await addHeld(store, { concurrencyKey: KEY });
  const { lease } = await startRun(store, { concurrencyKey: KEY, jobName: "export" });
  const full = await claimedIds(store, offering("print-2"));
  await complete(store, lease);
  await store.pauseJob(A_JOB, { by: null, note: null });
  const paused = await claimedIds(store, offering("print-2"));
  await store.resumeJob(A_JOB);

  assert.deepEqual([full, paused, await claimedIds(store, offering("print-2"))], [[], [], [runId]]);
});

test("an offered run is in the line of its key as a run of another job", async ({ store }) => {
  const { younger, offered } = await addOfferedBefore(store);

  // A live worker has the print: its run comes first.
  const behind = await claimedIds(store, { workerId: "worker-b" });
  await store.forgetWorker("worker-a");
  const alone = await claimedIds(store, { workerId: "worker-b" });

  assert.deepEqual([behind, alone, await findHeldIds(store)], [[], [younger], [offered]]);
});

test("an offered run that its key has no room for holds back the younger runs of its own worker", async ({ store }) => {
  const shared = { concurrencyKey: KEY, flow: aFlow({ keyConcurrency: 2 }) };
  const offered = await addHeld(store, { concurrencyKey: KEY });
  const { lease } = await startRun(store, shared);
  const [younger] = await addIds(store, shared);

  const behind = await claimedIds(store, offering("print-2"));
  await complete(store, lease);
  const both = await claimedIds(store, offering("print-2"));

  assert.deepEqual([behind, both], [[], [offered, younger]]);
});

test("claim() takes both the offered and the other runs of a job, in their order", async ({ store }) => {
  const older = await addHeld(store);
  const [younger] = await addIds(store, {});

  assert.deepEqual(await claimedIds(store, offering("print-2")), [older, younger]);
});

test("a claimed run that was offered is due for all workers after an interruption", async ({ store }) => {
  const runId = await addHeld(store);
  const { lease } = await claimOne(store, offering("print-2"));

  await store.release(lease, []);

  assert.deepEqual(await claimedIds(store, { workerId: "worker-b" }), [runId]);
});

timed("claim() offers a run to other code if no live worker has the print any more", async ({ store, host }) => {
  const { offered } = await addOfferedBefore(store);
  const whileLive = await claimedIds(store, offering("print-3", { workerId: "worker-b" }));
  host.advance(1_000);

  const [first] = await claimedIds(store, offering("print-3", { workerId: "worker-b" }));

  assert.deepEqual([whileLive, first], [[], offered]);
});

test("claim() offers a run to no code that has tried it, even if the workers with the print are gone", async ({ store }) => {
  const { offered, younger } = await addOfferedBefore(store);
  await store.forgetWorker("worker-a");

  const taken = await claimedIds(store, offering("print-1", { workerId: "worker-b" }));

  assert.deepEqual([taken, await findHeldIds(store)], [[younger], [offered]]);
});

test("hold() adds the print to those that have tried the run", async ({ store }) => {
  const runId = await addHeld(store);

  await holdOffered(store, "print-2");
  await holdOffered(store, "print-3");

  assert.deepEqual((await store.getHold(runId))!.prints, ["print-1", "print-2", "print-3"]);
  for (const print of ["print-1", "print-2", "print-3"]) assert.deepEqual(await claimedIds(store, offering(print)), []);
});

test("hold() keeps the list of prints if its own is among them", async ({ store }) => {
  const runId = await addHeld(store);
  const { lease } = await claimOne(store, offering("print-2"));
  await store.release(lease, []);

  await store.hold((await claimOne(store)).lease, aHold({ print: "print-1" }), []);

  assert.deepEqual((await store.getHold(runId))!.prints, ["print-1"]);
});

test("hold() begins the list of prints anew if the run has recorded something since", async ({ store }) => {
  const runId = await addHeld(store);
  const { lease } = await claimOne(store, offering("print-2"));
  await store.saveStep(lease, aStep(), []);

  await store.hold(lease, aHold({ print: "print-2" }), []);

  assert.deepEqual((await store.getHold(runId))!.prints, ["print-2"]);
  assert.deepEqual(await claimedIds(store, offering("print-1")), [runId]);
});

test("claim() offers a held run again to code that had tried it before a signal", async ({ store }) => {
  const { lease } = await startRun(store);
  const { pauses: [wait] } = await prepare(store, lease, aPause());
  await store.hold(lease, aHold(), []);
  await store.signal(wait!.id, { signalId: "s-1", payload: null });

  const hold = await store.getHold(lease.runId);

  assert.deepEqual(hold!.prints, []);
  assert.deepEqual(await claimedIds(store, offering("print-1")), [lease.runId]);
});

test("hold() holds a run that has waited: it does not wait any more", async ({ store }) => {
  const { lease } = await startRun(store);
  const { pauses: [wait] } = await park(store, lease, aPause());
  await store.signal(wait!.id, { signalId: "s-1", payload: null });

  await store.hold((await claimOne(store)).lease, aHold(), []);

  const state = await store.getRunState(lease.runId);
  assert.deepEqual([state!.run.status, state!.pauses, state!.execution], ["pending", [], 1]);
});

/** Adds a run, and holds it. No older run may be due. */
async function addHeld(
  store: Store,
  overrides: Partial<NewRun> = {},
  hold: Partial<NewHold> = {},
): Promise<string> {
  const { lease } = await startRun(store, overrides);
  await store.hold(lease, aHold(hold), []);
  return lease.runId;
}

/** A claim by code with a print, to which held runs are offered. */
function offering(print: string, overrides: ClaimOverrides = {}): ClaimRequest {
  return aClaimRequest({ jobs: [aKnownJob({ print })], offersHeld: true, ...overrides });
}

/** A run that is offered to worker A with print 2, and a younger one of the same job and key. */
async function addOfferedBefore(store: Store): Promise<{ offered: string; younger: string }> {
  const offered = await addHeld(store, { concurrencyKey: KEY });
  const first = await startRun(store, { concurrencyKey: KEY });
  await store.claim(offering("print-2"));
  const [younger] = await addIds(store, { concurrencyKey: KEY });
  await complete(store, first.lease);
  return { offered, younger: younger! };
}

async function holdOffered(store: Store, print: string): Promise<void> {
  const { lease } = await claimOne(store, offering(print));
  await store.hold(lease, aHold({ print }), []);
}

async function findHeldIds(
  store: Store,
  query: Partial<HeldQuery> = {},
): Promise<string[]> {
  return (await store.findHeld({ after: 0, limit: 100, ...query })).ids;
}

/** The facts that a call adds. */
async function factsOf(store: Store, act: () => Promise<unknown>): Promise<NamedFact[]> {
  const reader = new FactReader(store);
  await reader.skip();
  await act();
  return await reader.read();
}
