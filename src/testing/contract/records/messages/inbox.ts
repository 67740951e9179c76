import assert from "node:assert/strict";
import { aFailure, aPause, aStep } from "../../fixtures.ts";
import { add, claimedIds, claimOne, NO_PAUSE, park, startRun } from "../../arrange.ts";
import { newCases } from "../../case.ts";
import type { Lease } from "../../../../model/lease.ts";
import type { Store } from "../../../../store/store.ts";
import { getMessages } from "../../../../store/reads.ts";
import { aMessage, aReceive, inboxOf, receive, send, takenBy } from "./arrange_messages.ts";

const { cases, test, timed } = newCases();

/** What a store promises of inboxes that are closed, and of those of retries. */
export const inboxCases = cases;

timed(
  "the timeout of a closing receive closes the inbox in its commit, whichever call finds it",
  async ({ store, host }) => {
    for (const close of ["timeout", "always"] as const) {
      const { lease, run } = await startRun(store);
      await park(store, lease, aReceive({ close }, { deadline: { afterMs: 100 } }));
      host.advance(100);

      await assert.rejects(store.send(aMessage(run.id)), {
        code: "run_ended",
        message: `Cannot send to run "${run.id}": it has closed its inbox`,
      });
      host.advance(-3_600_000); // the refusal has committed the timeout
      await assert.rejects(store.send(aMessage(run.id)), { code: "run_ended" });

      host.advance(3_600_000);
      assert.deepEqual(await inboxOf(store, run.id), []);
      const { pauses: [next] } = await claimOne(store);
      assert.equal(next!.resolution?.outcome, "timeout");
    }
  },
);

timed("a message strictly before the deadline keeps the inbox open", async ({ store, host }) => {
  const { lease, run } = await startRun(store);
  await park(store, lease, aReceive({ close: "timeout" }, { deadline: { afterMs: 100 } }));
  host.advance(99);

  await send(store, run.id, "m1");
  host.advance(1);
  await send(store, run.id, "m2");

  assert.deepEqual(await inboxOf(store, run.id), [["m1", "received"], ["m2", "unread"]]);
});

test("getJobs() counts the unread messages of runs that have not ended", async ({ store }) => {
  const { lease, run } = await startRun(store);
  const { run: other } = await add(store, { jobName: "other", version: 2 });
  const { run: ended } = await add(store);
  const before = await store.getJobs([]);
  await send(store, run.id, "m1", "m2", "m3");
  await send(store, other.id, "m4");
  await send(store, ended.id, "m5");
  await receive(store, lease, aReceive());
  await store.cancel(ended.id, "request", null);

  const { jobs } = await store.getJobs([]);

  assert.deepEqual(before.jobs.map(({ unread }) => unread), [0, 0]);
  assert.deepEqual(Object.fromEntries(jobs.map(({ jobName, unread }) => [jobName, unread])), {
    [run.jobName]: 2,
    other: 1,
  });
});

test('`close: "always"` closes the inbox when it takes the last unread message of the run', async ({ store }) => {
  const { lease, run } = await startRun(store);
  await send(store, run.id, "m1", "m2");
  await store.send(aMessage(run.id, { id: "o1", name: "other" }));

  const rest = (name: string, names = ["text"]) => aReceive({ names, max: 1, close: "always" }, { name });
  await receive(store, lease, rest("one"));
  await receive(store, lease, rest("two"));
  await send(store, run.id, "m3"); // "other" is unread: it is open
  await receive(store, lease, rest("three"));
  await receive(store, lease, rest("four", ["other"]));

  await assert.rejects(store.send(aMessage(run.id)), { code: "run_ended" });
  assert.deepEqual((await inboxOf(store, run.id)).map(([, status]) => status), Array(4).fill("received"));
});

test("a receive after the inbox was closed takes what is unread, or is a timeout at once", async ({ store }) => {
  const { lease, run } = await startRun(store);
  await store.send(aMessage(run.id, { id: "o1", name: "other" }));
  await receive(store, lease, aReceive({ close: "timeout" }, { name: "last", deadline: { afterMs: 0 } }));

  const other = (name: string) => aReceive({ names: ["other"] }, { name });
  const { pauses, parked } = await store.pause(lease, { ...NO_PAUSE, pauses: [other("a"), other("b")], park: true });

  assert.deepEqual(pauses.map(takenBy), [["o1"], "timeout"]);
  assert.equal(parked, false);
  await assert.rejects(store.send(aMessage(run.id)), { code: "run_ended" });
});

timed("closing the inbox ends the other open receives of the run, and wakes it", async ({ store, host }) => {
  const { lease, run } = await startRun(store);
  const closing = aReceive({ close: "timeout" }, { name: "one", deadline: { afterMs: 100 } });
  await receive(store, lease, closing);
  await park(store, lease, aReceive({ names: ["other"] }, { name: "two" }));
  const before = await claimedIds(store);
  host.advance(100);

  await assert.rejects(store.send(aMessage(run.id)), { code: "run_ended" });

  const { pauses } = await claimOne(store);
  assert.deepEqual(before, []);
  assert.deepEqual(pauses.map(takenBy), ["timeout", "timeout"]);
  assert.deepEqual(pauses.map(({ resolution }) => resolution?.recordedNo), [1, 2]);
});

