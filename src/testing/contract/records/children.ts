import assert from "node:assert/strict";
import { LeaseLostError } from "../../../error.ts";
import { type Flow, PLAIN_FLOW } from "../../../flow.ts";
import { uuidV7 } from "../../../host.ts";
import { isoTime } from "../../../values/iso_time.ts";
import type { Lease } from "../../../lease.ts";
import type { Store } from "../../../store.ts";
import type { Claim, ClaimResult } from "../../../store/claim.ts";
import type { NewRun } from "../../../store/new_run.ts";
import type { NewPause, PauseResult } from "../../../store/pause_request.ts";
import type { ChildResult } from "../../../wait.ts";
import { FactReader } from "../fact_reader.ts";
import { FAKE_START } from "../../fake_host.ts";
import {
  aClaimRequest,
  aFailure,
  aKnownJob,
  aPause,
  aProgress,
  aRun,
  aStep,
  type ClaimOverrides,
} from "../fixtures.ts";
import {
  add,
  addIds,
  claimedIds,
  claimOne,
  complete,
  inOrder,
  look,
  NO_PAUSE,
  park,
  prepare,
  startRun,
} from "../arrange.ts";
import { newCases } from "../case.ts";

const { cases, test, timed } = newCases();

/** What a `Store` promises of child runs. */
export const childCases = cases;

const PARENT = "parent";
const DELAYED = { ...PLAIN_FLOW, start: { afterMs: 5_000 } };
const CHILD = "child";

test("pause() adds the children of a pause in the commit that parks the run", async ({ store }) => {
  const { lease } = await startParent(store);
  const [one, two] = [aChild({ labels: { a: "b" } }), aChild()];

  const { parked, pauses: [pause], created } = await park(store, lease, onChildren([one, two]));

  const runs = await Promise.all([one, two].map(({ id }) => store.getRun(id)));
  assert.ok(parked);
  assert.deepEqual([pause!.kind, pause!.childCount, pause!.child, pause!.resolution], ["children", 2, null, null]);
  assert.deepEqual(created, [
    { run: { id: one.id, jobName: CHILD, labels: { a: "b" } }, startAt: null, retryOf: null },
    { run: { id: two.id, jobName: CHILD, labels: {} }, startAt: null, retryOf: null },
  ]);
  assert.deepEqual(runs.map((run) => [run!.status, run!.parentRunId]), Array(2).fill(["pending", lease.runId]));
  assert.deepEqual(await store.getWaits(lease.runId), []);
  assert.equal(await store.getWait(pause!.id), null);
});

test("pause() adds children without parking: they can be claimed at once", async ({ store }) => {
  const { lease } = await startParent(store);
  const child = aChild();

  const { parked, created } = await prepare(store, lease, onChildren([child]));

  assert.equal(parked, false);
  assert.equal(created.length, 1);
  assert.equal((await claimChild(store)).run.id, child.id);
  assert.equal((await store.getRun(lease.runId))!.status, "running");
});

test("pause() adds children in slices, each number once", async ({ store }) => {
  const { lease } = await startParent(store);
  const children = Array.from({ length: 5 }, () => aChild());

  const first = await prepare(store, lease, onChildren(children.slice(0, 2), { total: 5 }));
  const again = await prepare(store, lease, onChildren([aChild(), aChild(), children[2]!], { total: 5 }));
  const last = await park(store, lease, onChildren(children.slice(3), { total: 5, from: 3 }));

  assert.deepEqual(counts([first, again, last]), [2, 3, 5]);
  assert.deepEqual(again.created.map(({ run }) => run.id), [children[2]!.id]);
  assert.equal(new Set([first, again, last].map(({ pauses }) => pauses[0]!.id)).size, 1);
  assert.deepEqual((await claimAll(store)).claims.map(({ run }) => run.id), children.map(({ id }) => id));
});

test("pause() can be repeated: it adds no child twice, and answers the same", async ({ store }) => {
  const { lease } = await startParent(store);
  const request = onChildren([aChild(), aChild()]);
  const prepared = await prepare(store, lease, request);

  const preparedAgain = await prepare(store, lease, request);
  const parked = await park(store, lease, request);
  const parkedAgain = await park(store, lease, request);

  for (const result of [preparedAgain, parked, parkedAgain]) assert.deepEqual(result.created, prepared.created);
  assert.equal(prepared.created.length, 2);
  assert.deepEqual(parkedAgain, parked);
  assert.equal((await store.getRuns({ jobName: CHILD })).total, 2);
});

timed("pause() adds no child twice if the worker dies between two slices", async ({ store, host }) => {
  const { lease } = await startParent(store);
  await prepare(store, lease, onChildren([aChild(), aChild()], { total: 3 }));
  host.advance(1_000);

  const again = await claimOne(store, { jobNames: [PARENT], workerId: "worker-b" });
  const known = again.pauses[0]!;
  const { created } = await park(store, again.lease, onChildren([aChild()], { total: 3, from: known.childCount }));

  assert.deepEqual([known.kind, known.childCount, known.childTotal], ["children", 2, 3]);
  assert.equal(created.length, 1);
  assert.equal((await store.getRuns({ jobName: CHILD })).total, 3);
  await assert.rejects(prepare(store, lease, onChildren([aChild()], { name: "other" })), LeaseLostError);
  assert.equal((await store.getRuns({ jobName: CHILD })).total, 3);
});

test("pause() takes a request without children for a pause that has them", async ({ store }) => {
  const { lease } = await startParent(store);
  const { pauses: [pause] } = await prepare(store, lease, onChildren([aChild()]));

  const { pauses: [same], created } = await park(store, lease, aPause({ kind: "children", name: "all" }));

  assert.deepEqual(same, pause);
  assert.deepEqual(created, []);
});

