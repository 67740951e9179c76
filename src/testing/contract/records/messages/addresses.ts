import assert from "node:assert/strict";
import { getMessages, getRun } from "../../../../store/reads.ts";
import type { NewRun } from "../../../../store/new_run.ts";
import type { SendOutcome, SendRequest } from "../../../../store/send_request.ts";
import type { Store } from "../../../../store/store.ts";
import { A_JOB, aFailure, aRun } from "../../fixtures.ts";
import { add, claimOne, complete, startRun } from "../../arrange.ts";
import { newCases } from "../../case.ts";
import { aMessage, aReceive, inboxOf, receive, takenBy } from "./arrange_messages.ts";

const { cases, test, timed } = newCases();

/** What `Store.send()` promises of messages to the run of a key. */
export const addressCases = cases;

const KEY = "order 42";

/** A message to the run of the key. */
function toKey(id: string, overrides: Partial<SendRequest> = {}): SendRequest {
  return { ...aMessage("", { id }), to: { jobNames: [A_JOB], key: KEY }, ...overrides };
}

/** The run that a message starts. */
function aStartedRun(overrides: Partial<NewRun> = {}): NewRun {
  return aRun({ idempotencyKey: KEY, idempotencyUntil: "ended", ...overrides });
}

/** A message to the run of the key, with a run to start. */
const starting = (id: string, start = aStartedRun()): SendRequest => toKey(id, { start });

function seen(outcome: SendOutcome): [string, string, string | null] | "changed" {
  if ("changed" in outcome) return "changed";
  return [outcome.run.id, outcome.disposition, outcome.started?.run.id ?? null];
}

test("send() finds the run of a key by the name of its job, then by its aliases", async ({ store }) => {
  const { run } = await add(store, { idempotencyKey: KEY });
  const { run: older } = await add(store, { idempotencyKey: KEY, jobName: "old name" });
  const { run: next } = await add(store, { idempotencyKey: "b", version: 2 });

  const found = [
    await store.send(toKey("m1")),
    await store.send(toKey("m2", { to: { jobNames: [A_JOB, "old name"], key: KEY } })),
    await store.send(toKey("m3", { to: { jobNames: ["other", "old name"], key: KEY } })),
    await store.send(toKey("m4", { to: { jobNames: [A_JOB], key: "b" } })),
  ];

  assert.deepEqual(found.map((outcome) => seen(outcome)[0]), [run.id, run.id, older.id, next.id]);
  await assert.rejects(store.send(toKey("m5", { to: { jobNames: [A_JOB], key: "no" } })), {
    code: "not_found",
    message: `There is no run of job "${A_JOB}" with the key "no"`,
  });
});

test("send() finds the newest retry of the run of a key", async ({ store }) => {
  const { lease, run } = await startRun(store, { idempotencyKey: KEY });
  await fail(store, lease);
  await assert.rejects(store.send(toKey("m1")), { code: "run_ended" });
  const { run: second } = await add(store, { retriggerOf: { runId: run.id, from: "start" } });
  await fail(store, (await claimOne(store)).lease);
  const { run: third } = await add(store, { retriggerOf: { runId: second.id, from: "start" } });

  const outcome = await store.send(toKey("m1"));

  assert.deepEqual(seen(outcome), [third.id, "accepted", null]);
});

test("send() starts a run if no run has the key, with the message as its first", async ({ store }) => {
  const start = aStartedRun({ labels: { org: "acme" } });

  const outcome = await store.send(starting("m1", start));

  assert.deepEqual(seen(outcome), [start.id, "accepted", start.id]);
  assert.deepEqual("run" in outcome && outcome.run, { id: start.id, jobName: A_JOB, labels: { org: "acme" } });
  assert.deepEqual(await inboxOf(store, start.id), [["m1", "unread"]]);
  const claim = await claimOne(store);
  const { pauses } = await receive(store, claim.lease, aReceive());
  assert.deepEqual(takenBy(pauses[0]!), ["m1"]);
});

test("send() starts nothing while a run with the key takes messages", async ({ store }) => {
  const { run } = await add(store, { idempotencyKey: KEY });

  const outcomes = [await store.send(starting("m1")), await store.send(starting("m2"))];

  assert.deepEqual(outcomes.map(seen), [[run.id, "accepted", null], [run.id, "accepted", null]]);
});

test("send() starts a run when the one that has the key has ended, and gives it the key", async ({ store }) => {
  const { lease, run } = await startRun(store, { idempotencyKey: KEY });
  await complete(store, lease);
  const start = aStartedRun();

  const outcome = await store.send(starting("m1", start));
  const next = await store.send(toKey("m2"));

  assert.deepEqual([seen(outcome), seen(next)], [[start.id, "accepted", start.id], [start.id, "accepted", null]]);
  assert.equal((await getRun(store, run.id))!.idempotencyKey, KEY); // it still shows it
});

