import assert from "node:assert/strict";
import { getMessages } from "../../../../store/reads.ts";
import { isoTime } from "../../../../values/iso_time.ts";
import { FAKE_START } from "../../../fake_host.ts";
import { aHold, aKnownJob, aPause, aStep } from "../../fixtures.ts";
import { add, claimedIds, claimOne, complete, NO_PAUSE, park, startRun } from "../../arrange.ts";
import { newCases } from "../../case.ts";
import { aMessage, aReceive, inboxOf, receive, send, takenBy } from "./arrange_messages.ts";

const { cases, test, timed } = newCases();

/** What `Store.pause()` promises of receives. */
export const receiveCases = cases;

test("pause() gives a receive the oldest unread message of its names", async ({ store }) => {
  const { lease, run } = await startRun(store);
  await store.send(aMessage(run.id, { id: "other", name: "other" }));
  await send(store, run.id, "m1", "m2");

  const { pauses: [next], parked } = await store.pause(lease, { ...NO_PAUSE, pauses: [aReceive()], park: true });

  assert.equal(parked, false);
  assert.deepEqual(takenBy(next!), ["m1"]);
  assert.deepEqual(await inboxOf(store, run.id), [["other", "unread"], ["m1", "received"], ["m2", "unread"]]);
});

test("pause() gives a receive up to `max` messages, of all its names in their order", async ({ store }) => {
  const { lease, run } = await startRun(store);
  await send(store, run.id, "m1");
  await store.send(aMessage(run.id, { id: "s1", name: "stop" }));
  await send(store, run.id, "m2", "m3");
  const all = (name: string) => aReceive({ names: ["stop", "text"], max: 3 }, { name });

  const { pauses } = await receive(store, lease, all("one"), all("two"));

  assert.deepEqual(pauses.map(takenBy), [["m1", "s1", "m2"], ["m3"]]);
  assert.deepEqual(pauses.map(({ resolution }) => resolution?.recordedNo), [1, 2]);
});

timed("pause() says when a receive took its messages, and which did", async ({ store, host }) => {
  const { lease, run } = await startRun(store);
  await send(store, run.id, "m1");
  host.advance(30);

  await receive(store, lease, aReceive({}, { name: "next#2" }));

  const [message] = await getMessages(store, run.id);
  assert.deepEqual([message!.receivedAt, message!.receivedBy], [isoTime(FAKE_START + 30), "next#2"]);
});

test("pause() takes no message twice, and answers a repeated receive with the same", async ({ store }) => {
  const { lease, run } = await startRun(store);
  await send(store, run.id, "m1", "m2");
  const next = aReceive();

  const first = await receive(store, lease, next);
  const again = await receive(store, lease, { ...next, id: aReceive().id });

  assert.deepEqual(first.pauses, again.pauses);
  assert.deepEqual(await inboxOf(store, run.id), [["m1", "received"], ["m2", "unread"]]);
});

test("claim() hands out what each receive took, and its place among the records", async ({ store }) => {
  const { lease, run } = await startRun(store);
  await send(store, run.id, "m1", "m2", "m3");
  await receive(store, lease, aReceive({ max: 2 }, { name: "a" }));
  await store.saveStep(lease, aStep(), []);
  await receive(store, lease, aReceive({}, { name: "b" }), aReceive({}, { name: "c" }));
  await store.release(lease, []);

  const { pauses } = await claimOne(store);
  const history = await store.getHistory(run.id);

  assert.deepEqual(pauses.map(takenBy), [["m1", "m2"], ["m3"], null]);
  assert.deepEqual(pauses.map(({ resolution }) => resolution?.recordedNo), [1, 3, undefined]);
  assert.deepEqual(history!.pauses, pauses);
});

test("pause() leaves a message unread if the lease is lost before it", async ({ store }) => {
  const { lease, run } = await startRun(store);
  await send(store, run.id, "m1");
  await store.release(lease, []);

  await assert.rejects(receive(store, lease, aReceive()), { code: "lease_lost" });

  assert.deepEqual(await inboxOf(store, run.id), [["m1", "unread"]]);
});

timed("pause() takes what is there before it looks at the deadline", async ({ store, host }) => {
  const { lease, run } = await startRun(store);
  await send(store, run.id, "m1");
  host.advance(10);
  const now = (name: string) => aReceive({}, { name, deadline: { afterMs: 0 } });
  const before = aReceive({}, { name: "three", deadline: { at: FAKE_START } });

  const { pauses } = await receive(store, lease, now("one"), now("two"), before);

  assert.deepEqual(pauses.map(takenBy), [["m1"], "timeout", "timeout"]);
});

test("pause() gives an open receive the names that the code asks for now", async ({ store }) => {
  const { lease, run } = await startRun(store);
  await park(store, lease, aReceive({ names: ["a"] }), aPause());
  await store.send(aMessage(run.id, { id: "m1", name: "b" }));
  const { id } = (await store.getHistory(run.id))!.pauses[1]!;
  await store.signal(id, { signalId: "s", payload: null });

  const { lease: later } = await claimOne(store);
  const { pauses } = await receive(store, later, aReceive({ names: ["a", "b"] }));

  assert.deepEqual(pauses.map(takenBy), [["m1"]]);
});