test("pause() counts the names of children apart from those of waits and sleeps", async ({ store }) => {
  const { lease } = await startParent(store);

  const { pauses } = await park(store, lease, aPause({ name: "all" }), onChildren([aChild()]));

  assert.deepEqual(pauses.map(({ kind }) => kind), ["wait", "children"]);
});

test("pause() puts the triggers of children before its other facts", async ({ store }) => {
  const { lease } = await startParent(store);
  const facts = new FactReader(store);
  await facts.readAll();
  const child = aChild();

  await store.pause(lease, {
    ...NO_PAUSE,
    pauses: [onChildren([child])],
    park: true,
    reports: [aProgress({ current: 1 })],
  });

  const [triggered, progressed, waiting] = (await facts.readAll()).map(({ fact }) => fact).slice(-3);
  assert.deepEqual([progressed![1], waiting![1]], ["progressed", "waiting"]);
  assert.deepEqual(triggered!.slice(1), ["triggered", null, lease.runId]);
});

test("pause() gives each child the position of a run that is triggered now", async ({ store }) => {
  const { lease } = await startParent(store);
  const before = await add(store, { jobName: CHILD });
  const child = aChild();
  await park(store, lease, onChildren([child]));
  const after = await add(store, { jobName: CHILD });

  const { claims } = await claimAll(store);

  assert.deepEqual(claims.map(({ run }) => run.id), [before.run.id, child.id, after.run.id]);
});

test("claim() tells the priority and the fairness key of a run, which its children inherit", async ({ store }) => {
  const plain = await startParent(store);
  const flowing = await startParent(store, { flow: { ...PLAIN_FLOW, priority: 3, fairnessKey: "acme" } });

  const seen = [plain, flowing].map(({ priority, fairnessKey }) => [priority, fairnessKey]);
  assert.deepEqual(seen, [[0, null], [3, "acme"]]);
});

timed("pause() tells the start of a delayed child", async ({ store }) => {
  const { lease } = await startParent(store);

  const { created } = await park(store, lease, onChildren([aChild({ flow: DELAYED })]));

  assert.deepEqual(created.map(({ startAt }) => startAt), [isoTime(FAKE_START + 5_000)]);
  assert.deepEqual((await claimAll(store)).claims, []);
});

test("claim() tells how many parents a run has above it", async ({ store }) => {
  let { lease, ...top } = await startParent(store);
  const depths = [top.depth];
  for (let depth = 1; depth <= 3; depth++) {
    await park(store, lease, onChildren([aChild()]));
    const child = await claimChild(store);
    depths.push(child.depth);
    lease = child.lease;
  }

  assert.deepEqual(depths, [0, 1, 2, 3]);
});

test("finish() of the last child resolves the pause and makes the parent due in the same commit", async ({ store }) => {
  const { lease } = await startParent(store);
  await park(store, lease, onChildren([aChild(), aChild()]));
  const [one, two] = (await claimAll(store)).claims;

  await complete(store, two!.lease);
  const afterOne = await claimAll(store, { jobNames: [PARENT] });
  await complete(store, one!.lease);
  const parent = await claimOne(store, { jobNames: [PARENT] });

  assert.deepEqual(afterOne.claims, []);
  assert.equal(parent.run.id, lease.runId);
  assert.deepEqual(parent.pauses[0]!.resolution, { outcome: "children", recordedNo: 1 });
});

test("claim() answers how the only child of a pause ended", async ({ store }) => {
  const { lease } = await startParent(store);
  const child = aChild({ labels: { a: "b" } });
  await park(store, lease, onChildren([child]));
  await end(store, await claimChild(store), '{"rows":1}');

  const { pauses: [pause] } = await claimOne(store, { jobNames: [PARENT] });

  assert.deepEqual(pause!.child, {
    run: { id: child.id, jobName: CHILD, labels: { a: "b" } },
    status: "completed",
    output: '{"rows":1}',
    failure: null,
    failedStepName: null,
  });
});

test("claim() answers how the only child of a pause failed", async ({ store }) => {
  const { lease } = await startParent(store);
  await park(store, lease, onChildren([aChild()]));
  const child = await claimChild(store);
  await store.finish(child.lease, { status: "failed", failure: aFailure(), failedStepName: "read" }, []);

  const { pauses: [pause] } = await claimOne(store, { jobNames: [PARENT] });

  assert.deepEqual(pause!.child, {
    run: child.run,
    status: "failed",
    output: null,
    failure: aFailure(),
    failedStepName: "read",
  });
});

test("cancel() of the last child resolves the pause of its parent", async ({ store }) => {
  const { lease } = await startParent(store);
  const child = aChild();
  await park(store, lease, onChildren([child]));

  await store.cancel(child.id, "request-1", null);

  const { pauses: [pause] } = await claimOne(store, { jobNames: [PARENT] });
  assert.partialDeepStrictEqual(pause!.child, { status: "cancelled", output: null, failure: null });
});

timed("claim() that fails an abandoned child resolves the pause of its parent", async ({ store, host }) => {
  const { lease } = await startParent(store);
  await park(store, lease, onChildren([aChild()]));
  await claimChild(store);
  host.advance(1_000);

  const { failed, claims } = await claimAll(store, { jobNames: [PARENT], maxAbandonments: 1 });

  assert.equal(failed.length, 1);
  assert.deepEqual(claims.map(({ run }) => run.id), [lease.runId]);
  assert.partialDeepStrictEqual(claims[0]!.pauses[0]!.child, {
    status: "failed",
    failure: { kind: "abandoned" },
  });
});

