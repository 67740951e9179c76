import assert from "node:assert/strict";
import type { HeldQuery } from "../../../../store/hold_record.ts";
import { FAKE_START } from "../../../fake_host.ts";
import { A_JOB, aClaimRequest, aFlow, aHold, aKnownJob, aPause, aRun } from "../../fixtures.ts";
import { add, addIds, claimedIds, claimOne, complete, prepare, startRun } from "../../arrange.ts";
import { newCases } from "../../case.ts";
import { addHeld, factsOf, findHeldIds, KEY, offering } from "./arrange_holds.ts";
import { getRun } from "../../../../store/reads.ts";

const { cases, test, timed } = newCases();

/** What a store promises of runs that are held. */
export const heldRunCases = cases;

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
  const run = await getRun(store, runId);
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
