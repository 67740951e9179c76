import assert from "node:assert/strict";
import { LeaseLostError } from "../../../../model/error.ts";
import { PLAIN_FLOW } from "../../../../model/flow.ts";
import { isoTime } from "../../../../values/iso_time.ts";
import { FactReader } from "../../fact_reader.ts";
import { FAKE_START } from "../../../fake_host.ts";
import { aPause, aProgress } from "../../fixtures.ts";
import { add, claimOne, NO_PAUSE, park, prepare } from "../../arrange.ts";
import { newCases } from "../../case.ts";

import {
  aChild,
  CHILD,
  claimAll,
  claimChild,
  counts,
  DELAYED,
  end,
  onChildren,
  PARENT,
  startParent,
} from "./arrange_children.ts";
import { getRun, getRuns, getWaits } from "../../../../store/reads.ts";

const { cases, test, timed } = newCases();

/** What `Store.pause()` promises of adding children. */
export const addedChildCases = cases;

test("pause() adds the children of a pause in the commit that parks the run", async ({ store }) => {
  const { lease } = await startParent(store);
  const [one, two] = [aChild({ labels: { a: "b" } }), aChild()];

  const { parked, pauses: [pause], created } = await park(store, lease, onChildren([one, two]));

  const runs = await Promise.all([one, two].map(({ id }) => getRun(store, id)));
  assert.ok(parked);
  assert.deepEqual([pause!.kind, pause!.childCount, pause!.child, pause!.resolution], ["children", 2, null, null]);
  assert.deepEqual(created, [
    { run: { id: one.id, jobName: CHILD, labels: { a: "b" } }, startAt: null, retryOf: null },
    { run: { id: two.id, jobName: CHILD, labels: {} }, startAt: null, retryOf: null },
  ]);
  assert.deepEqual(runs.map((run) => [run!.status, run!.parentRunId]), Array(2).fill(["pending", lease.runId]));
  assert.deepEqual(await getWaits(store, lease.runId), []);
  assert.equal(await store.getWait(pause!.id), null);
});

test("getRunState() says how many children a run waits for, and how many have not ended", async ({ store }) => {
  const { lease } = await startParent(store);
  await park(store, lease, onChildren([aChild(), aChild(), aChild()], { name: "map" }));
  await end(store, await claimChild(store), "1");

  const { pauses } = (await store.getRunState(lease.runId))!;

  assert.deepEqual(pauses, [
    { waitId: null, name: "map", deadlineAt: null, children: { total: 3, unfinished: 2 } },
  ]);
});

test("pause() adds children without parking: they can be claimed at once", async ({ store }) => {
  const { lease } = await startParent(store);
  const child = aChild();

  const { parked, created } = await prepare(store, lease, onChildren([child]));

  assert.equal(parked, false);
  assert.equal(created.length, 1);
  assert.equal((await claimChild(store)).run.id, child.id);
  assert.equal((await getRun(store, lease.runId))!.status, "running");
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
  assert.equal((await getRuns(store, { jobName: CHILD })).total, 2);
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
  assert.equal((await getRuns(store, { jobName: CHILD })).total, 3);
  await assert.rejects(prepare(store, lease, onChildren([aChild()], { name: "other" })), LeaseLostError);
  assert.equal((await getRuns(store, { jobName: CHILD })).total, 3);
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
