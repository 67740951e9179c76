import assert from "node:assert/strict";
import { uuidV7 } from "../../../../model/host.ts";
import { FAKE_START } from "../../../fake_host.ts";
import { aClaimRequest, aFailure, aKnownJob, aPause } from "../../fixtures.ts";
import { add, claimOne, complete, inOrder, NO_PAUSE, park, prepare } from "../../arrange.ts";
import { newCases } from "../../case.ts";

import {
  aChild,
  CHILD,
  claimAll,
  claimChild,
  end,
  fail,
  onChildren,
  PARENT,
  resultsOf,
  startParent,
} from "./arrange_children.ts";

const { cases, test, timed } = newCases();

/** What a store promises of the results of children. */
export const childResultCases = cases;

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