test("pause() does not park a run whose last child ended just before", async ({ store }) => {
  const { lease } = await startParent(store);
  const request = onChildren([aChild()]);
  await prepare(store, lease, request);
  await complete(store, (await claimChild(store)).lease);

  const result = await store.pause(lease, { ...NO_PAUSE, pauses: [request], park: true });

  assert.equal(result.parked, false);
  assert.deepEqual(result.pauses[0]!.resolution, { outcome: "children", recordedNo: 1 });
  assert.equal(result.pauses[0]!.child!.status, "completed");
});

test("pause() resolves nothing before all children are added, even if those that are there have ended", async ({ store }) => {
  const { lease } = await startParent(store);
  await prepare(store, lease, onChildren([aChild(), aChild()], { total: 3 }));
  for (const { lease } of (await claimAll(store)).claims) await complete(store, lease);

  const { pauses: [pause], parked } = await park(store, lease, onChildren([aChild()], { total: 3, from: 2 }));

  assert.ok(parked);
  assert.equal(pause!.resolution, null);
  await complete(store, (await claimChild(store)).lease);
  assert.equal((await claimOne(store, { jobNames: [PARENT] })).run.id, lease.runId);
});

test("finish() of the last two children at once makes the parent due once", async ({ store }) => {
  const { lease } = await startParent(store);
  await park(store, lease, onChildren([aChild(), aChild()]));
  const { claims } = await claimAll(store);

  await Promise.all(claims.map(({ lease }) => complete(store, lease)));

  const first = await claimAll(store, { jobNames: [PARENT] });
  const second = await claimAll(store, { jobNames: [PARENT] });
  assert.deepEqual([first.claims.length, second.claims.length], [1, 0]);
});

test("finish() of a child can be repeated: the child counts once", async ({ store }) => {
  const { lease } = await startParent(store);
  await park(store, lease, onChildren([aChild(), aChild()]));
  const [one] = (await claimAll(store)).claims;

  await complete(store, one!.lease);
  await complete(store, one!.lease);

  assert.deepEqual((await claimAll(store, { jobNames: [PARENT] })).claims, []);
});

timed(
  "the end of children is recorded in the order of the commits, after deadlines that passed before",
  async ({ store, host }) => {
    const { lease } = await startParent(store);
    await prepare(store, lease, aPause({ name: "review", deadline: { afterMs: 100 } }), onChildren([aChild()]));
    const child = await claimChild(store, { leaseMs: 10_000 });
    await store.renew([{ lease, reports: [] }], 10_000);
    host.advance(500);

    await complete(store, child.lease);
    await store.release(lease, []);

    const { pauses } = await claimOne(store, { jobNames: [PARENT] });
    const order = inOrder(pauses.map(({ name, resolution }) => ({ name, ...resolution! })));
    assert.deepEqual(order.map(({ name, outcome }) => [name, outcome]), [["review", "timeout"], ["all", "children"]]);
  },
);

test("a parent that waits for a signal, too, resumes at the first of the two", async ({ store }) => {
  const { lease } = await startParent(store);
  const review = aPause();
  await park(store, lease, review, onChildren([aChild()]));

  await store.signal(review.id, { signalId: "s", payload: 1 });

  const parent = await claimOne(store, { jobNames: [PARENT] });
  assert.deepEqual(parent.pauses.map(({ resolution }) => resolution?.outcome ?? null), ["signal", null]);
  await complete(store, (await claimChild(store)).lease);
  const again = await store.pause(parent.lease, {
    ...NO_PAUSE,
    pauses: [aPause({ kind: "children", name: "all" })],
    park: true,
  });
  assert.deepEqual([again.parked, again.pauses[0]!.resolution!.recordedNo], [false, 2]);
});

test("a parked parent holds no key: its children can have the same one", async ({ store }) => {
  const { lease } = await startParent(store, { concurrencyKey: "k" });
  await park(store, lease, onChildren([aChild({ concurrencyKey: "k" })]));

  const child = await claimChild(store);
  await complete(store, child.lease);

  assert.equal((await claimOne(store, { jobNames: [PARENT] })).run.id, lease.runId);
});

test("a child that is retriggered changes nothing in its parent", async ({ store }) => {
  const { lease } = await startParent(store);
  const child = aChild();
  await park(store, lease, onChildren([child, aChild()]));
  const [first, second] = (await claimAll(store)).claims;
  await fail(store, first!);

  const { run: retry } = await add(store, { jobName: CHILD, retriggerOf: { runId: child.id, from: "failure" } });
  await complete(store, (await claimChild(store)).lease);
  const between = await claimAll(store, { jobNames: [PARENT] });
  await complete(store, second!.lease);

  assert.equal(retry.parentRunId, null);
  assert.deepEqual(between.claims, []);
  const { pauses: [pause] } = await claimOne(store, { jobNames: [PARENT] });
  const results = await resultsOf(store, pause!.id);
  assert.deepEqual(results.map(({ status }) => status), ["failed", "completed"]);
});

test("readChildren() reads how children ended in the order of their numbers, part by part", async ({ store }) => {
  const { lease } = await startParent(store);
  const children = Array.from({ length: 5 }, () => aChild());
  const { pauses: [pause] } = await park(store, lease, onChildren(children));
  const { claims } = await claimAll(store);
  for (const [n, claim] of [...claims.entries()].reverse()) {
    await end(store, claim, JSON.stringify("x".repeat(100 * n)));
  }

  const first = (await store.readChildren(pause!.id, 0, 400))!;
  const rest = (await store.readChildren(pause!.id, first.items.length, Infinity))!;
  const behind = await store.readChildren(pause!.id, 5, 400);

  assert.ok(first.items.length >= 1 && first.items.length < 5, `it has read ${first.items.length}`);
  assert.deepEqual([first.hasMore, rest.hasMore], [true, false]);
  const all = [...first.items, ...rest.items];
  assert.deepEqual(all.map(({ run, status }) => [run.id, status]), children.map(({ id }) => [id, "completed"]));
  assert.deepEqual(all.map(({ output }) => output!.length), [0, 1, 2, 3, 4].map((n) => 100 * n + 2));
  assert.deepEqual(behind, { items: [], hasMore: false });
});