test("a message that ends a receive can close the inbox, and end the others", async ({ store }) => {
  const { lease, run } = await startRun(store);
  await park(
    store,
    lease,
    aReceive({ close: "always" }, { name: "one" }),
    aReceive({ names: ["other"] }, { name: "two" }),
  );

  await send(store, run.id, "m1");

  const { pauses } = await claimOne(store);
  assert.deepEqual(pauses.map(takenBy), [["m1"], "timeout"]);
  await assert.rejects(store.send(aMessage(run.id)), { code: "run_ended" });
});

for (const from of ["failure", "start"] as const) {
  test(`enqueue() gives a retry from the ${from} the messages of the old run in their order`, async ({ store }) => {
    const { lease, run } = await startRun(store);
    await send(store, run.id, "m1", "m2", "m3", "m4");
    await receive(store, lease, aReceive({ max: 2 }, { name: "a" }));
    await store.saveStep(lease, aStep(), []);
    await receive(store, lease, aReceive({}, { name: "b" })); // the last record: it is copied, too
    await fail(store, lease);

    const { run: retry } = await add(store, { retriggerOf: { runId: run.id, from } });

    const taken = from === "failure" ? "received" : "unread";
    assert.deepEqual(await inboxOf(store, retry.id), [["m1", taken], ["m2", taken], ["m3", taken], ["m4", "unread"]]);
    const old = await getMessages(store, run.id);
    const copies = await getMessages(store, retry.id);
    assert.deepEqual(
      copies.map(({ id, acceptedAt, payload }) => [id, acceptedAt, payload]),
      old.map(({ id, acceptedAt, payload }) => [id, acceptedAt, payload]),
    );
    const claim = await claimOne(store);
    assert.deepEqual(claim.pauses.map(takenBy), from === "failure" ? [["m1", "m2"], ["m3"]] : []);
    const { pauses: [next] } = await receive(store, claim.lease, aReceive({ max: 9 }, { name: "c" }));
    assert.deepEqual(takenBy(next!), from === "failure" ? ["m4"] : ["m1", "m2", "m3", "m4"]);
  });
}

test("a retry takes its own messages, and knows the ids of the old run", async ({ store }) => {
  const { lease, run } = await startRun(store);
  await send(store, run.id, "m1");
  await fail(store, lease);
  const { run: retry } = await add(store, { retriggerOf: { runId: run.id, from: "failure" } });

  const outcomes = await send(store, retry.id, "m1", "m2");

  assert.deepEqual(outcomes.map((outcome) => "run" in outcome && outcome.disposition), ["duplicate", "accepted"]);
  assert.deepEqual(await inboxOf(store, retry.id), [["m1", "unread"], ["m2", "unread"]]);
  assert.deepEqual(await inboxOf(store, run.id), [["m1", "closed"]]);
});

test("a retry of a retry has the messages of both", async ({ store }) => {
  const { lease, run } = await startRun(store);
  await send(store, run.id, "m1");
  await receive(store, lease, aReceive());
  await fail(store, lease);
  const { run: second } = await add(store, { retriggerOf: { runId: run.id, from: "failure" } });
  await send(store, second.id, "m2");
  await fail(store, (await claimOne(store)).lease);

  const { run: third } = await add(store, { retriggerOf: { runId: second.id, from: "failure" } });

  assert.deepEqual(await inboxOf(store, third.id), [["m1", "received"], ["m2", "unread"]]);
});

test("a retry from the failure has the closed inbox of the old run, one from the start an open one", async ({ store }) => {
  const { lease, run } = await startRun(store);
  await receive(store, lease, aReceive({ close: "timeout" }, { deadline: { afterMs: 0 } }));
  await fail(store, lease);

  const { run: copied } = await add(store, { retriggerOf: { runId: run.id, from: "failure" } });
  await assert.rejects(store.send(aMessage(copied.id)), { code: "run_ended" });
  await fail(store, (await claimOne(store)).lease);
  const { run: anew } = await add(store, { retriggerOf: { runId: copied.id, from: "start" } });

  assert.deepEqual(await send(store, anew.id, "m1").then((sent) => sent.length), 1);
});

test("an open receive is not copied to a retry, and counts among what was begun", async ({ store }) => {
  const { lease, run } = await startRun(store);
  await receive(store, lease, aReceive(), aPause());
  await fail(store, lease);

  await add(store, { retriggerOf: { runId: run.id, from: "failure" } });

  const claim = await claimOne(store);
  assert.deepEqual(claim.pauses, []);
  assert.deepEqual(claim.copied?.unfinished.map(({ kind, name }) => `${kind} ${name}`).sort(), [
    "receive next",
    "wait review",
  ]);
});

function fail(store: Store, lease: Lease): Promise<void> {
  return store.finish(lease, { status: "failed", failure: aFailure(), failedStepName: null }, []);
}
