import assert from "node:assert/strict";
import { LeaseLostError } from "../../../../model/error.ts";
import { PLAIN_FLOW } from "../../../../model/flow.ts";
import { FactReader } from "../../fact_reader.ts";
import { aClaimRequest, aPause, aStep } from "../../fixtures.ts";
import { add, addIds, claimedIds, claimOne, complete, look, park, prepare, startRun } from "../../arrange.ts";
import { newCases } from "../../case.ts";

import {
  aChild,
  CHILD,
  claimAll,
  claimChild,
  DELAYED,
  end,
  endAs,
  fail,
  inTurn,
  onChildren,
  PARENT,
  parkAnother,
  startParent,
} from "./arrange_children.ts";
import { getRun, getRuns, getWaits } from "../../../../store/reads.ts";

const { cases, test, timed } = newCases();

/** What a store promises of the children of runs that have ended, and of deleted children. */
export const orphanedChildCases = cases;

for (const ending of ["completed", "failed", "cancelled"] as const) {
  test(`none of the children of a run that is ${ending} is claimed any more`, async ({ store }) => {
    const { lease } = await startParent(store);
    await prepare(store, lease, onChildren([aChild(), aChild()]));

    await endAs(store, lease, ending);
    const { claims, cancelled } = await claimAll(store);

    assert.deepEqual(claims, []);
    assert.equal(cancelled.length, 2);
    const { runs } = await getRuns(store, { jobName: CHILD });
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
  await prepare(store, parents[0]!.lease, onChildren(children));
  for (const { lease } of parents) await store.release(lease, []);
  host.advance(500);

  const { claims, failed, hasMore } = await claimAll(store, { jobNames: [PARENT, CHILD] });

  assert.deepEqual([claims, failed.length, hasMore], [[], 40, true]);
  const { cancelled, failed: last } = await claimAll(store);
  assert.equal(last.length, 1);
  assert.deepEqual(cancelled.map(({ id }) => id), children.map(({ id }) => id));
});

test("claim() cancels children that run, wait or are delayed, too", async ({ store }) => {
  const { lease } = await startParent(store);
  await prepare(store, lease, onChildren([aChild(), aChild({ concurrencyKey: "k" }), aChild({ flow: DELAYED })]));
  const [waiting, running] = (await claimAll(store, { limit: 2 })).claims;
  await park(store, waiting!.lease, aPause());
  const [wait] = await getWaits(store, waiting!.run.id);

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
  await store.release(lease, []); // its worker executes it no more
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
  assert.equal((await getRun(store, child.id))!.parentRunId, lease.runId);
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
  assert.equal((await getRun(store, child.run.id))!.status, "completed");
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

    assert.equal(await getRun(store, claims[0]!.run.id), null);
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

  const all = await getRuns(store, { parentRunId });
  const pending = await getRuns(store, { parentRunId, status: "pending" });
  const labelled = await store.findRuns({ parentRunId, labels: { a: "b" }, jobName: CHILD });
  const none = await getRuns(store, { parentRunId: children[0]!.id });

  assert.deepEqual([all.total, all.runs.map(({ id }) => id)], [2, children.map(({ id }) => id).reverse()]);
  assert.deepEqual([pending.total, pending.runs.map(({ id }) => id)], [1, [children[1]!.id]]);
  assert.deepEqual([labelled.total, labelled.ids], [1, [children[1]!.id]]);
  assert.deepEqual([none.total, none.runs], [0, []]);
  const page = await getRuns(store, { parentRunId, limit: 1, offset: 1 });
  assert.deepEqual([page.runs.map(({ id }) => id), page.total, page.hasMore], [[children[0]!.id], 2, false]);
});