test("readChildren() names the job of a child, whatever its version", async ({ store }) => {
  const { lease } = await startParent(store);
  const child = aChild({ version: 2, labels: { org: "acme" } });
  const { pauses: [pause] } = await park(store, lease, onChildren([child]));
  const jobs = [aKnownJob({ name: CHILD, version: 2 })];
  const { claims: [claim] } = await store.claim(aClaimRequest({ jobs }));
  await end(store, claim!, "1");

  const [result] = await resultsOf(store, pause!.id);

  assert.deepEqual(result!.run, { id: child.id, jobName: CHILD, labels: { org: "acme" } });
});

test("readChildren() reads large values whole", async ({ store }) => {
  const large = JSON.stringify("x".repeat(200_000));
  const { lease } = await startParent(store);
  const { pauses: [pause] } = await park(store, lease, onChildren([aChild(), aChild()]));
  for (const claim of (await claimAll(store)).claims) await end(store, claim, large);

  const part = (await store.readChildren(pause!.id, 0, 1_000))!;

  assert.deepEqual([part.items.length, part.hasMore, part.items[0]!.output === large], [1, true, true]);
});

test("readChildren() answers null for an unknown pause, a wait, and children that have not ended", async ({ store }) => {
  const { lease } = await startParent(store);
  const wait = aPause();
  const { pauses: [, pause] } = await prepare(store, lease, wait, onChildren([aChild(), aChild()], { total: 3 }));
  const [one] = (await claimAll(store)).claims;
  await complete(store, one!.lease);

  const read = [
    await store.readChildren(uuidV7(FAKE_START), 0, 1_000),
    await store.readChildren(wait.id, 0, 1_000),
    await store.readChildren(pause!.id, 0, 1_000),
    await store.readChildren(pause!.id, 1, 1_000),
    await store.readChildren(pause!.id, 2, 1_000),
  ];

  assert.deepEqual(read, [null, null, null, null, null]);
  assert.equal((await store.readChildren(pause!.id, 0, 1))!.items.length, 1);
});

for (const ending of ["completed", "failed", "cancelled"] as const) {
  test(`none of the children of a run that is ${ending} is claimed any more`, async ({ store }) => {
    const { lease } = await startParent(store);
    await prepare(store, lease, onChildren([aChild(), aChild()]));

    await endAs(store, lease, ending);
    const { claims, cancelled } = await claimAll(store);

    assert.deepEqual(claims, []);
    assert.equal(cancelled.length, 2);
    const { runs } = await store.getRuns({ jobName: CHILD });
    assert.deepEqual(runs.map(({ status }) => status), ["cancelled", "cancelled"]);
    assert.ok(runs.every(({ completedAt, parentRunId }) => completedAt !== null && parentRunId === lease.runId));
  });
}

test("claim() cancels children of a run that has ended, 40 at a time, also if it knows none of their jobs", async ({ store }) => {
  const { lease } = await startParent(store);
  await prepare(store, lease, onChildren(Array.from({ length: 100 }, () => aChild())));
  await complete(store, lease);

  const results = [];
  for (let n = 0; n < 4; n++) results.push(await claimAll(store, { jobNames: ["another"], limit: n === 0 ? 0 : 10 }));

  assert.deepEqual(results.map(({ cancelled }) => cancelled.length), [40, 40, 20, 0]);
  assert.deepEqual(results.slice(1).map(({ hasMore }) => hasMore), [true, false, false]);
  assert.equal(new Set(results.flatMap(({ cancelled }) => cancelled.map(({ id }) => id))).size, 100);
});

test("claim() claims no child of a run that has ended, however many are to be cancelled", async ({ store }) => {
  const { lease } = await startParent(store);
  await prepare(store, lease, onChildren(Array.from({ length: 100 }, () => aChild())));
  await complete(store, lease);
  const { run: other } = await add(store, { jobName: CHILD });

  const { claims, hasMore } = await claimAll(store);

  assert.deepEqual([claims.map(({ run }) => run.id), hasMore], [[other.id], true]);
});

test("a child of a run that has ended keeps its place in the line of its key until it is cancelled", async ({ store }) => {
  const { lease } = await startParent(store);
  const children = [...Array.from({ length: 40 }, () => aChild()), aChild({ concurrencyKey: "k" })];
  await prepare(store, lease, onChildren(children));
  const { run } = await add(store, { jobName: CHILD, concurrencyKey: "k" });
  await complete(store, lease);

  const first = await claimAll(store);
  const second = await claimAll(store);

  assert.deepEqual([first.claims, first.cancelled.length, first.hasMore], [[], 40, true]);
  assert.deepEqual([second.claims.map(({ run }) => run.id), second.cancelled.length], [[run.id], 1]);
});

test("a child of a run that has ended has no turn, and lets others have none, until it is cancelled", async ({ store }) => {
  const { lease } = await startParent(store);
  const [first, second] = await addIds(store, { jobName: CHILD }, { jobName: CHILD });
  const children = Array.from({ length: 41 }, () => aChild(inTurn("a")));
  await prepare(store, lease, onChildren(children));
  await complete(store, lease);

  assert.deepEqual(await claimedIds(store, { jobNames: [CHILD], limit: 1 }), [first]);
  const [third] = await addIds(store, { jobName: CHILD, ...inTurn("b") });

  assert.deepEqual(await claimedIds(store, { jobNames: [CHILD] }), [second, third]);
});

