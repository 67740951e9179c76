import assert from "node:assert/strict";
import { ConflictError, NotFoundError } from "../../../../model/error.ts";
import type { Json } from "../../../../values/json.ts";
import type { ValuePart } from "../../../../store/run_query.ts";
import { getMessages, getRun } from "../../../../store/reads.ts";
import { isoTime } from "../../../../values/iso_time.ts";
import { FAKE_START } from "../../../fake_host.ts";
import { encodeOrigin } from "../../../../model/origin.ts";
import { PLAIN_FLOW } from "../../../../model/flow.ts";
import { A_JOB, aClaimRequest, aFailure, aPause } from "../../fixtures.ts";
import { add, claimedIds, claimOne, complete, park, startRun } from "../../arrange.ts";
import { newCases } from "../../case.ts";
import { aMessage, aReceive, inboxOf, send, takenBy } from "./arrange_messages.ts";

const { cases, test, timed } = newCases();

/** What `Store.send()` promises. */
export const sendCases = cases;

timed("send() stores a message, and answers with its run", async ({ store, host }) => {
  const { run } = await add(store, { labels: { org: "acme" } });
  host.advance(20);

  const outcome = await store.send(aMessage(run.id, { id: "m1", payload: '{"n":1}' }));

  assert.deepEqual(outcome, {
    run: { id: run.id, jobName: A_JOB, labels: { org: "acme" } },
    disposition: "accepted",
    started: null,
  });
  assert.deepEqual(await getMessages(store, run.id), [{
    id: "m1",
    name: "text",
    payload: { n: 1 },
    status: "unread",
    acceptedAt: isoTime(FAKE_START + 20),
    sentBy: null,
    receivedAt: null,
    receivedBy: null,
  }]);
});

test("send() keeps who sent a message first, also for a retry", async ({ store }) => {
  const { lease, run } = await startRun(store);
  const message = (by: string | null) => aMessage(run.id, { id: "m1", trace: encodeOrigin(null, by) });

  await store.send(message("ada"));
  await store.send(message("eve"));
  await store.finish(lease, { status: "failed", failure: aFailure(), failedStepName: null }, []);
  const retry = await add(store, { retriggerOf: { runId: run.id, from: "start" } });

  for (const runId of [run.id, retry.run.id]) {
    assert.deepEqual((await getMessages(store, runId)).map(({ id, sentBy }) => [id, sentBy]), [["m1", "ada"]]);
  }
});

test("send() is accepted by a run that is pending, delayed, executing, waiting and held", async ({ store }) => {
  const [pending, delayed] = [await add(store), await add(store, { flow: aDelay() })];
  const executing = await startRun(store, { jobName: "executing" });
  const waiting = await startRun(store, { jobName: "waiting" });
  await park(store, waiting.lease, aPause());

  for (const id of [pending.run.id, delayed.run.id, executing.run.id, waiting.run.id]) {
    assert.equal(isAccepted(await store.send(aMessage(id))), true);
  }
});

test("send() keeps the order of the calls", async ({ store }) => {
  const { run } = await add(store);

  await send(store, run.id, "c", "a", "b");

  assert.deepEqual((await getMessages(store, run.id)).map(({ id }) => id), ["c", "a", "b"]);
});

test("send() is a duplicate with the same id, name and payload, also after the end", async ({ store }) => {
  const { lease, run } = await startRun(store);
  await store.send(aMessage(run.id, { id: "m1", payload: '{"a":1,"b":[2]}' }));
  const again = aMessage(run.id, { id: "m1", payload: '{"b":[2],"a":1}' });

  const before = await store.send(again);
  await complete(store, lease);
  const after = await store.send(again);

  assert.deepEqual([before, after].map((outcome) => "run" in outcome && outcome.disposition), [
    "duplicate",
    "duplicate",
  ]);
  assert.deepEqual(await inboxOf(store, run.id), [["m1", "closed"]]);
});

test("send() refuses an id that another message of the run has", async ({ store }) => {
  const { run } = await add(store);
  const other = await add(store);
  await send(store, run.id, "m1");

  for (const message of [{ id: "m1", name: "stop" }, { id: "m1", payload: "7" }]) {
    await assert.rejects(store.send(aMessage(run.id, message)), (error: ConflictError) => {
      assert.equal(error.code, "conflict");
      assert.equal(error.message, `Run "${run.id}" has another message with the id "m1"`);
      return true;
    });
  }
  await send(store, other.run.id, "m1"); // the ids of another run are its own

  assert.deepEqual(await inboxOf(store, run.id), [["m1", "unread"]]);
});

