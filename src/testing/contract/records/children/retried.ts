import assert from "node:assert/strict";
import { aClaimRequest, aFailure, aPause, aStep } from "../../fixtures.ts";
import { add, claimOne, complete, NO_PAUSE, park, prepare } from "../../arrange.ts";
import { newCases } from "../../case.ts";

import {
  aChild,
  addFailedParent,
  CHILD,
  claimAll,
  claimChild,
  end,
  endAs,
  fail,
  fromFailure,
  onChildren,
  PARENT,
  resultsOf,
  startParent,
} from "./arrange_children.ts";
import { getRun, getRuns, getWaits } from "../../../../store/reads.ts";

const { cases, test } = newCases();

/** What a store promises of the children of a run that is retried. */
export const retriedChildCases = cases;

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
  assert.equal((await getRuns(store, { jobName: CHILD })).total, 3);
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
  const retry = (await getRun(store, children[1]!.id))!;
  assert.deepEqual([retry.parentRunId, retry.retriggerOf], [lease.runId, failed]);
  assert.equal((await getRun(store, failed))!.retriggeredAs, retry.id);
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
  const open = (await getRuns(store, { jobName: CHILD, status: "pending" })).runs.map(({ id }) => id).reverse();
  const children = Array.from({ length: 45 }, () => aChild());

  const { created, cancelled } = await park(store, again, onChildren(children));
  const repeated = await park(store, again, onChildren(children));

  assert.deepEqual(open, old.slice(40).map(({ id }) => id));
  assert.deepEqual(cancelled.map(({ id }) => id), open);
  assert.deepEqual(created.map(({ retryOf }) => retryOf?.id), old.map(({ id }) => id));
  assert.deepEqual([repeated.created, repeated.cancelled], [created, []]);
  assert.equal((await getRun(store, open[0]!))!.status, "cancelled");
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

test("pause() of a retry from the failure knows children by the aliases of their job, too", async ({ store }) => {
  const old = await addFailedParent(store);
  await store.delete(old.children[3]!);
  await add(store, { jobName: PARENT, ...fromFailure(old) });
  const { lease } = await claimOne(store, { jobNames: [PARENT] });
  const children = Array.from({ length: 4 }, () => aChild({ jobName: "renamed", aliases: ["another", CHILD] }));

  const { created, pauses: [pause] } = await park(store, lease, onChildren(children));

  assert.deepEqual(created.map(({ run, retryOf }) => [run.id, run.jobName, retryOf?.id]), [
    [children[1]!.id, "renamed", old.children[1]],
    [children[2]!.id, "renamed", old.children[2]],
    [children[3]!.id, "renamed", undefined], // its result is lost
  ]);
  const { claims } = await claimAll(store, { jobNames: ["renamed"] });
  assert.deepEqual(claims.map(({ steps }) => steps.map(({ name }) => name)), [["read"], [], []]);
  for (const claim of claims) await end(store, claim, '"again"');
  const results = await resultsOf(store, pause!.id);
  assert.deepEqual(results.map(({ run, output }) => [run.id, output])[0], [old.children[0], '"0"']);
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
  const resumed = await claimChild(store);
  await store.saveStep(resumed.lease, aStep({ result: { status: "failed", failure: aFailure() } }), []);
  await fail(store, resumed);
  await fail(store, await claimOne(store, { jobNames: [PARENT] }));
  await add(store, { jobName: PARENT, ...fromFailure(lease) });
  const retry = aChild();

  await park(store, (await claimOne(store, { jobNames: [PARENT] })).lease, onChildren([retry]));

  const [wait] = await getWaits(store, retry.id);
  assert.deepEqual([wait!.name, wait!.payload], [review.name, 1]);
  assert.deepEqual(await store.getWait(wait!.id), wait);
});
