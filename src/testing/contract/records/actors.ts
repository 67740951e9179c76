import assert from "node:assert/strict";
import { encodeOrigin, withActor } from "../../../model/origin.ts";
import type { Store } from "../../../store/store.ts";
import { getRun, getWaits } from "../../../store/reads.ts";
import { FactReader, type NamedFact } from "../fact_reader.ts";
import { FAKE_START } from "../../fake_host.ts";
import { aFlow, aPause, aRun } from "../fixtures.ts";
import { add, addCompleted, claimOne, park, startRun } from "../arrange.ts";
import { addHeld } from "../claims/holds/arrange_holds.ts";
import { newCases } from "../case.ts";

const { cases, test } = newCases();

/** What a store promises of those who act. */
export const actorCases = cases;

const TRACE = { traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", tracestate: "a=b c" };
const ODD_NAMES = ["ada", 'O\'Hara "x" \\ ,]', "çà 漢 🙂", "a".repeat(255)];

async function factsOf(store: Store, act: () => Promise<unknown>): Promise<NamedFact[]> {
  const reader = new FactReader(store);
  await reader.skip();
  await act();
  return await reader.read();
}

test("enqueue() keeps who triggered a run, and the trace beside it", async ({ store }) => {
  const origins = [
    encodeOrigin(TRACE, "ada"),
    encodeOrigin(TRACE, null),
    null,
    ...ODD_NAMES.map((by) => encodeOrigin(null, by)),
  ];

  const runs = await store.enqueue(origins.map((trace) => aRun({ trace })));

  const expected = ["ada", null, null, ...ODD_NAMES];
  assert.deepEqual(runs.map(({ run }) => run.triggeredBy), expected);
  for (const [at, { run }] of runs.entries()) {
    assert.equal((await getRun(store, run.id))!.triggeredBy, expected[at]);
    assert.equal((await store.getRunState(run.id))!.trace, origins[at]);
    assert.equal(
      (await store.getTimeline(run.id, { steps: 0, pauses: 0, interruptions: 0 }, 10))!.run.triggeredBy,
      expected[at],
    );
  }
});

test("a trigger that finds a run leaves who triggered that", async ({ store }) => {
  await add(store, { idempotencyKey: "once", trace: encodeOrigin(null, "ada") });

  const { run, disposition } = await add(store, { idempotencyKey: "once", trace: encodeOrigin(null, "eve") });

  assert.deepEqual([run.triggeredBy, disposition], ["ada", "idempotent"]);
});

test("the fact of a trigger says who triggered, beside a start and a schedule", async ({ store }) => {
  const trace = encodeOrigin(null, ODD_NAMES[1]!);
  const at = FAKE_START + 3_600_000;
  const slotAt = new Date(FAKE_START).toISOString();
  const plain = aRun({ trace });
  const delayed = aRun({ trace, flow: aFlow({ start: { at } }) });
  const scheduled = aRun({ trace, schedule: { name: "nightly", slotAt } });

  const facts = await factsOf(store, async () => {
    for (const run of [plain, delayed, scheduled]) await store.enqueue([run]);
  });

  assert.deepEqual(facts, [
    [plain.id, "triggered", null, null, null, ODD_NAMES[1]],
    [delayed.id, "triggered", at, null, null, ODD_NAMES[1]],
    [scheduled.id, "triggered", null, null, { name: "nightly", slotAt }, ODD_NAMES[1]],
  ]);
});

test("a retry keeps who retried, and both facts say so", async ({ store }) => {
  const old = await addCompleted(store, { trace: encodeOrigin(null, "ada") });
  const retry = aRun({ retriggerOf: { runId: old.id, from: "failure" }, trace: encodeOrigin(null, "eve") });

  const facts = await factsOf(store, () => store.enqueue([retry]));

  assert.equal((await getRun(store, retry.id))!.triggeredBy, "eve");
  assert.equal((await getRun(store, old.id))!.triggeredBy, "ada");
  assert.deepEqual(facts, [
    [retry.id, "triggered", null, null, null, "eve"],
    [old.id, "retried", retry.id, "eve"],
  ]);
});

test("signal() keeps who signalled, of the first signal", async ({ store }) => {
  for (const by of [...ODD_NAMES, null]) {
    const { lease } = await startRun(store);
    const review = aPause({ name: "review" });
    await park(store, lease, review);

    const { wait: first } = await store.signal(review.id, { signalId: "s", payload: 1 }, encodeOrigin(TRACE, by));
    const again = await store.signal(review.id, { signalId: "s", payload: 1 }, encodeOrigin(null, "eve"));

    const timeline = await store.getTimeline(lease.runId, { steps: 0, pauses: 0, interruptions: 0 }, 10);
    assert.equal(first.signalledBy, by);
    assert.deepEqual([again.disposition, again.wait.signalledBy], ["duplicate", by]);
    assert.equal((await getWaits(store, lease.runId))[0]!.signalledBy, by);
    assert.equal(timeline!.pauses[0]!.signalledBy, by);
    await store.cancel(lease.runId, "end", null);
  }
});

test("a retry from the failure keeps who signalled a wait of the old run", async ({ store }) => {
  const { lease, run } = await startRun(store);
  const review = aPause({ name: "review" });
  await park(store, lease, review, aPause({ name: "other" }));
  await store.signal(review.id, { signalId: "s", payload: 1 }, encodeOrigin(null, "ada"));
  const again = await claimOne(store);
  const other = again.pauses.find(({ name }) => name === "other")!;
  await store.signal(other.id, { signalId: "t", payload: 1 });
  await store.cancel(run.id, "end", null);

  const retry = await add(store, { retriggerOf: { runId: run.id, from: "failure" } });

  const [copied] = await getWaits(store, retry.run.id);
  assert.deepEqual([copied?.name, copied?.signalledBy], ["review", "ada"]);
});

test("cancel() keeps who cancelled, and a repeated call returns the run", async ({ store }) => {
  const requests = [...ODD_NAMES, null].map((by, at) => ({ by, requestId: withActor(`request-${at}`, by) }));
  for (const { by, requestId } of requests) {
    const { run } = await add(store);

    const facts = await factsOf(store, () => store.cancel(run.id, requestId, null));
    const again = await store.cancel(run.id, requestId, null);
    const other = await store.cancel(run.id, withActor("request-9", by), null);

    const timeline = await store.getTimeline(run.id, { steps: 0, pauses: 0, interruptions: 0 }, 10);
    assert.equal((await getRun(store, run.id))!.cancelledBy, by);
    assert.equal(timeline!.run.cancelledBy, by);
    assert.equal(again?.cancelledBy, by);
    assert.equal(other, null);
    assert.deepEqual(facts, [[run.id, "cancelled", ...(by === null ? [] : [by])]]);
  }
});

test("resumeHeld() and delete() note who acted", async ({ store }) => {
  const held = await addHeld(store);
  const ended = await addCompleted(store, { labels: { org: "acme" } });

  const facts = await factsOf(store, async () => {
    await store.resumeHeld(held, false, "ada");
    await store.delete(ended.id, ODD_NAMES[1]);
  });

  assert.deepEqual(facts.map(([, ...fact]) => fact), [
    ["resumed", "ada"],
    ["deleted", ended.id, ended.jobName, { org: "acme" }, ODD_NAMES[1]],
  ]);
});

test("a schedule keeps who paused it", async ({ store }) => {
  const schedule = {
    name: "nightly",
    jobName: "import-csv",
    options: "{}",
    declared: null,
    pausedAt: FAKE_START,
    pausedBy: "ada",
    nextAt: null,
    lastSlotAt: null,
    lastRunId: null,
    skipped: 0,
    error: null,
  };

  const added = await store.setSchedule(schedule, null);
  const changed = await store.setSchedule({ ...schedule, pausedBy: "eve" }, added!.version);
  const resumed = await store.setSchedule({ ...schedule, pausedAt: null, pausedBy: null }, changed!.version);

  assert.deepEqual([added, changed, resumed].map((one) => one?.pausedBy), ["ada", "eve", null]);
  assert.equal((await store.getSchedules("nightly")).schedules[0]!.pausedBy, null);
});