test("send() refuses a run that does not exist, or has ended", async ({ store }) => {
  const { lease, run } = await startRun(store);
  await complete(store, lease);

  await assert.rejects(store.send(aMessage("00000000-0000-7000-8000-000000000000")), NotFoundError);
  await assert.rejects(store.send(aMessage(run.id)), (error: ConflictError) => {
    assert.equal(error.code, "run_ended");
    assert.equal(error.message, `Cannot send to run "${run.id}": it is completed`);
    return true;
  });
  assert.deepEqual(await inboxOf(store, run.id), []);
});

test("send() says which run is the retry of the one that has ended", async ({ store }) => {
  const { lease, run } = await startRun(store);
  await complete(store, lease);
  const retry = await add(store, { retriggerOf: { runId: run.id, from: "start" } });

  await assert.rejects(store.send(aMessage(run.id)), {
    code: "run_ended",
    message: `Cannot send to run "${run.id}": it was retried as run "${retry.run.id}"`,
  });
});

test("send() makes the run due that waits for it, and gives it the message", async ({ store }) => {
  const { lease, run } = await startRun(store);
  await park(store, lease, aReceive());
  const before = await claimedIds(store);

  await store.send(aMessage(run.id, { id: "m1", payload: '{"n":"1"}', input: '{"n":1}' }));

  const { pauses: [next] } = await claimOne(store);
  assert.deepEqual(before, []);
  assert.deepEqual(next!.messages?.map(({ id, name, input }) => ({ id, name, input })), [
    { id: "m1", name: "text", input: '{"n":1}' },
  ]);
  assert.deepEqual(next!.resolution, { outcome: "messages", recordedNo: 1 });
});

test("send() does not wake a run that waits for another name, or for something else", async ({ store }) => {
  const { lease, run } = await startRun(store);
  await store.pause(lease, { pauses: [aReceive({ names: ["stop"] })], retryAt: null, park: false, reports: [] });
  await park(store, lease, aPause());

  await send(store, run.id, "m1"); // another name
  await store.send(aMessage(run.id, { id: "m2", name: "stop" })); // the run does not wait for this receive

  assert.deepEqual((await store.claim(aClaimRequest())).claims, []);
  assert.deepEqual(await inboxOf(store, run.id), [["m1", "unread"], ["m2", "received"]]);
});

test("send() gives messages to the receives of a name in the order in which they were prepared", async ({ store }) => {
  const { lease, run } = await startRun(store);
  await park(store, lease, aReceive({}, { name: "one" }), aReceive({ names: ["stop", "text"] }, { name: "two" }));

  await send(store, run.id, "m1", "m2", "m3");

  const { pauses } = await claimOne(store);
  assert.deepEqual(pauses.map(takenBy), [["m1"], ["m2"]]);
  assert.deepEqual(await inboxOf(store, run.id), [["m1", "received"], ["m2", "received"], ["m3", "unread"]]);
});

for (const payload of [null, false, 0, "", "a\0b\ud800", [], { "__proto__": 1 }, { deep: [{ er: null }] }] as Json[]) {
  test(`send() hands on the payload ${JSON.stringify(payload)}`, async ({ store }) => {
    const { lease, run } = await startRun(store);
    await park(store, lease, aReceive());

    await store.send(aMessage(run.id, { payload: JSON.stringify(payload) }));

    const { pauses: [next] } = await claimOne(store);
    assert.deepEqual(JSON.parse(next!.messages![0]!.input!), payload);
    assert.deepEqual((await getMessages(store, run.id))[0]!.payload, payload);
  });
}

test("send() takes ids and names of any characters, and an input that is undefined", async ({ store }) => {
  const { lease, run } = await startRun(store);
  const [id, name] = ["\u{e000}'\"\\ \u{1f600}", "__proto__"];
  await park(store, lease, aReceive({ names: ["constructor", name] }));

  await store.send(aMessage(run.id, { id, name, input: null }));

  const { pauses: [next] } = await claimOne(store);
  assert.deepEqual(next!.messages?.map(({ id, name, input }) => [id, name, input]), [[id, name, null]]);
  assert.deepEqual((await getMessages(store, run.id))[0]!.receivedBy, "next");
});

