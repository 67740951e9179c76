import assert from "node:assert/strict";
import { A_JOB, aClaimRequest, aFlow, aHold, aKnownJob, aPause, aStep } from "../../fixtures.ts";
import { addIds, claimedIds, claimOne, complete, park, prepare, startRun } from "../../arrange.ts";
import { newCases } from "../../case.ts";
import { addHeld, addOfferedBefore, factsOf, findHeldIds, holdOffered, KEY, offering } from "./arrange_holds.ts";
import { getRun } from "../../../../store/reads.ts";

const { cases, test, timed } = newCases();

/** What a store promises of held runs that are offered to other code. */
export const offeredRunCases = cases;

test("claim() offers a held run to code that has not tried it, and takes it at once", async ({ store }) => {
  const runId = await addHeld(store);

  const sameCode = await claimedIds(store, offering("print-1"));
  const newCode = await store.claim(offering("print-2"));

  assert.deepEqual([sameCode, newCode.claims.map(({ run }) => run.id)], [[], [runId]]);
  const run = await getRun(store, runId);
  assert.deepEqual([run!.status, run!.held, await store.getHold(runId)], ["running", null, null]);
});

test("claim() says which runs were held before, and says it again when it is repeated", async ({ store }) => {
  await addHeld(store);
  const request = offering("print-2");

  const first = await store.claim(request);
  const repeated = await store.claim(request);

  assert.deepEqual(first.claims.map(({ isResumed }) => isResumed), [true]);
  assert.deepEqual(repeated.claims.map(({ isResumed }) => isResumed), [true]);
  await store.release(first.claims[0]!.lease, []);
  const { claims } = await store.claim(aClaimRequest());
  assert.deepEqual(claims.map(({ isResumed }) => isResumed), [false]);
});

test("claim() notes of an offered run that it resumes, then that it is claimed", async ({ store }) => {
  const runId = await addHeld(store);

  const facts = await factsOf(store, () => store.claim(offering("print-2")));

  assert.deepEqual(facts.map(([id, kind]) => [id, kind]), [[runId, "resumed"], [runId, "claimed"]]);
});

test("claim() offers nothing unless it tries held runs, and nothing with a limit of 0", async ({ store }) => {
  const runId = await addHeld(store);

  await store.claim(offering("print-2", { triesHeld: false }));
  await store.claim(offering("print-2", { limit: 0 }));

  // Nobody has the offer of the print, so another one gets it.
  assert.deepEqual(await claimedIds(store, offering("print-3", { workerId: "worker-b" })), [runId]);
});

test("claim() takes either held runs or the others", async ({ store }) => {
  const [first, second] = [await addHeld(store), await addHeld(store)];
  const [other] = await addIds(store, {});

  const tried = await claimedIds(store, offering("print-2", { limit: 1 })); // offers both
  const others = await claimedIds(store, offering("print-2", { triesHeld: false }));
  const rest = await claimedIds(store, offering("print-2"));

  assert.deepEqual([tried, others, rest], [[first], [other], [second]]);
});

test("claim() offers more only if it takes none of the runs that are offered already", async ({ store }) => {
  const ids: string[] = [];
  for (let i = 0; i < 22; i++) ids.push(await addHeld(store));
  const one = offering("print-2", { limit: 1 });

  const taken: string[] = [];
  for (let i = 0; i < 19; i++) taken.push(...await claimedIds(store, { ...one, claimId: `claim-${i}` }));
  const others = await claimedIds(store, offering("print-3", { workerId: "worker-b" }));

  assert.deepEqual([taken, others], [ids.slice(0, 19), ids.slice(20)]);
});