test("a child of a run that has ended is passed by runs of its fairness key that precede it", async ({ store }) => {
  await complete(store, (await startRun(store, inTurn("b"))).lease);
  const { lease } = await startParent(store);
  await prepare(store, lease, onChildren(Array.from({ length: 41 }, () => aChild(inTurn("a")))));
  await complete(store, lease);
  const shared = { jobName: CHILD, concurrencyKey: "k" };
  const [late, next] = await addIds(
    store,
    { ...shared, ...inTurn("b", { priority: 1, keyConcurrency: 2 }) },
    { ...shared, ...inTurn("a", { priority: 1, keyConcurrency: 2 }) },
  );

  assert.deepEqual(await claimedIds(store, { jobNames: [CHILD] }), [late, next]);
});

timed("claim() that fails a parent for its deadline claims none of its children", async ({ store, host }) => {
  const flow = { ...PLAIN_FLOW, finishWithin: 500 };
  await addIds(store, ...Array.from({ length: 41 }, () => ({ jobName: PARENT, flow })));
  const parents = (await claimAll(store, { jobNames: [PARENT], limit: 41 })).claims;
  const children = [aChild(), aChild(inTurn("a"))];
  await prepare(store, parents.at(-1)!.lease, onChildren(children));
  for (const { lease } of parents) await store.release(lease, []);
  host.advance(500);

  const { claims, failed, hasMore } = await claimAll(store, { jobNames: [PARENT, CHILD] });

  assert.deepEqual([claims, failed.length, hasMore], [[], 41, true]);
  const { cancelled } = await claimAll(store);
  assert.deepEqual(cancelled.map(({ id }) => id), children.map(({ id }) => id));
});

test("claim() cancels children that run, wait or are delayed, too", async ({ store }) => {
  const { lease } = await startParent(store);
  await prepare(store, lease, onChildren([aChild(), aChild({ concurrencyKey: "k" }), aChild({ flow: DELAYED })]));
  const [waiting, running] = (await claimAll(store, { limit: 2 })).claims;
  await park(store, waiting!.lease, aPause());
  const [wait] = await store.getWaits(waiting!.run.id);

  await complete(store, lease);
  const { cancelled } = await claimAll(store);

  assert.equal(cancelled.length, 3);
  assert.equal((await store.getWait(wait!.id))!.status, "cancelled");
  await assert.rejects(store.saveStep(running!.lease, aStep(), []), LeaseLostError);
  const keyed = await add(store, { jobName: CHILD, concurrencyKey: "k" });
  assert.deepEqual((await claimAll(store)).claims, [], "its worker may still execute the cancelled run");
  await store.release(running!.lease, []);
  assert.equal((await claimChild(store)).run.id, keyed.run.id);
});

test("claim() cancels the children of cancelled children in turn", async ({ store }) => {
  const { lease } = await startParent(store);
  await prepare(store, lease, onChildren([aChild()]));
  const child = await claimChild(store);
  await park(store, child.lease, onChildren([aChild({ jobName: "grandchild" })]));

  await store.cancel(lease.runId, "request-1", null);
  const first = await claimAll(store, { jobNames: ["grandchild"] });
  const second = await claimAll(store, { jobNames: ["grandchild"] });
  const third = await claimAll(store, { jobNames: ["grandchild"] });

  assert.deepEqual(first.cancelled.map(({ id }) => id), [child.run.id]);
  assert.deepEqual([first.claims, first.hasMore], [[], true]);
  assert.deepEqual(second.cancelled.map(({ jobName }) => jobName), ["grandchild"]);
  assert.deepEqual([second.hasMore, third.cancelled, third.nextTimerAt], [false, [], null]);
});

test("claim() that is repeated answers no cancelled children again", async ({ store }) => {
  const { lease } = await startParent(store);
  await prepare(store, lease, onChildren([aChild()]));
  await complete(store, lease);
  const request = aClaimRequest({ jobNames: [CHILD] });
  await store.claim(request);

  const { cancelled, hasMore } = await store.claim(request);

  assert.deepEqual([cancelled, hasMore], [[], true]);
});

test("claim() appends a fact for each child that it cancels", async ({ store }) => {
  const { lease } = await startParent(store);
  await prepare(store, lease, onChildren([aChild()]));
  await complete(store, lease);
  const facts = new FactReader(store);
  await facts.readAll();
  const before = (await facts.readAll()).length;

  await claimAll(store);

  const kinds = (await facts.readAll()).slice(before).map(({ fact }) => fact[1]);
  assert.deepEqual(kinds.filter((kind) => kind === "cancelled").length, 1);
});

test("claim() cancels the children of a parent that was deleted", async ({ store }) => {
  const { lease } = await startParent(store);
  const child = aChild();
  await prepare(store, lease, onChildren([child]));
  await complete(store, lease);
  await store.delete(lease.runId);

  const { cancelled, claims } = await claimAll(store);

  assert.deepEqual([cancelled.map(({ id }) => id), claims], [[child.id], []]);
  assert.equal((await store.getRun(child.id))!.parentRunId, lease.runId);
});

test("cancel() of a child whose parent has ended works as for any run", async ({ store }) => {
  const { lease } = await startParent(store);
  const child = aChild();
  await prepare(store, lease, onChildren([child]));
  await complete(store, lease);

  const run = await store.cancel(child.id, "request-1", null);

  assert.equal(run!.status, "cancelled");
  assert.deepEqual((await claimAll(store)).cancelled, []);
});

