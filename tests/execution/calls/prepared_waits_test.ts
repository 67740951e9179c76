import assert from "node:assert/strict";
import type { Engine } from "../../../src/engine/engine.ts";
import { isoTime } from "../../../src/values/iso_time.ts";
import type { Wait } from "../../../src/model/wait.ts";
import { FAKE_START, FakeHost } from "../../support/fake_host.ts";
import {
  claimOne,
  forEachStore,
  LEASE_MS,
  nextEvent,
  pass,
  recordEvents,
} from "../../support/stores/for_each_store.ts";
import { createEngine } from "../../support/quiet_engine.ts";
import { aGate, aJob } from "../../support/jobs.ts";
import { outputOf, signal, waitings, waitNamed } from "../../support/pauses.ts";

forEachStore("prepareWait() answers a wait that can be handed out, without pausing", async ({ store, host }) => {
  let prepared: Wait | undefined;
  const gate = aGate();
  const job = aJob(async (step) => {
    prepared = await step.prepareWait("review", { timeout: 60_000, metadata: { document: 7 } });
    await step.run("send", gate.work);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);

  const idle = engine.runUntilIdle();
  await gate.reached;
  const stored = await engine.getWait(prepared!.id);
  gate.open();
  await idle;

  assert.deepEqual(prepared, {
    id: prepared!.id,
    runId: id,
    name: "review",
    metadata: { document: 7 },
    status: "pending",
    outcome: null,
    payload: null,
    signalId: null,
    signalledBy: null,
    createdAt: isoTime(FAKE_START),
    deadlineAt: isoTime(FAKE_START + 60_000),
    suspendedAt: null,
    resolvedAt: null,
    firstResumedAt: null,
  });
  assert.deepEqual(stored, prepared);
  assert.deepEqual(waitings(events), []);
});

forEachStore("prepareWait() answers the same wait on a replay, with its first deadline", async ({ store, host }) => {
  const seen: Wait[] = [];
  const job = aJob(async (step) => {
    seen.push(await step.prepareWait("review", { timeout: 60_000, metadata: { try: seen.length } }));
    await step.sleep("nap", 5_000);
    await step.sleep("another nap", 5_000);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();
  host.advance(5_000);
  await signal(engine, id, "review", "early");
  await engine.runUntilIdle();
  host.advance(5_000);
  await engine.runUntilIdle();

  assert.equal(seen.length, 3);
  assert.equal(seen[0]!.deadlineAt, isoTime(FAKE_START + 60_000));
  assert.deepEqual(seen[1], seen[0]);
  assert.deepEqual(seen[2], seen[0]);
});

forEachStore("prepareWait() has its place among the results, the first time as on a replay", async (context) => {
  const { store, host } = context;
  const orders: string[][] = [];
  const job = aJob(async (step) => {
    const order: string[] = [];
    orders.push(order);
    await Promise.all([
      step.run("first", () => 1).then(() => step.prepareWait("review")).then(() => order.push("review")),
      step.run("second", () => 2).then(() => order.push("second")),
    ]);
    await step.sleep("end", 1_000);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  await engine.trigger(job, null);
  await engine.runUntilIdle();
  host.advance(1_000);

  await engine.runUntilIdle();

  assert.deepEqual(orders, [["second", "review"], ["second", "review"]]);
});

forEachStore("waitFor() does not pause when the signal came before", async ({ store, host }) => {
  const gate = aGate();
  const job = aJob(async (step) => {
    const wait = await step.prepareWait("review", { timeout: 60_000 });
    await step.run("send", gate.work);
    return await step.waitFor(wait);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);

  const idle = engine.runUntilIdle();
  await gate.reached;
  await signal(engine, id, "review", "early");
  gate.open();
  const { executed } = await idle;

  assert.equal(executed, 1);
  assert.partialDeepStrictEqual(await outputOf(engine, id), { outcome: "signal", payload: "early" });
  assert.deepEqual(waitings(events), []);
  const { suspendedAt, resolvedAt, firstResumedAt } = await waitNamed(engine, id, "review");
  assert.deepEqual([suspendedAt, resolvedAt, firstResumedAt], [null, isoTime(FAKE_START), null]);
});

forEachStore("waitFor() does not pause when the deadline passed before", async ({ store, host }) => {
  const job = aJob(async (step) => {
    const wait = await step.prepareWait("review", { timeout: 1_000 });
    await step.run("slow", () => host.advance(1_000));
    return await step.waitFor(wait);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();

  assert.deepEqual(await outputOf(engine, id), { outcome: "timeout" });
  assert.deepEqual(waitings(events), []);
});

forEachStore("waitFor() answers the same however often it is asked", async ({ store, host }) => {
  const job = aJob(async (step) => {
    const wait = await step.prepareWait("review");
    const together = await Promise.all([step.waitFor(wait), step.waitFor({ id: wait.id })]);
    return [...together, await step.waitFor(wait)];
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();
  await signal(engine, id, "review", 7);
  await engine.runUntilIdle();

  const result = { outcome: "signal", payload: 7, signalId: "signal of review" };
  assert.deepEqual(await outputOf(engine, id), [result, result, result]);
  assert.equal(waitings(events).length, 1);
});

forEachStore("waitFor() answers again though new code passes over what came before", async ({ store, host }) => {
  const old = aJob(async (step) => {
    await step.run("gone", () => 1);
    await step.sleep("nap", 1_000);
  });
  const renewed = aJob(async (step): Promise<unknown> => {
    const wait = await step.prepareWait("review");
    await step.run("answer", async () => void await second.signal(wait.id, { signalId: "s", payload: 7 }));
    return [await step.waitFor(wait), await step.waitFor(wait)];
  });
  await using first = createEngine({ onDivergence: "continue", store, host, jobs: { old } });
  const { id } = await first.trigger(old, null);
  await first.runUntilIdle();
  host.advance(1_000);
  await using second: Engine = createEngine({ onDivergence: "continue", store, host, jobs: { renewed } });

  await second.runUntilIdle();

  const result = { outcome: "signal", payload: 7, signalId: "s" };
  assert.deepEqual(await outputOf(second, id), [result, result]);
});

forEachStore("waitFor() refuses a wait that the run does not have", async ({ store, host }) => {
  const owner = aJob((step) => step.prepareWait("review"), "owner");
  const other = aJob(async (step, foreign) => {
    for (const id of [foreign as string, "nonsense", ""]) {
      await assert.rejects(step.waitFor({ id }), { name: "TypeError", message: /has no wait/ });
    }
    for (const odd of [undefined, foreign, {}]) {
      await assert.rejects(async () => await step.waitFor(odd as never), {
        name: "TypeError",
        message: /step\.waitFor\(\) needs a wait/,
      });
    }
  }, "other");
  await using engine = createEngine({ store, host, jobs: { owner, other } });
  const { id: ownerId } = await engine.trigger(owner, null);
  await engine.runUntilIdle();
  const [wait] = await engine.getWaits(ownerId);

  const { id } = await engine.trigger(other, wait!.id);
  await engine.runUntilIdle();

  await outputOf(engine, id);
});

forEachStore(
  "prepareWait() that is refused never settles in the job, so that nothing can swallow it",
  async (context) => {
    const { store, host } = context;
    const gate = Promise.withResolvers<void>();
    const reached = Promise.withResolvers<AbortSignal>();
    let isSettled = false;
    const job = aJob(async (step) => {
      reached.resolve(step.abortSignal);
      await gate.promise;
      await step.prepareWait("review").catch(() => {}).finally(() => isSettled = true);
    });
    await using stale = createEngine({ store, host: new FakeHost(), jobs: { job } });
    await stale.trigger(job, null);
    const idle = stale.runUntilIdle();
    const abortSignal = await reached.promise;
    await host.settle(); // until the other process does nothing more
    host.advance(LEASE_MS);
    await claimOne(store, "job");

    gate.resolve();
    await idle;

    assert.equal(isSettled, false);
    assert.equal(abortSignal.reason.name, "LeaseLostError");
  },
);

forEachStore("a job that returns at once makes no pause that nobody awaited", async ({ store, host }) => {
  const job = aJob((step) => {
    step.wait("review");
    step.sleep("nap", 1_000);
    return "done";
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();

  assert.equal(await outputOf(engine, id), "done");
  assert.deepEqual(await engine.getWaits(id), []);
});

forEachStore("prepareWait() that nobody waits for is closed when the run ends", async ({ store, host }) => {
  const job = aJob(async (step) => {
    await step.prepareWait("unused", { timeout: 60_000 });
    await step.prepareWait("passed", { timeout: 1_000 });
    await step.run("slow", () => host.advance(1_000));
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();

  const waits = (await engine.getWaits(id)).map(({ name, status, outcome }) => [name, status, outcome]);
  assert.deepEqual(waits, [["unused", "closed", null], ["passed", "resolved", "timeout"]]);
});

forEachStore("getWaits() lists waits in the order in which they were prepared", async ({ store, host }) => {
  const job = aJob(async (step) => {
    await step.prepareWait("zebra");
    await step.sleep("nap", 1_000);
    await step.prepareWait("ant");
    await Promise.all([step.wait("mouse"), step.wait("bee")]);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();
  host.advance(1_000);
  await engine.runUntilIdle();

  assert.deepEqual((await engine.getWaits(id)).map(({ name }) => name), ["zebra", "ant", "mouse", "bee"]);
});

forEachStore("getWaits() and getWait() tell the time of the signal and of the slot apart", async (context) => {
  const { store, host } = context;
  const gate = aGate();
  const waiting = aJob((step) => step.wait("review", { timeout: 60_000, metadata: { page: 1 } }), "waiting");
  const busy = aJob((step) => step.run("busy", gate.work), "busy");
  await using engine = createEngine({ store, host, jobs: { waiting, busy }, worker: { concurrency: 1 } });
  const { id } = await engine.trigger(waiting, null);
  await engine.start();
  await nextEvent(engine, "run:waiting");
  await engine.trigger(busy, null);
  await gate.reached;

  await pass(host, 2_000);
  const { wait: signalled } = await signal(engine, id, "review", "yes");
  await pass(host, 3_000);
  const before = await waitNamed(engine, id, "review");
  gate.open();
  await engine.waitForRun(id);

  const expected: Wait = {
    id: signalled.id,
    runId: id,
    name: "review",
    metadata: { page: 1 },
    status: "resolved",
    outcome: "signal",
    payload: "yes",
    signalId: "signal of review",
    signalledBy: null,
    createdAt: isoTime(FAKE_START),
    deadlineAt: isoTime(FAKE_START + 60_000),
    suspendedAt: isoTime(FAKE_START),
    resolvedAt: isoTime(FAKE_START + 2_000),
    firstResumedAt: null,
  };
  assert.deepEqual(signalled, expected);
  assert.deepEqual(before, expected);
  const after = { ...expected, firstResumedAt: isoTime(FAKE_START + 5_000) };
  assert.deepEqual(await waitNamed(engine, id, "review"), after);
  assert.deepEqual(await engine.getWait(signalled.id), after);
});

forEachStore("getWait() is null for a wait that there is not, and for a sleep", async ({ store, host }) => {
  const job = aJob((step) => step.sleep("nap", 1_000));
  await using engine = createEngine({ store, host, jobs: { job } });
  await engine.trigger(job, null);
  await engine.runUntilIdle();

  assert.equal(await engine.getWait("nonsense"), null);
  await assert.rejects(engine.getWaits("nonsense"), { name: "NotFoundError" });
});

forEachStore("waitFor() answers both who wait for one wait, on a replay too", async ({ store, host }) => {
  const job = aJob(async (step) => {
    const wait = await step.prepareWait("review");
    const all = await Promise.all([step.run("a", () => 1), step.waitFor(wait), step.waitFor(wait)]);
    await step.sleep("end", 1_000);
    return all.map((one) => typeof one);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();
  await engine.signal((await engine.getWaits(id))[0]!.id, { signalId: "s", payload: null });
  await engine.runUntilIdle();
  host.advance(1_000);

  await engine.runUntilIdle();

  assert.deepEqual((await engine.getRun(id))!.output, ["number", "object", "object"]);
});