test("claim() offers no held run of a version or a job that the worker does not know", async ({ store }) => {
  const runId = await addHeld(store);

  const version = await claimedIds(store, { triesHeld: true, jobs: [aKnownJob({ version: 2, print: "print-2" })] });
  const job = await claimedIds(store, { triesHeld: true, jobs: [aKnownJob({ name: "export", print: "print-2" })] });

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
  const same = await claimedIds(store, offering("print-2", { workerId: "worker-d" }));

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

test("an offered run keeps no other run from its key, and takes the key itself", async ({ store }) => {
  const { younger, offered } = await addOfferedBefore(store);

  const other = await claimOne(store, { workerId: "worker-b" });
  const behind = await claimedIds(store, offering("print-2"));
  await complete(store, other.lease);
  const last = await claimedIds(store, offering("print-2"));

  assert.deepEqual([other.run.id, behind, last], [younger, [], [offered]]);
});

test("an offered run comes after runs of its key that are not held, whatever the priorities", async ({ store }) => {
  const { younger, offered } = await addOfferedBefore(store, { flow: aFlow({ priority: 100 }) });
  const [urgent] = await addIds(store, { concurrencyKey: KEY, jobName: "export", flow: aFlow({ priority: -100 }) });
  const jobs = [aKnownJob(), aKnownJob({ name: "export" })];

  const taken: string[] = [];
  for (const request of [{}, {}, { triesHeld: true }]) {
    // As their worker knows them, they are in three queues.
    const own = [...jobs.slice(1), aKnownJob({ print: "print-2" })];
    const { run, lease } = await claimOne(store, { jobs: own, ...request });
    taken.push(run.id);
    await complete(store, lease);
  }

  assert.deepEqual(taken, [younger, urgent, offered]);
});

test("an offered run that its key has no room for holds back no other run", async ({ store }) => {
  const shared = { concurrencyKey: KEY, flow: aFlow({ keyConcurrency: 2 }) };
  const offered = await addHeld(store, { concurrencyKey: KEY });
  const { lease } = await startRun(store, shared);
  const [younger] = await addIds(store, shared);

  const behind = await claimedIds(store, offering("print-2"));
  const free = await claimOne(store);
  await complete(store, lease);
  await complete(store, free.lease);

  assert.deepEqual([behind, free.run.id, await claimedIds(store, offering("print-2"))], [[], younger, [offered]]);
});

test("a run that was offered and resumed, or claimed, has its place again", async ({ store }) => {
  const urgent = { flow: aFlow({ priority: 1 }) };
  const ids = [await addHeld(store), await addHeld(store, urgent), await addHeld(store)];
  const { lease } = await claimOne(store, offering("print-2", { limit: 1 }));
  await store.release(lease, []);
  await addIds(store, {});

  await store.resumeHeld(ids[0]!, false);
  await store.resumeHeld(ids[2]!, false);

  const { claims } = await store.claim(aClaimRequest({ limit: 3 }));
  assert.deepEqual(claims.map(({ run }) => run.id), [ids[1], ids[0], ids[2]]);
});

test("a run that is offered is held: nothing else keeps it from being claimed", async ({ store }) => {
  const { offered } = await addOfferedBefore(store);

  const { blockers } = (await store.getBlockers(offered))!;

  assert.deepEqual(blockers.map(({ kind }) => kind), ["held"]);
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

  assert.deepEqual([taken, await claimedIds(store), await findHeldIds(store)], [[], [younger], [offered]]);
});

test("hold() adds the print to those that have tried the run", async ({ store }) => {
  const runId = await addHeld(store);

  await holdOffered(store, "print-2");
  await holdOffered(store, "print-3");

  assert.deepEqual((await store.getHold(runId))!.prints, ["print-1", "print-2", "print-3"]);
  for (const print of ["print-1", "print-2", "print-3"]) assert.deepEqual(await claimedIds(store, offering(print)), []);
});

timed("claim() offers a run that ended early once more to the same code after a minute", async ({ store, host }) => {
  const early = { code: "ended_early", print: "print-1" } as const;
  const runId = await addHeld(store, {}, early);
  host.advance(59_999);
  const before = await claimedIds(store, offering("print-1"));
  host.advance(1);
  const { run, lease } = await claimOne(store, offering("print-1"));
  await store.hold(lease, aHold(early), []);
  host.advance(10 * 60_000);

  const third = await claimedIds(store, offering("print-1"));

  assert.deepEqual([before, run.id, third, await findHeldIds(store)], [[], runId, [], [runId]]);
  assert.deepEqual((await store.getHold(runId))!.prints, ["print-1"]);
});

timed(
  "claim() offers a run once more to code that ended it early, though other code has held it since",
  async ({ store, host }) => {
    const runId = await addHeld(store, {}, { code: "ended_early" });
    host.advance(30_000);
    await holdOffered(store, "print-2");
    host.advance(60_000);

    const hold = await store.getHold(runId);
    const diverged = await claimedIds(store, offering("print-2"));
    const early = await claimedIds(store, offering("print-1"));

    assert.deepEqual([hold!.prints, diverged, early], [["print-1", "print-2"], [], [runId]]);
  },
);

timed(
  "claim() offers the runs of one code that ended early when the minute of each is over",
  async ({ store, host }) => {
    const first = await addHeld(store, {}, { code: "ended_early" });
    const second = await addHeld(store, {}, { code: "ended_early" });
    const { lease } = await claimOne(store, offering("print-2", { limit: 1 }));
    host.advance(30_000);
    await store.hold(lease, aHold({ print: "print-2" }), []);
    host.advance(30_000);

    const early = await claimedIds(store, offering("print-1", { limit: 2 }));
    host.advance(30_000);

    assert.deepEqual([early, await claimedIds(store, offering("print-1"))], [[second], [first]]);
  },
);

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