timed("send() starts a run when the one that has the key has closed its inbox", async ({ store, host }) => {
  const { lease, run } = await startRun(store, { idempotencyKey: KEY });
  await store.send(toKey("m1"));
  const closing = aReceive({ close: "timeout" }, { name: "last", deadline: { afterMs: 100 } });
  await receive(store, lease, aReceive(), closing);
  host.advance(100);
  const start = aStartedRun();

  const outcome = await store.send(starting("m2", start)); // commits the timeout

  assert.deepEqual(seen(outcome), [start.id, "accepted", start.id]);
  assert.deepEqual(await inboxOf(store, run.id), [["m1", "received"]]);
  const { run: found, disposition } = await add(store, { idempotencyKey: KEY, idempotencyUntil: "ended" });
  assert.deepEqual([found.id, disposition], [start.id, "idempotent"]);
});

test("a run that has closed its inbox has its key until it has ended, unless the key ends before", async ({ store }) => {
  const { lease, run } = await startRun(store, { idempotencyKey: KEY });
  await receive(store, lease, aReceive({ close: "timeout" }, { deadline: { afterMs: 0 } }));

  const first = await add(store, { idempotencyKey: KEY });
  const failed = await add(store, { idempotencyKey: KEY, idempotencyUntil: "failed" });
  const ended = await add(store, { idempotencyKey: KEY, idempotencyUntil: "ended" });

  assert.deepEqual([first.run.id, failed.run.id], [run.id, run.id]);
  assert.equal(ended.disposition, "created");
});

test("send() knows a message that is repeated after the end, and starts nothing", async ({ store }) => {
  const { lease, run } = await startRun(store, { idempotencyKey: KEY });
  await store.send(toKey("m1"));
  await complete(store, lease);

  const again = await store.send(starting("m1"));

  assert.deepEqual(seen(again), [run.id, "duplicate", null]);
  await assert.rejects(
    store.send({ ...starting("m1"), message: { ...aMessage("").message, id: "m1", payload: "7" } }),
    {
      code: "conflict",
    },
  );
});

test("send() that is repeated answers with the run that it started", async ({ store }) => {
  const request = starting("m1");

  const first = await store.send(request);
  const again = await store.send(request);

  assert.deepEqual([seen(first), seen(again)], [
    [request.start!.id, "accepted", request.start!.id],
    [request.start!.id, "duplicate", request.start!.id],
  ]);
  assert.equal((await getMessages(store, request.start!.id)).length, 1);
});

test("two calls of send() at once start one run with two messages", async ({ store }) => {
  const outcomes = await Promise.all([store.send(starting("m1")), store.send(starting("m2"))]);

  const ids = new Set(outcomes.map((outcome) => seen(outcome)[0]));
  assert.equal(ids.size, 1);
  assert.equal(outcomes.filter((outcome) => "started" in outcome && outcome.started !== null).length, 1);
  const [id] = ids;
  assert.deepEqual((await inboxOf(store, id!)).map(([message]) => message).sort(), ["m1", "m2"]);
});

test("send() does nothing if another run takes messages than the expected one", async ({ store }) => {
  const none = await store.send({ ...starting("m1"), expect: "other" });
  const { lease, run } = await startRun(store, { idempotencyKey: KEY });
  const other = await store.send({ ...starting("m2"), expect: null });
  const same = await store.send({ ...starting("m3"), expect: run.id });
  await complete(store, lease);
  const ended = await store.send({ ...starting("m4"), expect: run.id });
  const known = await store.send({ ...starting("m3"), expect: "other" });

  const found = { id: run.id, jobName: A_JOB, labels: {} };
  assert.deepEqual([none, other, ended], [
    { changed: true, found: null },
    { changed: true, found },
    { changed: true, found: null },
  ]);
  assert.deepEqual([seen(same), seen(known)], [[run.id, "accepted", null], [run.id, "duplicate", null]]);
  assert.deepEqual(seen(await store.send({ ...starting("m5"), expect: null }))[1], "accepted");
});

test("send() with start tells which run has another message with the id, before it refuses the message", async ({ store }) => {
  const { lease, run } = await startRun(store, { idempotencyKey: KEY });
  await store.send(toKey("m1"));
  await complete(store, lease);
  const other = { ...starting("m1"), message: { ...aMessage("").message, id: "m1", payload: "7" } };

  const changed = await store.send({ ...other, expect: null });

  assert.deepEqual(changed, { changed: true, found: { id: run.id, jobName: A_JOB, labels: {} } });
  await assert.rejects(store.send({ ...other, expect: run.id }), { code: "conflict" });
});

test("send() notes that it has started a run", async ({ store }) => {
  const before = await store.findCursor(null);
  const start = aStartedRun();

  await store.send(starting("m1", start));

  const page = await store.readJournal(before!.position, 100_000);
  assert.deepEqual(page!.rows.flatMap(({ facts }) => facts.map(([, kind]) => kind)), ["triggered"]);
});

function fail(store: Store, lease: Parameters<Store["finish"]>[0]): Promise<void> {
  return store.finish(lease, { status: "failed", failure: aFailure(), failedStepName: null }, []);
}