timed("send() commits a deadline that has passed, and leaves the message unread", async ({ store, host }) => {
  const { lease, run } = await startRun(store);
  await park(store, lease, aReceive({}, { deadline: { afterMs: 50 } }));
  host.advance(50);

  await send(store, run.id, "late");

  const { pauses: [next] } = await claimOne(store);
  assert.deepEqual(next!.resolution, { outcome: "timeout", recordedNo: 1 });
  assert.deepEqual(await inboxOf(store, run.id), [["late", "unread"]]);
});

timed("send() keeps the trace of the first message of a receive", async ({ store, host }) => {
  const { lease, run } = await startRun(store);
  await park(store, lease, aReceive());
  host.advance(5);

  await store.send(aMessage(run.id, { trace: "00-1-2" }));

  const { resumed } = await claimOne(store);
  assert.deepEqual(resumed.map(({ kind, outcome, trace }) => [kind, outcome, trace]), [[
    "receive",
    "messages",
    "00-1-2",
  ]]);
});

test("send() appends no fact", async ({ store }) => {
  const { lease, run } = await startRun(store);
  await park(store, lease, aReceive());
  const before = await store.findCursor(null);

  await send(store, run.id, "m1", "m2");

  assert.deepEqual(await store.findCursor(null), before);
});

test("send() does nothing if the run is not the expected one, but knows a duplicate", async ({ store }) => {
  const { run } = await add(store);
  await send(store, run.id, "m1");

  const changed = await store.send({ ...aMessage(run.id, { id: "m2" }), expect: null });
  const duplicate = await store.send({ ...aMessage(run.id, { id: "m1" }), expect: null });
  const unknown = await store.send({ ...aMessage("00000000-0000-7000-8000-000000000000"), expect: "other" });
  const expected = await store.send({ ...aMessage(run.id, { id: "m3" }), expect: run.id });

  assert.deepEqual(changed, { changed: true, found: { id: run.id, jobName: A_JOB, labels: {} } });
  assert.deepEqual("run" in duplicate && duplicate.disposition, "duplicate");
  assert.deepEqual(unknown, { changed: true, found: null });
  assert.equal(isAccepted(expected), true);
  assert.deepEqual((await inboxOf(store, run.id)).map(([id]) => id), ["m1", "m3"]);
});

test("delete() deletes the messages of the run", async ({ store }) => {
  const { lease, run } = await startRun(store);
  await send(store, run.id, "m1");
  await complete(store, lease);

  await store.delete(run.id);

  assert.equal(await store.readMessages(run.id, null, Infinity), null);
  assert.equal(await getRun(store, run.id), null);
});

test("readMessages() reads the messages in parts, without large values", async ({ store }) => {
  const { run } = await add(store);
  const large = JSON.stringify("x".repeat(40_000));
  await store.send(aMessage(run.id, { id: "m1", payload: large }));
  await send(store, run.id, "m2", "m3");

  const first = await store.readMessages(run.id, null, 1);
  const rest = await store.readMessages(run.id, "m1", 100_000);
  const parts: Uint8Array<ArrayBuffer>[] = [];
  for (let from: number | null = 0; from !== null;) {
    const place = { of: "message", runId: run.id, messageId: "m1", value: "payload" } as const;
    const part: ValuePart = (await store.readValue(place, from))!;
    parts.push(part.bytes);
    from = part.next;
  }

  assert.deepEqual(first!.items.map(({ id, payload }) => [id, payload]), [["m1", { isLarge: true }]]);
  assert.equal(first!.hasMore, true);
  assert.deepEqual(rest!.items.map(({ id }) => id), ["m2", "m3"]);
  assert.equal(rest!.hasMore, false);
  assert.equal(await new Blob(parts).text(), large);
  assert.equal(await store.readMessages("00000000-0000-7000-8000-000000000000", null, 1), null);
});

function isAccepted(outcome: Awaited<ReturnType<typeof send>>[number]): boolean {
  return "run" in outcome && outcome.disposition === "accepted";
}

function aDelay() {
  return { ...PLAIN_FLOW, start: { afterMs: 60_000 } };
}