test("pause() lets a run wait for the first message of its new names alone", async ({ store }) => {
  const { lease, run } = await startRun(store);
  await park(store, lease, aReceive({ names: ["a", "b"] }));
  await store.send(aMessage(run.id, { id: "m1", name: "a" }));
  const { lease: later } = await claimOne(store);
  await park(store, later, aReceive({ names: ["a"] }, { name: "next#2" }));
  const { lease: third } = await claimAfter(store, run.id, "a");
  await receive(store, third, aReceive({ names: ["a"] }, { name: "next#3" }));

  const { pauses } = await receive(store, third, aReceive({ names: ["b"] }, { name: "next#3" }));
  await store.send(aMessage(run.id, { id: "m9", name: "a" }));

  assert.deepEqual(pauses.map(takenBy), [null]);
  assert.deepEqual((await inboxOf(store, run.id)).at(-1), ["m9", "unread"]);
});

timed("a receive times out at its deadline, which never moves", async ({ store, host }) => {
  const { lease } = await startRun(store);
  const next = aReceive({}, { deadline: { afterMs: 100 } });
  await park(store, lease, next);
  host.advance(99);
  const before = await claimedIds(store);
  host.advance(1);

  const { pauses: [over], lease: later } = await claimOne(store);
  const { pauses: [again] } = await receive(store, later, aReceive({}, { deadline: { afterMs: 900 } }));

  assert.deepEqual(before, []);
  assert.equal(over!.deadlineAt, FAKE_START + 100);
  assert.deepEqual([over!.resolution, again!.resolution], [
    { outcome: "timeout", recordedNo: 1 },
    { outcome: "timeout", recordedNo: 1 },
  ]);
});

test("a receive is no wait: it is in no list of waits, and takes no signal", async ({ store }) => {
  const { lease, run } = await startRun(store);
  const next = aReceive();
  const { pauses } = await park(store, lease, next);

  await assert.rejects(store.signal(pauses[0]!.id, { signalId: "s", payload: null }), { code: "not_found" });
  const [waits, open, state] = [
    await store.readWaits(run.id, null, Infinity),
    await store.getOpenWaits(null, 10),
    await store.getRunState(run.id),
  ];

  assert.deepEqual([waits!.items, open.waits], [[], []]);
  assert.deepEqual(state!.pauses, [{ waitId: null, name: "next", deadlineAt: null }]);
});

test("a run that ends leaves its unread messages closed, and its open receives", async ({ store }) => {
  const { lease, run } = await startRun(store);
  await receive(store, lease, aReceive({ names: ["other"] }));
  await send(store, run.id, "m1");

  await complete(store, lease);

  assert.deepEqual(await inboxOf(store, run.id), [["m1", "closed"]]);
  const { pauses: [next] } = (await store.getTimeline(run.id, { steps: 0, pauses: 0, interruptions: 0 }, 10))!;
  assert.deepEqual([next!.kind, next!.status, next!.outcome], ["receive", "closed", null]);
});

test("a message that ends a receive of a held run counts as a record: the same code tries the run again", async ({ store }) => {
  const { lease, run } = await startRun(store);
  await receive(store, lease, aReceive());
  await store.hold(lease, aHold(), []);
  const trying = { triesHeld: true, jobs: [aKnownJob({ print: "print-1" })] };
  const before = await claimedIds(store, trying);

  await send(store, run.id, "m1");

  assert.deepEqual([before, await claimedIds(store, trying)], [[], [run.id]]);
});

test("getBlockers() says for which messages a run waits, and how many others are unread", async ({ store }) => {
  const { lease, run } = await startRun(store);
  await park(store, lease, aReceive({ names: ["text", "stop"] }));
  for (const id of ["o1", "o2"]) await store.send(aMessage(run.id, { id, name: "other" }));

  const found = await store.getBlockers(run.id);

  const blocker = found!.blockers.find(({ kind }) => kind === "message");
  assert.ok(blocker?.kind === "message");
  const { name, names, deadlineAt, others } = blocker;
  assert.deepEqual([name, names, deadlineAt, others], ["next", ["text", "stop"], null, 2]);
});

test("getBlockers() says of a run that has ended which messages it has not received", async ({ store }) => {
  const { lease, run } = await startRun(store);
  for (const [id, name] of [["z1", "z"], ["t1", "text"], ["a1", "a"], ["z2", "z"], ["z3", "z"]] as const) {
    await store.send(aMessage(run.id, { id, name }));
  }
  await receive(store, lease, aReceive({ names: ["text", "z"] }));
  const before = await store.getBlockers(run.id);
  const { run: other } = await add(store);
  await complete(store, lease);
  await store.cancel(other.id, "request", null);

  const found = await store.getBlockers(run.id);
  const none = await store.getBlockers(other.id);

  assert.deepEqual(before!.blockers.map(({ kind }) => kind), ["executing"]);
  const messages = [{ name: "text", count: 1 }, { name: "a", count: 1 }, { name: "z", count: 2 }];
  assert.deepEqual(found!.blockers.map(({ kind }) => kind), ["ended", "unread"]);
  assert.deepEqual(found!.blockers[1], { kind: "unread", messages });
  assert.deepEqual(none!.blockers.map(({ kind }) => kind), ["ended"]);
});

async function claimAfter(store: Parameters<typeof claimOne>[0], runId: string, name: string) {
  await store.send(aMessage(runId, { name }));
  return await claimOne(store);
}