test("finish() of a child whose parent has ended is recorded if it comes before the cancel", async ({ store }) => {
  const { lease } = await startParent(store);
  await prepare(store, lease, onChildren([aChild()]));
  const child = await claimChild(store);
  await complete(store, lease);
  const before = await look(store, lease.runId);

  await complete(store, child.lease);

  assert.deepEqual(await look(store, lease.runId), before);
  assert.equal((await store.getRun(child.run.id))!.status, "completed");
  assert.deepEqual((await claimAll(store)).cancelled, []);
});

timed("a run that is interrupted keeps its children", async ({ store, host }) => {
  const { lease } = await startParent(store);
  await prepare(store, lease, onChildren([aChild()]));
  host.advance(1_000);

  const { claims, cancelled } = await claimAll(store, { jobNames: [PARENT, CHILD] });

  assert.deepEqual(cancelled, []);
  assert.deepEqual(claims.map(({ run }) => run.jobName), [PARENT, CHILD]);
});

for (const way of ["delete", "purge"] as const) {
  timed(`${way}() of a child keeps its result for a parent that has not ended`, async ({ store, host }) => {
    const { lease } = await startParent(store);
    const { pauses: [pause] } = await park(store, lease, onChildren([aChild(), aChild()]));
    const { pauses: [single] } = await parkAnother(store, onChildren([aChild()], { name: "single" }));
    const { claims } = await claimAll(store);
    await end(store, claims[0]!, "1");
    await fail(store, claims[1]!);
    await end(store, claims[2]!, "3");
    const before = await store.readChildren(pause!.id, 0, Infinity);
    host.advance(10);

    if (way === "delete") { for (const { run } of claims) await store.delete(run.id); }
    else await store.purge({ completed: 5, failed: 5 }, 10);

    assert.equal(await store.getRun(claims[0]!.run.id), null);
    assert.deepEqual(await store.readChildren(pause!.id, 0, Infinity), before);
    assert.deepEqual(before!.items.map(({ status, output }) => [status, output]), [["completed", "1"], [
      "failed",
      null,
    ]]);
    const parents = (await claimAll(store, { jobNames: [PARENT] })).claims;
    const [child] = parents.flatMap(({ pauses }) => pauses).filter(({ id }) => id === single!.id);
    assert.partialDeepStrictEqual(child!.child, { status: "completed", output: "3", run: claims[2]!.run });
  });
}

test("delete() of a child loses its result for a parent that has ended", async ({ store }) => {
  const { lease } = await startParent(store);
  const { pauses: [pause] } = await park(store, lease, onChildren([aChild()]));
  const child = await claimChild(store);
  await complete(store, child.lease);
  await complete(store, (await claimOne(store, { jobNames: [PARENT] })).lease);

  await store.delete(child.run.id);

  assert.equal(await store.readChildren(pause!.id, 0, 1_000), null);
});

test("getRuns() finds the children of a run", async ({ store }) => {
  const { lease } = await startParent(store);
  const children = [aChild(), aChild({ labels: { a: "b" } })];
  await park(store, lease, onChildren(children));
  await add(store, { jobName: CHILD });
  await claimChild(store);
  const parentRunId = lease.runId;

  const all = await store.getRuns({ parentRunId });
  const pending = await store.getRuns({ parentRunId, status: "pending" });
  const labelled = await store.findRuns({ parentRunId, labels: { a: "b" }, jobName: CHILD });
  const none = await store.getRuns({ parentRunId: children[0]!.id });

  assert.deepEqual([all.total, all.runs.map(({ id }) => id)], [2, children.map(({ id }) => id).reverse()]);
  assert.deepEqual([pending.total, pending.runs.map(({ id }) => id)], [1, [children[1]!.id]]);
  assert.deepEqual([labelled.total, labelled.ids], [1, [children[1]!.id]]);
  assert.deepEqual([none.total, none.runs], [0, []]);
  const page = await store.getRuns({ parentRunId, limit: 1, offset: 1 });
  assert.deepEqual([page.runs.map(({ id }) => id), page.total, page.hasMore], [[children[0]!.id], 2, false]);
});

test("enqueue() copies a pause whose children all completed to a retry from the failure", async ({ store }) => {
  const { lease } = await startParent(store);
  const { pauses: [one, many] } = await park(
    store,
    lease,
    onChildren([aChild()], { name: "one" }),
    onChildren([aChild(), aChild()], { name: "many" }),
  );
  for (const [n, claim] of (await claimAll(store)).claims.entries()) await end(store, claim, String(n));
  await fail(store, await claimOne(store, { jobNames: [PARENT] }));

  const { run } = await add(store, { jobName: PARENT, ...fromFailure(lease) });

  const { pauses: [first, second], run: { id } } = await claimOne(store, { jobNames: [PARENT] });
  assert.equal(id, run.id);
  assert.equal(new Set([one, many, first, second].map((pause) => pause!.id)).size, 4);
  assert.deepEqual([first!.name, first!.child!.output, first!.childCount], ["one", "0", 1]);
  assert.deepEqual([second!.name, second!.child, second!.childCount], ["many", null, 2]);
  assert.deepEqual((await resultsOf(store, second!.id)).map(({ output }) => output), ["1", "2"]);
  assert.equal((await store.getRuns({ jobName: CHILD })).total, 3);
});

test("pause() of a retry from the failure takes over completed children and retries the others", async ({ store }) => {
  const old = await addFailedParent(store);
  await add(store, { jobName: PARENT, ...fromFailure(old) });
  const { lease, pauses } = await claimOne(store, { jobNames: [PARENT] });
  const children = Array.from({ length: 4 }, () => aChild());

  const { created, pauses: [pause] } = await park(store, lease, onChildren(children));

  assert.deepEqual(pauses, []);
  assert.equal(pause!.childCount, 4);
  const [failed, cancelled] = [old.children[1]!, old.children[2]!];
  assert.deepEqual(created.map(({ run, retryOf }) => [run.id, retryOf?.id]), [
    [children[1]!.id, failed],
    [children[2]!.id, cancelled],
  ]);
  const again = await claimAll(store);
  assert.deepEqual(again.claims.map(({ run }) => run.id), [children[1]!.id, children[2]!.id]);
  assert.deepEqual(again.claims.map(({ steps }) => steps.map(({ name }) => name)), [["read"], []]);
  assert.deepEqual(again.claims.map(({ originId }) => originId), [failed, cancelled]);
  const retry = (await store.getRun(children[1]!.id))!;
  assert.deepEqual([retry.parentRunId, retry.retriggerOf], [lease.runId, failed]);
  assert.equal((await store.getRun(failed))!.retriggeredAs, retry.id);
  for (const claim of again.claims) await end(store, claim, '"again"');
  const results = await resultsOf(store, (await claimOne(store, { jobNames: [PARENT] })).pauses[0]!.id);
  assert.deepEqual(results.map(({ run }) => run.id), [
    old.children[0],
    children[1]!.id,
    children[2]!.id,
    old.children[3],
  ]);
  assert.deepEqual(results.map(({ output }) => output), ['"0"', '"again"', '"again"', '"3"']);
});

test("pause() of a retry from the failure cancels and retries children that no claim has cancelled yet", async ({ store }) => {
  const { lease } = await startParent(store);
  const old = Array.from({ length: 45 }, () => aChild());
  await park(store, lease, onChildren(old));
  await store.cancel(lease.runId, "c1", null);
  await add(store, { jobName: PARENT, ...fromFailure(lease) });
  const { lease: again } = await claimOne(store, { jobNames: [PARENT] }); // cancels 40 of them
  const open = (await store.getRuns({ jobName: CHILD, status: "pending" })).runs.map(({ id }) => id).reverse();
  const children = Array.from({ length: 45 }, () => aChild());

  const { created, cancelled } = await park(store, again, onChildren(children));
  const repeated = await park(store, again, onChildren(children));

  assert.deepEqual(open, old.slice(40).map(({ id }) => id));
  assert.deepEqual(cancelled.map(({ id }) => id), open);
  assert.deepEqual(created.map(({ retryOf }) => retryOf?.id), old.map(({ id }) => id));
  assert.deepEqual([repeated.created, repeated.cancelled], [created, []]);
  assert.equal((await store.getRun(open[0]!))!.status, "cancelled");
  assert.equal((await store.claim(aClaimRequest({ jobNames: [PARENT] }))).cancelled.length, 0);
});

test("pause() of a retry from the failure begins anew what has another input, job or number", async ({ store }) => {
  const old = await addFailedParent(store);
  await add(store, { jobName: PARENT, ...fromFailure(old) });
  const { lease } = await claimOne(store, { jobNames: [PARENT] });
  const children = [
    aChild({ payload: '{"another":1}' }),
    aChild({ payload: '{"another":1}' }),
    aChild({ jobName: "another" }),
    aChild(),
    aChild(),
  ];

  const { created } = await park(store, lease, onChildren(children));

  assert.deepEqual(
    created.map(({ run, retryOf }) => [run.id, retryOf]),
    [0, 1, 2, 4].map((n) => [children[n]!.id, null]),
  );
});

test("pause() of a retry from the failure resolves at once if all children can be taken over", async ({ store }) => {
  const { lease } = await startParent(store);
  await prepare(store, lease, onChildren([aChild(), aChild()], { total: 3 }));
  for (const claim of (await claimAll(store)).claims) await end(store, claim, "1");
  await endAs(store, lease, "failed");
  await add(store, { jobName: PARENT, ...fromFailure(lease) });
  const again = await claimOne(store, { jobNames: [PARENT] });

  const result = await store.pause(again.lease, {
    ...NO_PAUSE,
    pauses: [onChildren([aChild(), aChild()])],
    park: true,
  });

  assert.deepEqual([result.parked, result.created], [false, []]);
  assert.deepEqual(result.pauses[0]!.resolution, { outcome: "children", recordedNo: 1 });
  assert.deepEqual((await resultsOf(store, result.pauses[0]!.id)).length, 2);
});

test("pause() of a retry from the failure begins anew what is retried already, or was deleted", async ({ store }) => {
  const old = await addFailedParent(store);
  await add(store, { jobName: CHILD, retriggerOf: { runId: old.children[1]!, from: "failure" } });
  await store.delete(old.children[2]!);
  await store.delete(old.children[3]!);
  await add(store, { jobName: PARENT, ...fromFailure(old) });
  const { lease } = await claimOne(store, { jobNames: [PARENT] });

  const { created } = await park(store, lease, onChildren(Array.from({ length: 4 }, () => aChild())));

  assert.deepEqual(created.map(({ retryOf }) => retryOf), [null, null, null]);
});

test("pause() of a retry from the start takes over nothing", async ({ store }) => {
  const old = await addFailedParent(store);
  await add(store, { jobName: PARENT, retriggerOf: { runId: old.runId, from: "start" } });
  const { lease } = await claimOne(store, { jobNames: [PARENT] });

  const { created } = await park(store, lease, onChildren(Array.from({ length: 4 }, () => aChild())));

  assert.deepEqual(created.map(({ retryOf }) => retryOf), [null, null, null, null]);
});

test("pause() of a retry of a retry takes over children of the first run, if the second had no such pause", async ({ store }) => {
  const old = await addFailedParent(store);
  await add(store, { jobName: PARENT, ...fromFailure(old) });
  const second = await claimOne(store, { jobNames: [PARENT] });
  await fail(store, second);
  await add(store, { jobName: PARENT, ...fromFailure(second.lease) });
  const { lease } = await claimOne(store, { jobNames: [PARENT] });

  const { created } = await park(store, lease, onChildren(Array.from({ length: 4 }, () => aChild())));

  assert.deepEqual(created.map(({ retryOf }) => retryOf!.id), [old.children[1], old.children[2]]);
});

test("delete() of a child that was taken over keeps its result for the retry of its parent", async ({ store }) => {
  const old = await addFailedParent(store);
  await add(store, { jobName: PARENT, ...fromFailure(old) });
  const { lease } = await claimOne(store, { jobNames: [PARENT] });
  const { pauses: [pause] } = await park(store, lease, onChildren(Array.from({ length: 4 }, () => aChild())));
  await store.delete(old.children[0]!);
  await store.delete(old.runId);

  for (const claim of (await claimAll(store)).claims) await end(store, claim, "1");

  const results = await resultsOf(store, pause!.id);
  assert.deepEqual(results.map(({ run, output }) => [run.id, output])[0], [old.children[0], '"0"']);
});

test("enqueue() copies no pause of which a result is lost", async ({ store }) => {
  const { lease } = await startParent(store);
  await park(store, lease, onChildren([aChild()]));
  const child = await claimChild(store);
  await complete(store, child.lease);
  await fail(store, await claimOne(store, { jobNames: [PARENT] }));
  await store.delete(child.run.id);

  await add(store, { jobName: PARENT, ...fromFailure(lease) });

  const { pauses } = await claimOne(store, { jobNames: [PARENT] });
  assert.deepEqual(pauses, []);
});

test("the waits of children that are retried from their failure are copied, too", async ({ store }) => {
  const { lease } = await startParent(store);
  const child = aChild();
  await park(store, lease, onChildren([child]));
  const review = aPause();
  await park(store, (await claimChild(store)).lease, review);
  await store.signal(review.id, { signalId: "s", payload: 1 });
  await fail(store, await claimChild(store));
  await fail(store, await claimOne(store, { jobNames: [PARENT] }));
  await add(store, { jobName: PARENT, ...fromFailure(lease) });
  const retry = aChild();

  await park(store, (await claimOne(store, { jobNames: [PARENT] })).lease, onChildren([retry]));

  const [wait] = await store.getWaits(retry.id);
  assert.deepEqual([wait!.name, wait!.payload], [review.name, 1]);
  assert.deepEqual(await store.getWait(wait!.id), wait);
});

/** Adds a parent that failed with four children: two completed, the second failed after a step, the third was cancelled. */
async function addFailedParent(store: Store): Promise<{ runId: string; children: string[] }> {
  const { lease } = await startParent(store);
  const children = Array.from({ length: 4 }, () => aChild());
  await park(store, lease, onChildren(children));
  const { claims } = await claimAll(store);
  await end(store, claims[0]!, '"0"');
  await store.saveStep(claims[1]!.lease, aStep(), []);
  await fail(store, claims[1]!);
  await store.cancel(children[2]!.id, "request-1", null);
  await end(store, claims[3]!, '"3"');
  await fail(store, await claimOne(store, { jobNames: [PARENT] }));
  return { runId: lease.runId, children: children.map(({ id }) => id) };
}

function aChild(overrides: Partial<NewRun> = {}): NewRun {
  return aRun({ jobName: CHILD, ...overrides });
}

/** The flow of a run with a fairness key. */
function inTurn(fairnessKey: string, flow: Partial<Flow> = {}): Pick<NewRun, "flow"> {
  return { flow: { ...PLAIN_FLOW, fairnessKey, ...flow } };
}

/** A pause on these children, on no others unless it says so. */
function onChildren(
  runs: readonly NewRun[],
  { name = "all", total = runs.length, from = 0 }: { name?: string; total?: number; from?: number } = {},
): NewPause {
  return aPause({ kind: "children", name, children: { total, from, runs } });
}

function counts(results: readonly PauseResult[]): number[] {
  return results.map(({ pauses }) => pauses[0]!.childCount);
}

function startParent(store: Store, overrides: Partial<NewRun> = {}): Promise<Claim> {
  return startRun(store, { jobName: PARENT, ...overrides });
}

/** Parks another parent. */
async function parkAnother(store: Store, pause: NewPause): Promise<PauseResult> {
  return await park(store, (await startParent(store)).lease, pause);
}

function claimAll(store: Store, overrides: ClaimOverrides = {}): Promise<ClaimResult> {
  return store.claim(aClaimRequest({ jobNames: [CHILD], ...overrides }));
}

function claimChild(store: Store, overrides: ClaimOverrides = {}): Promise<Claim> {
  return claimOne(store, { jobNames: [CHILD], ...overrides });
}

function end(store: Store, { lease }: Claim, output: string): Promise<void> {
  return store.finish(lease, { status: "completed", output, durationMs: 0 }, []);
}

function fail(store: Store, { lease }: Claim): Promise<void> {
  return store.finish(lease, { status: "failed", failure: aFailure(), failedStepName: null }, []);
}

async function endAs(store: Store, lease: Lease, status: "completed" | "failed" | "cancelled"): Promise<void> {
  if (status === "completed") await complete(store, lease);
  else if (status === "cancelled") await store.cancel(lease.runId, "request-1", null);
  else await store.finish(lease, { status, failure: aFailure(), failedStepName: null }, []);
}

async function resultsOf(store: Store, pauseId: string): Promise<ChildResult[]> {
  return (await store.readChildren(pauseId, 0, Infinity))!.items;
}

function fromFailure({ runId }: { runId: string }): Pick<NewRun, "retriggerOf"> {
  return { retriggerOf: { runId, from: "failure" } };
}
