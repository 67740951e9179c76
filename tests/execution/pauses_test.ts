import type { Schema } from "../../src/schema.ts";
import assert from "node:assert/strict";
import { z } from "zod";
import type { Engine } from "../../src/engine/engine.ts";
import { ValidationError } from "../../src/error.ts";
import type { EngineEvent, EventOf } from "../../src/event.ts";
import { systemHost } from "../../src/host.ts";
import { defineJob, type Job, type StepContext, type WaitForSignalOptions } from "../../src/job.ts";
import type { Store } from "../../src/store.ts";
import { isoTime } from "../../src/time.ts";
import type { Wait } from "../../src/wait.ts";
import { FAKE_START, FakeHost } from "../support/fake_host.ts";
import {
  anything,
  claimOne,
  forEachStore,
  forever,
  LEASE_MS,
  nextEvent,
  pass,
  recordEvents,
} from "../support/for_each_store.ts";
import { createEngine } from "../support/quiet_engine.ts";
import { aGate, aJob } from "../support/jobs.ts";

type Body = (step: StepContext, input: unknown) => unknown;

const DAY_MS = 86_400_000;

function waitings(events: readonly EngineEvent[]): EventOf<"run:waiting">[] {
  return events.filter((event) => event.type === "run:waiting");
}

async function waitNamed(engine: Engine, runId: string, name: string): Promise<Wait> {
  const wait = (await engine.getWaits(runId)).find((wait) => wait.name === name);
  assert.ok(wait, `there is no wait "${name}"`);
  return wait;
}

async function signal(engine: Engine, runId: string, name: string, payload: string | number | null = null) {
  const { id } = await waitNamed(engine, runId, name);
  return await engine.signal(id, { signalId: `signal of ${name}`, payload });
}

async function outputOf(engine: Engine, runId: string): Promise<unknown> {
  const run = (await engine.getRun(runId))!;
  assert.equal(run.status, "completed", run.error ?? "");
  return run.output;
}

/** Takes up runs in a process that never hears of time again: it is dead as soon as nobody helps it. */
function workElsewhere(store: Store, job: Job<unknown>): void {
  createEngine({ store, host: new FakeHost(), jobs: { job } }).runUntilIdle().catch(() => {});
}

forEachStore("sleep() parks the run, and lets it go on at its time and not before", async ({ store, host }) => {
  const job = aJob(async (step) => {
    await step.sleep("nap", 60_000);
    return host.now() - FAKE_START;
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();
  const parked = (await engine.getRun(id))!;
  host.advance(59_999);
  const early = await engine.runUntilIdle();
  host.advance(1);
  const due = await engine.runUntilIdle();

  assert.equal(parked.status, "waiting");
  assert.deepEqual([parked.leaseOwner, parked.leaseExpiresAt], [null, null]);
  assert.deepEqual([early.executed, due.executed], [0, 1]);
  assert.equal(await outputOf(engine, id), 60_000);
  const types = events.map(({ type }) => type);
  assert.deepEqual(types, [
    "run:trigger",
    "run:leased",
    "run:start",
    "run:waiting",
    "run:leased",
    "run:start",
    "run:complete",
  ]);
  assert.partialDeepStrictEqual(waitings(events), [{
    waitId: null,
    waitName: "nap",
    deadlineAt: isoTime(FAKE_START + 60_000),
  }]);
});

forEachStore("sleep() is no wait", async ({ store, host }) => {
  const job = aJob((step) => step.sleep("nap", 60_000));
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();

  assert.deepEqual(await engine.getWaits(id), []);
  const pauses = (await store.getRunState(id))!.pauses;
  assert.deepEqual(pauses, [{ waitId: null, name: "nap", deadlineAt: isoTime(FAKE_START + 60_000) }]);
});

forEachStore("sleepUntil() pauses until an instant, given as a date or as text", async ({ store, host }) => {
  const seen: number[] = [];
  const job = aJob(async (step) => {
    await step.sleepUntil("date", new Date(FAKE_START + 5_000));
    seen.push(host.now() - FAKE_START);
    await step.sleepUntil("text", "2040-01-01T00:00:09.000Z");
    seen.push(host.now() - FAKE_START);
    await step.sleepUntil("offset", "2040-01-01T01:00:12+01:00");
    seen.push(host.now() - FAKE_START);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  for (const ms of [0, 4_999, 1, 4_000, 3_000]) {
    host.advance(ms);
    await engine.runUntilIdle();
  }

  assert.equal((await engine.getRun(id))!.status, "completed");
  assert.deepEqual(seen.filter((ms, index) => seen.indexOf(ms) === index), [5_000, 9_000, 12_000]);
});

forEachStore("sleep() and sleepUntil() are over at once when their end lies in the past", async ({ store, host }) => {
  const job = aJob(async (step) => {
    await step.sleep("zero", 0);
    await step.sleep("negative", -60_000);
    await step.sleepUntil("past", new Date(0));
    await step.sleepUntil("now", new Date(FAKE_START));
    return step.execution;
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);

  const { executed } = await engine.runUntilIdle();

  assert.equal(await outputOf(engine, id), 1);
  assert.equal(executed, 1);
  assert.deepEqual(waitings(events), []);
});

forEachStore("sleep() of part of a millisecond is never early", async ({ store, host }) => {
  const job = aJob((step) => step.sleep("nap", 1_000.25));
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();
  host.advance(1_000);
  const early = await engine.runUntilIdle();
  host.advance(1);
  await engine.runUntilIdle();

  assert.equal(early.executed, 0);
  assert.equal((await engine.getRun(id))!.status, "completed");
});

forEachStore("sleep() and wait() refuse an end that is no date", async ({ store, host }) => {
  const job = aJob(async (step) => {
    for (const ms of [NaN, Infinity, -Infinity, 1e300]) {
      await assert.rejects(step.sleep("nap", ms), RangeError, `sleep of ${ms}`);
      await assert.rejects(step.wait("review", { timeout: ms }), RangeError, `timeout of ${ms}`);
      await assert.rejects(step.prepareWait("review", { timeout: ms }), RangeError, `timeout of ${ms}`);
    }
    for (const date of [new Date(NaN), "tomorrow", ""]) {
      await assert.rejects(step.sleepUntil("nap", date), RangeError, `until ${date}`);
      await assert.rejects(step.wait("review", { deadline: date }), RangeError, `until ${date}`);
      await assert.rejects(step.prepareWait("review", { deadline: date }), RangeError, `until ${date}`);
    }
    // A refused use of a name is none.
    return (await step.prepareWait("review")).name;
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();

  assert.equal(await outputOf(engine, id), "review");
});

forEachStore("wait() refuses a timeout beside a deadline", async ({ store, host }) => {
  const both: WaitForSignalOptions = { timeout: 1_000, deadline: new Date(FAKE_START + 1_000) };
  const job = aJob(async (step) => {
    await assert.rejects(step.wait("review", both), { name: "TypeError", message: /"review".*timeout.*deadline/ });
    await assert.rejects(step.prepareWait("review", both), TypeError);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();

  await outputOf(engine, id);
  assert.deepEqual(await engine.getWaits(id), []);
});

forEachStore("wait() parks the run, and goes on with the signal that ends it", async ({ store, host }) => {
  const job = aJob((step) => step.wait("review", { timeout: 60_000 }));
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();
  const parked = (await engine.getRun(id))!;
  const { id: waitId } = await waitNamed(engine, id, "review");
  await engine.signal(waitId, { signalId: "s1", payload: { ok: true } });
  const signalled = (await engine.getRun(id))!;
  await engine.runUntilIdle();

  assert.equal(parked.status, "waiting");
  assert.equal(signalled.status, "waiting");
  assert.deepEqual([parked.leaseOwner, parked.leaseExpiresAt], [null, null]);
  assert.deepEqual(await outputOf(engine, id), { outcome: "signal", payload: { ok: true }, signalId: "s1" });
  assert.partialDeepStrictEqual(waitings(events), [{
    waitId,
    waitName: "review",
    deadlineAt: isoTime(FAKE_START + 60_000),
  }]);
});

forEachStore("wait() ends by its deadline when no signal comes", async ({ store, host }) => {
  const job = aJob((step) => step.wait("review", { timeout: 60_000 }));
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  host.advance(59_999);
  const early = await engine.runUntilIdle();
  host.advance(1);
  await engine.runUntilIdle();

  assert.equal(early.executed, 0);
  assert.deepEqual(await outputOf(engine, id), { outcome: "timeout" });
});

forEachStore("wait() without a deadline waits as long as it takes", async ({ store, host }) => {
  const job = aJob((step) => step.wait("review"));
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  host.advance(100 * 365 * DAY_MS);
  const { executed } = await engine.runUntilIdle();
  const { deadlineAt } = await waitNamed(engine, id, "review");
  await signal(engine, id, "review", "at last");
  await engine.runUntilIdle();

  assert.equal(executed, 0);
  assert.equal(deadlineAt, null);
  assert.partialDeepStrictEqual(await outputOf(engine, id), { outcome: "signal", payload: "at last" });
});

forEachStore("resuming from a pause is no interruption", async ({ store, host }) => {
  const executions: number[] = [];
  const job = aJob(async (step) => {
    executions.push(step.execution);
    await step.sleep("nap", 1_000);
    await step.wait("review", { timeout: 1_000 });
    await step.run("flaky", ({ attempt }) => {
      if (attempt === 1) throw new Error("not now");
    }, { retry: { maxAttempts: 2, delay: 5_000 } });
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);

  for (const ms of [0, 1_000, 1_000, 5_000]) {
    host.advance(ms);
    await engine.runUntilIdle();
  }

  await outputOf(engine, id);
  assert.deepEqual(executions, [1, 1, 1, 1]);
  const told = events.filter((event) => event.type === "run:start").map(({ execution }) => execution);
  assert.deepEqual(told, [1, 1, 1, 1]);
});

for (const pause of ["sleep", "wait"] as const) {
  forEachStore(`${pause}() holds no slot: another run goes on`, async ({ store, host }) => {
    const pausing = aJob<unknown>(
      (step) => pause === "sleep" ? step.sleep("nap", 1_000) : step.wait("review"),
      "pausing",
    );
    const other = aJob(() => "done", "other");
    await using engine = createEngine({ store, host, jobs: { pausing, other }, worker: { concurrency: 1 } });
    const first = await engine.trigger(pausing, null);
    const second = await engine.trigger(other, null);

    const { executed } = await engine.runUntilIdle();

    assert.equal(executed, 2);
    assert.equal((await engine.getRun(first.id))!.status, "waiting");
    assert.equal(await outputOf(engine, second.id), "done");
  });
}

forEachStore("a pause keeps nothing in memory: no lease, no timer", async ({ store }) => {
  const host = new FakeHost();
  let timers = 0;
  const schedule = host.schedule.bind(host);
  host.schedule = (ms, callback) => {
    timers += 1;
    const cancel = schedule(ms, () => {
      timers -= 1;
      callback();
    });
    let isCancelled = false;
    return () => {
      if (!isCancelled) timers -= 1;
      isCancelled = true;
      cancel();
    };
  };
  const job = aJob((step) => Promise.all([step.wait("review", { timeout: 60_000 }), step.sleep("nap", 1_000)]));
  await using engine = createEngine({ store, host, jobs: { job } });
  await engine.trigger(job, null);

  await engine.runUntilIdle();

  assert.equal(timers, 0);
  assert.deepEqual(await store.getLeases(), []);
});

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
  await using first = createEngine({ store, host, jobs: { old } });
  const { id } = await first.trigger(old, null);
  await first.runUntilIdle();
  host.advance(1_000);
  await using second: Engine = createEngine({ store, host, jobs: { renewed } });

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
  }, "other");
  await using engine = createEngine({ store, host, jobs: { owner, other } });
  const { id: ownerId } = await engine.trigger(owner, null);
  await engine.runUntilIdle();
  const [wait] = await engine.getWaits(ownerId);

  const { id } = await engine.trigger(other, wait!.id);
  await engine.runUntilIdle();

  await outputOf(engine, id);
});

forEachStore("a pause cannot begin inside the function of a step", async ({ store, host }) => {
  const job = aJob((step) =>
    step.run("outer", async () => {
      const wait = { id: "w" };
      await assert.rejects(step.sleep("nap", 1), { name: "TypeError", message: /"outer"/ });
      await assert.rejects(step.sleepUntil("nap", new Date()), TypeError);
      await assert.rejects(step.wait("review"), TypeError);
      await assert.rejects(step.prepareWait("review"), TypeError);
      await assert.rejects(step.waitFor(wait), TypeError);
    })
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();

  await outputOf(engine, id);
});

forEachStore("parallel pauses park together and announce themselves each", async ({ store, host }) => {
  const job = aJob((step) =>
    Promise.all([
      step.wait("left", { timeout: 60_000 }),
      step.sleep("nap", 30_000),
      step.wait("right"),
    ])
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);

  const { executed } = await engine.runUntilIdle();

  assert.equal(executed, 1);
  const [left, right] = await engine.getWaits(id);
  assert.deepEqual(waitings(events).map(({ waitId, waitName, deadlineAt }) => [waitId, waitName, deadlineAt]), [
    [left!.id, "left", isoTime(FAKE_START + 60_000)],
    [null, "nap", isoTime(FAKE_START + 30_000)],
    [right!.id, "right", null],
  ]);
  const suspended = [left, right].map((wait) => wait!.suspendedAt);
  assert.deepEqual(suspended, [isoTime(FAKE_START), isoTime(FAKE_START)]);
});

forEachStore(
  "the first of parallel pauses to resolve resumes the run, the others stay as they are",
  async (context) => {
    const { store, host } = context;
    const order: string[][] = [];
    const job = aJob(async (step) => {
      const settled: string[] = [];
      order.push(settled);
      await Promise.all([
        step.wait("late", { timeout: 60_000 }).then(() => settled.push("late")),
        step.wait("soon", { timeout: 90_000 }).then(() => settled.push("soon")),
        step.sleep("nap", 30_000).then(() => settled.push("nap")),
      ]);
    });
    await using engine = createEngine({ store, host, jobs: { job } });
    const { id } = await engine.trigger(job, null);
    await engine.runUntilIdle();
    const before = await engine.getWaits(id);

    host.advance(10_000);
    await signal(engine, id, "soon");
    await engine.runUntilIdle();
    const after = await engine.getWaits(id);
    host.advance(20_000);
    await engine.runUntilIdle();
    host.advance(30_000);
    await engine.runUntilIdle();

    await outputOf(engine, id);
    const kept = (waits: Wait[]) => waits.map(({ id, name, deadlineAt }) => [id, name, deadlineAt]);
    assert.deepEqual(kept(after), kept(before));
    assert.deepEqual(kept(await engine.getWaits(id)), kept(before));
    assert.deepEqual(after[0], before[0]);
    assert.deepEqual(order, [[], ["soon"], ["soon", "nap"], ["soon", "nap", "late"]]);
  },
);

forEachStore("a branch goes on after its pause though another branch still waits", async ({ store, host }) => {
  const job = aJob((step) =>
    Promise.all([
      step.run("first", () => 1).then(() => step.run("second", () => 2)),
      step.wait("early").then(() => step.run("after early", () => "done")),
      step.wait("late"),
    ])
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  await signal(engine, id, "early");
  await engine.runUntilIdle();

  // On the replay the signal is asked for before "second", which was recorded before it: it has to wait its turn.
  const steps = (await engine.getSteps(id)).map(({ name }) => name);
  assert.deepEqual(steps, ["first", "second", "after early"]);
});

forEachStore("a branch goes on after its pause though new code passes over what came before", async (context) => {
  const { store, host } = context;
  const old = aJob(async (step) => {
    await step.run("gone", () => 1);
    await Promise.all([step.wait("late"), step.wait("early")]);
  });
  const renewed = aJob((step) =>
    Promise.all([step.wait("late"), step.wait("early").then(() => step.run("after early", () => "done"))])
  );
  await using first = createEngine({ store, host, jobs: { old } });
  const { id } = await first.trigger(old, null);
  await first.runUntilIdle();
  await signal(first, id, "early");
  await first.stop();
  await using second = createEngine({ store, host, jobs: { renewed } });

  await second.runUntilIdle();

  assert.deepEqual((await second.getSteps(id)).map(({ name }) => name), ["gone", "after early"]);
});

forEachStore("a branch goes on after its pause though the check of its payload takes its time", async (context) => {
  const { store, host } = context;
  const slow = z.string().refine(async () => {
    await host.settle(5);
    return true;
  });
  const job = aJob((step) =>
    Promise.all([
      step.wait("early", { schema: slow }).then(() => step.run("after early", () => "done")),
      step.wait("late"),
    ])
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  await signal(engine, id, "early", "text");
  await engine.runUntilIdle();

  assert.deepEqual((await engine.getSteps(id)).map(({ name }) => name), ["after early"]);
});

forEachStore("Promise.race() of pauses goes the same way on every replay", async ({ store, host }) => {
  const winners: unknown[] = [];
  const job = aJob(async (step) => {
    const winner = await Promise.race([
      step.wait("asked first").then(({ outcome }) => `first by ${outcome}`),
      step.wait("asked second").then(({ outcome }) => `second by ${outcome}`),
      step.sleep("nap", 60_000).then(() => "nap"),
    ]);
    winners.push(winner);
    await step.sleep("until everything is over", 120_000);
    await step.sleep("another replay", 1_000);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  await signal(engine, id, "asked second");
  await signal(engine, id, "asked first");
  await engine.runUntilIdle();
  for (const ms of [60_000, 60_000, 1_000]) {
    host.advance(ms);
    await engine.runUntilIdle();
  }

  await outputOf(engine, id);
  assert.equal(winners.length, 4);
  assert.deepEqual([...new Set(winners)], ["second by signal"]);
});

forEachStore("Promise.all() of pauses and steps replays in the order in which they ended", async ({ store, host }) => {
  const orders: string[][] = [];
  const job = aJob(async (step) => {
    const order: string[] = [];
    orders.push(order);
    const told = (name: string) => () => order.push(name);
    await Promise.all([
      step.wait("review").then(told("review")),
      step.sleep("nap", 60_000).then(told("nap")),
      step.run("step", () => 1).then(told("step")).then(() => step.sleep("rest", 30_000)).then(told("rest")),
    ]);
    await step.sleep("end", 1_000);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  host.advance(30_000);
  await engine.runUntilIdle();
  host.advance(30_000);
  await engine.runUntilIdle();
  await signal(engine, id, "review");
  await engine.runUntilIdle();
  host.advance(1_000);
  await engine.runUntilIdle();

  await outputOf(engine, id);
  assert.deepEqual(orders, [
    ["step"],
    ["step", "rest"],
    ["step", "rest", "nap"],
    ["step", "rest", "nap", "review"],
    ["step", "rest", "nap", "review"],
  ]);
});

forEachStore("deadlines that passed together end in their order, not in that of the code", async ({ store, host }) => {
  const orders: string[][] = [];
  const job = aJob(async (step) => {
    const order: string[] = [];
    orders.push(order);
    await Promise.all([
      step.sleep("third", 3_000).then(() => order.push("third")),
      step.wait("first", { timeout: 1_000 }).then(() => order.push("first")),
      step.sleep("second", 2_000).then(() => order.push("second")),
    ]);
    await step.sleep("end", 1_000);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  for (const ms of [0, 10_000, 1_000]) {
    host.advance(ms);
    await engine.runUntilIdle();
  }

  await outputOf(engine, id);
  assert.deepEqual(orders, [[], ["first", "second", "third"], ["first", "second", "third"]]);
});

forEachStore("Promise.race() of a step and a pause goes to the step that ends first", async ({ store, host }) => {
  const winners: unknown[] = [];
  const job = aJob(async (step) => {
    const slow = step.wait("slow", { timeout: 60_000 });
    const winner = await Promise.race([slow, step.run("fast", () => "fast")]);
    winners.push(winner);
    await slow;
    await step.sleep("end", 1_000);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  for (const ms of [0, 60_000, 1_000]) {
    host.advance(ms);
    await engine.runUntilIdle();
  }

  await outputOf(engine, id);
  assert.deepEqual(winners, ["fast", "fast", "fast"]);
});

forEachStore("Promise.race() replays as it went, however long the ways to it are", async ({ store, host }) => {
  const winners: unknown[] = [];
  const job = aJob(async (step) => {
    const [soon, late] = [step.sleep("soon", 1_000), step.sleep("late", 2_000)];
    const winner = await Promise.race([
      soon.then(() => {}).then(() => {}).then(() => {}).then(() => "soon"),
      late.then(() => "late"),
    ]);
    winners.push(winner);
    await late;
    await step.sleep("end", 1_000);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  for (const ms of [0, 1_000, 1_000, 1_000]) {
    host.advance(ms);
    await engine.runUntilIdle();
  }

  await outputOf(engine, id);
  assert.deepEqual(winners, ["soon", "soon", "soon"]);
});

forEachStore("a step that ends right after a signal does not overtake it", async ({ store, host }) => {
  const winners: unknown[] = [];
  const gate = aGate<string>();
  const job = aJob(async (step) => {
    const branches = [step.run("step", gate.work), step.wait("review").then(() => "signal")];
    winners.push(await Promise.race(branches));
    await Promise.all(branches);
    await step.sleep("end", 1_000);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  const idle = engine.runUntilIdle();
  await gate.reached;
  await host.settle();

  await signal(engine, id, "review");
  gate.open("step");
  await idle;
  host.advance(1_000);
  await engine.runUntilIdle();

  await outputOf(engine, id);
  assert.deepEqual(winners, ["signal", "signal"]);
});

forEachStore("a step does not overtake a signal that another process took", async ({ store, host }) => {
  const winners: unknown[] = [];
  const gate = aGate<string>();
  const job = aJob(async (step) => {
    const branches = [step.run("step", gate.work), step.wait("review").then(() => "signal")];
    winners.push(await Promise.race(branches));
    await Promise.all(branches);
    await step.sleep("end", 1_000);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  await using other = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  const idle = engine.runUntilIdle();
  await gate.reached;
  await host.settle();

  await signal(other, id, "review");
  await host.settle();
  gate.open("step");
  await pass(host, 2_000);
  await idle;
  host.advance(1_000);
  await engine.runUntilIdle();

  await outputOf(engine, id);
  assert.equal(winners[1], winners[0]);
});

for (const blockedMs of [0, LEASE_MS]) {
  forEachStore(`waitFor() lets no later step overtake a signal after a block of ${blockedMs} ms`, async (context) => {
    const { store, host } = context;
    const orders: string[][] = [];
    const [left, right] = [aGate(), aGate()];
    const job = aJob(async (step) => {
      const order: string[] = [];
      orders.push(order);
      const wait = await step.prepareWait("review");
      await Promise.all([
        step.run("left", left.work).then(() => step.waitFor(wait)).then(() => order.push("signal")),
        step.run("right", right.work).then(() => order.push("right")),
      ]);
      await step.sleep("end", 1_000);
    });
    await using engine = createEngine({ store, host, jobs: { job } });
    const { id } = await engine.trigger(job, null);
    const idle = engine.runUntilIdle();
    await Promise.all([left.reached, right.reached]);
    await signal(engine, id, "review");

    const monotonic = host.monotonic.bind(host);
    host.monotonic = () => monotonic() + blockedMs;
    left.open();
    right.open();
    await idle;
    host.advance(1_000);
    await engine.runUntilIdle();

    assert.deepEqual(orders, [["signal", "right"], ["signal", "right"]]);
  });
}

forEachStore("a sleep does not overtake steps that the run was retriggered with", async ({ store, host }) => {
  const orders: string[][] = [];
  let isBroken = true;
  const job = aJob(async (step) => {
    const order: string[] = [];
    orders.push(order);
    await step.wait("review");
    await Promise.all([
      step.sleep("nap", 1_000).then(() => order.push("nap")),
      step.run("first", () => 1).then(() => step.run("second", () => 2)).then(() => order.push("second"))
        .then(() =>
          step.run("breaks", () => {
            if (isBroken) throw new Error("broken");
          })
        ),
    ]);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const old = await engine.trigger(job, null);
  await engine.runUntilIdle();
  await signal(engine, old.id, "review");
  await engine.runUntilIdle();
  assert.equal((await engine.getRun(old.id))!.status, "failed");
  orders.length = 0;
  isBroken = false;

  const { id } = await engine.retrigger(old.id, { from: "failure" });
  await engine.runUntilIdle();
  host.advance(1_000);
  await engine.runUntilIdle();

  await outputOf(engine, id);
  assert.deepEqual(orders, [["second"], ["second", "nap"]]);
});

forEachStore("parallel steps settle before the run parks", async ({ store, host }) => {
  const gate = aGate<string>();
  const job = aJob((step) => Promise.all([step.wait("review"), step.run("slow", gate.work)]));
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);
  const idle = engine.runUntilIdle();
  await gate.reached;
  await pass(host, 5_000, 500);

  const during = (await engine.getRun(id))!.status;
  const { suspendedAt } = await waitNamed(engine, id, "review");
  gate.open("done");
  await idle;

  assert.equal(during, "running");
  assert.equal(suspendedAt, null);
  assert.equal((await engine.getRun(id))!.status, "waiting");
  const types = events.map(({ type }) => type);
  assert.ok(types.indexOf("step:complete") < types.indexOf("run:waiting"));
  assert.deepEqual((await engine.getSteps(id)).map(({ name, status }) => [name, status]), [["slow", "completed"]]);
});

forEachStore("a signal is delivered while a parallel step is still executed", async ({ store, host }) => {
  const gate = aGate();
  const delivered = Promise.withResolvers<unknown>();
  const job = aJob((step) =>
    Promise.all([step.wait("review").then((result) => delivered.resolve(result)), step.run("slow", gate.work)])
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);
  const idle = engine.runUntilIdle();
  await gate.reached;
  await host.settle();

  await signal(engine, id, "review", "now");
  const result = await delivered.promise;
  const steps = await engine.getSteps(id);
  gate.open();
  await idle;

  assert.partialDeepStrictEqual(result, { outcome: "signal", payload: "now" });
  assert.deepEqual(steps, []);
  assert.equal((await engine.getRun(id))!.status, "completed");
  assert.deepEqual(waitings(events), []);
});

forEachStore("a signal that another process takes is delivered while a step is executed", async ({ store, host }) => {
  const gate = aGate();
  const delivered = Promise.withResolvers<unknown>();
  const job = aJob((step) =>
    Promise.all([step.wait("review").then((result) => delivered.resolve(result)), step.run("slow", gate.work)])
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  await using other = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  const idle = engine.runUntilIdle();
  await gate.reached;
  await host.settle();

  await signal(other, id, "review", "now");
  await pass(host, 2_000);
  const result = await delivered.promise;
  gate.open();
  await idle;

  assert.partialDeepStrictEqual(result, { outcome: "signal", payload: "now" });
});

forEachStore("a deadline and a sleep end on time while a parallel step is executed", async ({ store, host }) => {
  const gate = aGate();
  const times: Record<string, number> = {};
  const job = aJob((step) => {
    const note = (name: string) => () => void (times[name] = host.now() - FAKE_START);
    return Promise.all([
      step.wait("review", { timeout: 2_500 }).then(note("review")),
      step.sleep("nap", 300).then(note("nap")),
      step.run("slow", gate.work),
    ]);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  const idle = engine.runUntilIdle();
  await gate.reached;
  await host.settle();

  await pass(host, 4_000, 50);
  gate.open();
  await idle;

  await outputOf(engine, id);
  assert.deepEqual(times, { nap: 300, review: 2_500 });
});

forEachStore("a pause does not ask the store without end while a step is executed beside it", async (context) => {
  const { host } = context;
  let calls = 0;
  const store = new Proxy(context.store, {
    get(target, key) {
      const member = Reflect.get(target, key);
      if (typeof member !== "function") return member;
      if (key === "pause") calls += 1;
      return member.bind(target);
    },
  });
  const gate = aGate();
  const job = aJob((step) => Promise.all([step.wait("review"), step.run("slow", gate.work)]));
  await using engine = createEngine({ store, host, jobs: { job } });
  await engine.trigger(job, null);
  const idle = engine.runUntilIdle();
  await gate.reached;

  await host.settle(100);
  const callsDuring = calls;
  gate.open();
  await idle;

  assert.ok(callsDuring <= 2, `${callsDuring} calls`);
  assert.ok(calls <= 4, `${calls} calls`);
});

forEachStore("no code of the job runs when it parks: no catch, no finally, no using", async ({ store, host }) => {
  const ran: string[] = [];
  const job = aJob(async (step) => {
    using _resource = { [Symbol.dispose]: () => void ran.push("dispose") };
    try {
      await step.wait("review");
      ran.push("after");
    } catch {
      ran.push("catch");
    } finally {
      ran.push("finally");
    }
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();
  await host.settle();
  const whileParked = [...ran];
  await signal(engine, id, "review");
  await engine.runUntilIdle();

  assert.deepEqual(whileParked, []);
  assert.deepEqual(ran, ["after", "finally", "dispose"]);
});

forEachStore("no code of a job that was parked runs when its run is cancelled or stopped", async ({ store, host }) => {
  const ran: string[] = [];
  const job = aJob(async (step) => {
    try {
      await step.wait("review");
    } catch {
      ran.push("catch");
    } finally {
      ran.push("finally");
    }
  });
  const engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  await engine.cancel(id);
  await engine.stop();
  await host.settle();

  assert.deepEqual(ran, []);
});

forEachStore("names of steps, waits and sleeps are counted separately", async ({ store, host }) => {
  const seen: string[] = [];
  const job = aJob(async (step) => {
    for (let round = 0; round < 3; round++) {
      await step.run("same", () => round);
      await step.sleep("same", 1_000);
      const { name } = await step.prepareWait("same", { timeout: 1_000 });
      seen.push(name);
    }
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);

  for (const ms of [0, 1_000, 1_000, 1_000]) {
    host.advance(ms);
    await engine.runUntilIdle();
  }

  await outputOf(engine, id);
  assert.deepEqual((await engine.getSteps(id)).map(({ name }) => name), ["same", "same#2", "same#3"]);
  assert.deepEqual((await engine.getWaits(id)).map(({ name }) => name), ["same", "same#2", "same#3"]);
  assert.deepEqual(waitings(events).map(({ waitName }) => waitName), ["same", "same#2", "same#3"]);
  assert.deepEqual(seen.slice(-3), ["same", "same#2", "same#3"]);
});

forEachStore("wait() in a loop is another wait each time", async ({ store, host }) => {
  const job = aJob(async (step) => {
    const payloads = [];
    for (let round = 0; round < 3; round++) {
      const result = await step.wait("item");
      payloads.push(result.outcome === "signal" ? result.payload : null);
    }
    return payloads;
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  for (const name of ["item", "item#2", "item#3"]) {
    await signal(engine, id, name, name);
    await engine.runUntilIdle();
  }

  assert.deepEqual(await outputOf(engine, id), ["item", "item#2", "item#3"]);
});

forEachStore("a name in use by a pause that has not settled is refused", async ({ store, host }) => {
  const refusals: string[] = [];
  const job = aJob(async (step) => {
    const open = [step.wait("same"), step.sleep("same", 1_000)];
    await step.wait("same").catch(({ name, message }) => refusals.push(`${name}: ${message}`));
    await step.prepareWait("same").catch(({ name, message }) => refusals.push(`${name}: ${message}`));
    await step.sleep("same", 1).catch(({ name, message }) => refusals.push(`${name}: ${message}`));
    await Promise.all(open);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();

  assert.equal(refusals.length, 3);
  for (const refusal of refusals) assert.match(refusal, /^TypeError: .*"same" is in use/);
  assert.deepEqual((await engine.getWaits(id)).map(({ name }) => name), ["same"]);
  assert.equal((await engine.getRun(id))!.status, "waiting");
});

forEachStore("what cannot be a name is refused for a pause", async ({ store, host }) => {
  const job = aJob(async (step) => {
    for (const name of ["x#2", "", "\n", "\ud800", "x".repeat(256), 7 as unknown as string]) {
      await assert.rejects(step.sleep(name, 1), TypeError, JSON.stringify(name));
      await assert.rejects(step.wait(name), TypeError, JSON.stringify(name));
      await assert.rejects(step.prepareWait(name), TypeError, JSON.stringify(name));
    }
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();

  await outputOf(engine, id);
  assert.deepEqual(await engine.getWaits(id), []);
});

forEachStore("metadata of a wait is kept as it was given first", async ({ store, host }) => {
  let tries = 0;
  const job = aJob((step) =>
    Promise.all([
      step.wait("object", { metadata: { title: "Ünïcode", list: [1, null], try: tries++ } }),
      step.wait("text", { metadata: "text" }),
      step.wait("null", { metadata: null }),
      step.wait("none"),
    ])
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();
  await signal(engine, id, "text");
  await engine.runUntilIdle();

  assert.deepEqual((await engine.getWaits(id)).map(({ metadata }) => metadata), [
    { title: "Ünïcode", list: [1, null], try: 0 },
    "text",
    null,
    null,
  ]);
});

forEachStore("metadata that JSON would lose is refused by name", async ({ store, host }) => {
  const job = aJob((step) =>
    step.wait("review", { metadata: { when: [1n] } }).catch(({ name, message }) => [name, message])
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();

  const [name, message] = await outputOf(engine, id) as string[];
  assert.equal(name, "SerializationError");
  assert.match(message!, /"review".*a bigint at \$\.when\[0\]/);
});

forEachStore("a schema gives the job what it makes of the payload", async ({ store, host }) => {
  const schema = z.object({ approved: z.boolean(), by: z.string().default("nobody") });
  const job = aJob(async (step) => {
    const wait = await step.prepareWait("second");
    return [await step.wait("first", { schema }), await step.waitFor(wait, { schema })];
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();
  for (const wait of await engine.getWaits(id)) {
    await engine.signal(wait.id, { signalId: "s", payload: { approved: true, more: 1 } });
  }

  await engine.runUntilIdle();

  const result = { outcome: "signal", signalId: "s", payload: { approved: true, by: "nobody" } };
  assert.deepEqual(await outputOf(engine, id), [result, result]);
  assert.deepEqual((await waitNamed(engine, id, "first")).payload, { approved: true, more: 1 });
});

forEachStore("a schema that refuses the payload throws, the first time as on a replay", async ({ store, host }) => {
  const seen: unknown[] = [];
  const job = aJob(async (step) => {
    try {
      await step.wait("review", { schema: z.object({ approved: z.boolean() }) });
    } catch (error) {
      assert.ok(error instanceof ValidationError);
      assert.match(error.message, /"review"/);
      seen.push([error.code, error.issues.map(({ path }) => path)]);
    }
    await step.sleep("nap", 1_000);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  await signal(engine, id, "review", "not an object");
  await engine.runUntilIdle();
  host.advance(1_000);
  await engine.runUntilIdle();

  await outputOf(engine, id);
  assert.deepEqual(seen, [["invalid_input", [[]]], ["invalid_input", [[]]]]);
});

forEachStore("a schema is not asked about a timeout", async ({ store, host }) => {
  const job = aJob((step) => step.wait("review", { schema: z.never(), timeout: 1_000 }));
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();
  host.advance(1_000);
  await engine.runUntilIdle();

  assert.deepEqual(await outputOf(engine, id), { outcome: "timeout" });
});

const LONG: [string, number][] = [["30 days", 30 * DAY_MS], ["ten years", 3_653 * DAY_MS]];

for (const [length, ms] of LONG) {
  forEachStore(`a pause of ${length} is neither early nor late`, async ({ store, host }) => {
    const job = aJob((step) => Promise.all([step.sleep("nap", ms), step.wait("review", { timeout: ms })]));
    await using engine = createEngine({ store, host, jobs: { job } });
    const { id } = await engine.trigger(job, null);
    await engine.start();
    await host.settle();

    const { deadlineAt } = await waitNamed(engine, id, "review");
    await pass(host, ms - 1);
    const before = (await engine.getRun(id))!.status;
    await pass(host, 2_000, 500);

    assert.equal(deadlineAt, isoTime(FAKE_START + ms));
    assert.equal(before, "waiting");
    assert.equal((await engine.getRun(id))!.status, "completed");
  });

  forEachStore(`a pause of ${length} ends on time beside a step that is executed`, async ({ store, host }) => {
    const gate = aGate();
    const ended: string[] = [];
    const job = aJob((step) =>
      Promise.all([step.run("slow", gate.work), step.sleep("nap", ms).then(() => ended.push("nap"))])
    );
    // Leases that last until the clock is looked at again: it moves by days here.
    const worker = { heartbeatInterval: 2 ** 28, staleThreshold: 2 ** 30 };
    await using engine = createEngine({ store, host, jobs: { job }, worker });
    const { id } = await engine.trigger(job, null);
    const idle = engine.runUntilIdle();
    await gate.reached;
    await host.settle();

    await pass(host, ms - 2_000, 3 * DAY_MS);
    const before = [...ended];
    await pass(host, 4_000, 500);
    const after = [...ended];
    gate.open();
    await idle;

    await outputOf(engine, id);
    assert.deepEqual([before, after], [[], ["nap"]]);
  });
}

Deno.test("schedule() makes long timers of slices that do not overflow", () => {
  const asked: number[] = [];
  let callbacks: (() => void)[] = [];
  const { setTimeout, clearTimeout } = globalThis;
  globalThis.setTimeout = ((callback: () => void, ms: number) => {
    asked.push(ms);
    callbacks.push(callback);
    return asked.length;
  }) as unknown as typeof setTimeout;
  globalThis.clearTimeout = () => void (callbacks = []);
  let fired = 0;

  try {
    systemHost.schedule(3_653 * DAY_MS, () => fired += 1);
    while (callbacks.length > 0) callbacks.shift()!();
    const cancel = systemHost.schedule(30 * DAY_MS, () => fired += 100);
    callbacks.shift()!();
    cancel();
  } finally {
    Object.assign(globalThis, { setTimeout, clearTimeout });
  }

  assert.equal(fired, 1);
  assert.ok(asked.every((ms) => ms < 2 ** 31), String(asked));
  assert.equal(asked.slice(0, -2).reduce((sum, ms) => sum + ms, 0), 3_653 * DAY_MS);
  assert.deepEqual(callbacks, []);
});

forEachStore("wait() takes a deadline as a date or as text", async ({ store, host }) => {
  const job = aJob((step) =>
    Promise.all([
      step.wait("date", { deadline: new Date(FAKE_START + 1_000) }),
      step.wait("text", { deadline: "2040-01-01T00:00:01.000Z" }),
    ])
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();
  const deadlines = (await engine.getWaits(id)).map(({ deadlineAt }) => deadlineAt);
  host.advance(1_000);
  await engine.runUntilIdle();

  assert.deepEqual(deadlines, [isoTime(FAKE_START + 1_000), isoTime(FAKE_START + 1_000)]);
  assert.deepEqual(await outputOf(engine, id), [{ outcome: "timeout" }, { outcome: "timeout" }]);
});

forEachStore("wait() with a deadline in the past is over at once", async ({ store, host }) => {
  const job = aJob(async (step) => [
    await step.wait("past", { deadline: new Date(0) }),
    await step.wait("now", { timeout: 0 }),
    await step.wait("negative", { timeout: -5 }),
    await step.waitFor(await step.prepareWait("prepared", { deadline: "1999-12-31T00:00:00Z" })),
  ]);
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);

  const { executed } = await engine.runUntilIdle();

  assert.equal(executed, 1);
  assert.deepEqual(await outputOf(engine, id), Array(4).fill({ outcome: "timeout" }));
  assert.deepEqual(waitings(events), []);
  const past = await waitNamed(engine, id, "past");
  assert.deepEqual([past.deadlineAt, past.resolvedAt], [isoTime(0), isoTime(0)]);
});

forEachStore("a deadline does not move, whatever later executions ask for", async ({ store, host }) => {
  let timeout = 60_000;
  const job = aJob(async (step) => {
    const asked = timeout;
    timeout += 60_000;
    await Promise.all([step.wait("review", { timeout: asked }), step.sleep("nap", asked), step.wait("other")]);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  host.advance(10_000);
  await signal(engine, id, "other");
  await engine.runUntilIdle();
  const { deadlineAt } = await waitNamed(engine, id, "review");
  host.advance(50_000);
  await engine.runUntilIdle();

  assert.equal(deadlineAt, isoTime(FAKE_START + 60_000));
  await outputOf(engine, id);
});

forEachStore("a deadline fires though no process was alive when it passed", async ({ store, host }) => {
  const job = aJob((step) => step.wait("review", { timeout: 60_000 }));
  const first = createEngine({ store, host, jobs: { job } });
  const { id } = await first.trigger(job, null);
  await first.start();
  await host.settle();
  await first.stop();
  host.advance(10 * DAY_MS);

  await using second = createEngine({ store, host, jobs: { job } });
  await second.start();
  await second.waitForRun(id);

  assert.deepEqual(await outputOf(second, id), { outcome: "timeout" });
  const { resolvedAt, firstResumedAt } = await waitNamed(second, id, "review");
  assert.equal(resolvedAt, isoTime(FAKE_START + 60_000));
  assert.equal(firstResumedAt, isoTime(FAKE_START + 10 * DAY_MS));
});

forEachStore("a started engine goes on by itself, at a deadline and at a signal", async ({ store, host }) => {
  const job = aJob(async (step) => {
    const first = await step.wait("first", { timeout: 5_000 });
    const second = await step.wait("second", { timeout: 5_000 });
    return [first.outcome, second.outcome, host.now() - FAKE_START];
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.start();
  await host.settle();

  await pass(host, 5_000, 100);
  await pass(host, 200, 100);
  await signal(engine, id, "second");
  await engine.waitForRun(id);

  assert.deepEqual(await outputOf(engine, id), ["timeout", "signal", 5_200]);
});

forEachStore("a run resumes in any process, whichever took the signal", async ({ store, host }) => {
  const job = aJob((step) => step.wait("review"));
  await using worker = createEngine({ store, host, jobs: { job } });
  await using server = createEngine({ store, host, jobs: { job } });
  const { id } = await server.trigger(job, null);
  await worker.start();
  await pass(host, 2_000);

  await signal(server, id, "review", "from elsewhere");
  const done = worker.waitForRun(id);
  await pass(host, 2_000);
  await done;

  assert.partialDeepStrictEqual(await outputOf(worker, id), { payload: "from elsewhere" });
});

forEachStore("a pause survives a crash with its id and its deadline", async ({ store, host }) => {
  const executions: number[] = [];
  const reached = Promise.withResolvers<void>();
  const job = aJob(async (step) => {
    executions.push(step.execution);
    const prepared = step.prepareWait("review", { timeout: 120_000 });
    const [wait] = await Promise.all([prepared, step.sleep("short", 10)]);
    await step.run("crash", () => {
      if (step.execution > 1) return;
      reached.resolve();
      return forever();
    });
    return [wait.id, (await step.waitFor(wait)).outcome];
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();
  host.advance(10);
  workElsewhere(store, job);
  await reached.promise;
  const before = await waitNamed(engine, id, "review");

  host.advance(LEASE_MS);
  await engine.runUntilIdle();
  const after = await waitNamed(engine, id, "review");
  host.advance(120_000 - LEASE_MS - 10);
  await engine.runUntilIdle();

  assert.deepEqual(executions, [1, 1, 2, 2]);
  assert.deepEqual([after.id, after.deadlineAt], [before.id, isoTime(FAKE_START + 120_000)]);
  assert.deepEqual(await outputOf(engine, id), [before.id, "timeout"]);
});

forEachStore("a crash after the resumption does not lose what ended the pause", async ({ store, host }) => {
  const job = aJob(async (step) => {
    const result = await step.wait("review", { timeout: 5 * LEASE_MS });
    return [result.outcome, step.execution];
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();
  await signal(engine, id, "review", "kept");
  await claimOne(store, "job");

  host.advance(10 * LEASE_MS);
  await engine.runUntilIdle();

  assert.deepEqual(await outputOf(engine, id), ["signal", 2]);
});

forEachStore("a lost lease keeps a pause from being made", async ({ store, host }) => {
  const gate = aGate();
  const job = aJob(async (step) => {
    if (step.execution > 1) return "taken over";
    await step.run("slow", gate.work);
    await step.prepareWait("too late");
    return "never";
  });
  await using stale = createEngine({ store, host: new FakeHost(), jobs: { job } });
  const { id } = await stale.trigger(job, null);
  const idle = stale.runUntilIdle();
  await gate.reached;
  host.advance(LEASE_MS);
  const { lease } = await claimOne(store, "job");

  gate.open();
  await idle;
  await store.release(lease, []);
  await using engine = createEngine({ store, host, jobs: { job } });
  await engine.runUntilIdle();

  assert.equal(await outputOf(engine, id), "taken over");
  assert.deepEqual(await engine.getWaits(id), []);
});

for (const kind of ["prepareWait", "wait", "sleep"] as const) {
  forEachStore(`${kind}() that finds the lease lost ends the execution, and tells nothing`, async (context) => {
    const { store, host } = context;
    const gate = Promise.withResolvers<void>();
    const reached = Promise.withResolvers<AbortSignal>();
    const job = aJob(async (step) => {
      reached.resolve(step.abortSignal);
      await gate.promise;
      if (kind === "prepareWait") await step.prepareWait("review");
      else if (kind === "wait") await step.wait("review");
      else await step.sleep("nap", 1_000);
    });
    await using stale = createEngine({ store, host: new FakeHost(), jobs: { job } });
    const events = recordEvents(stale);
    const { id } = await stale.trigger(job, null);
    const idle = stale.runUntilIdle();
    const abortSignal = await reached.promise;
    host.advance(LEASE_MS);
    const { lease } = await claimOne(store, "job");

    gate.resolve();
    await idle;

    assert.equal(abortSignal.aborted, true);
    assert.equal(abortSignal.reason.name, "LeaseLostError");
    assert.deepEqual(events.map(({ type }) => type), ["run:trigger", "run:leased", "run:start"]);
    assert.partialDeepStrictEqual(await store.getRun(id), { status: "running", leaseGeneration: lease.generation });
    assert.deepEqual(await store.getWaits(id), []);
  });
}

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
    host.advance(LEASE_MS);
    await claimOne(store, "job");

    gate.resolve();
    await idle;

    assert.equal(isSettled, false);
    assert.equal(abortSignal.reason.name, "LeaseLostError");
  },
);

forEachStore("a job that returns while a pause is outstanding completes, and its wait is closed", async (context) => {
  const { store, host } = context;
  const job = aJob((step) =>
    Promise.race([
      step.wait("review", { timeout: 60_000 }),
      step.sleep("nap", 1_000),
      step.run("fast", () => host.settle().then(() => "fast")),
    ])
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();
  host.advance(60_000);
  const later = await engine.runUntilIdle();

  assert.equal(await outputOf(engine, id), "fast");
  assert.equal(later.executed, 0);
  const waits = await engine.getWaits(id);
  assert.deepEqual(waits.map(({ status, outcome, resolvedAt }) => [status, outcome, resolvedAt]), [
    ["closed", null, null],
  ]);
  assert.deepEqual(waitings(events), []);
});

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

forEachStore("a job that fails while a pause is outstanding fails, and its wait is closed", async (context) => {
  const { store, host } = context;
  const gate = aGate();
  const job = aJob((step) =>
    Promise.all([
      step.wait("review"),
      step.run("breaks", async () => {
        await gate.work();
        throw new Error("broken");
      }),
    ])
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);
  const idle = engine.runUntilIdle();
  await gate.reached;
  await host.settle();

  gate.open();
  await idle;

  const run = (await engine.getRun(id))!;
  assert.deepEqual([run.status, run.error], ["failed", "broken"]);
  assert.equal((await waitNamed(engine, id, "review")).status, "closed");
  assert.deepEqual(waitings(events), []);
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

forEachStore("cancel() of a run that waits cancels its waits", async ({ store, host }) => {
  const job = aJob((step) => Promise.all([step.wait("review", { timeout: 60_000 }), step.sleep("nap", 1_000)]));
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  const cancelled = await engine.cancel(id);
  host.advance(120_000);
  const { executed } = await engine.runUntilIdle();

  assert.equal(cancelled.status, "cancelled");
  assert.equal(executed, 0);
  assert.equal((await engine.getRun(id))!.status, "cancelled");
  const { status, outcome, resolvedAt } = await waitNamed(engine, id, "review");
  assert.deepEqual([status, outcome, resolvedAt], ["cancelled", null, null]);
  assert.equal(events.at(-1)!.type, "run:cancel");
});

forEachStore("cancel() ends a pause beside a step that is executed", async ({ store, host }) => {
  const gate = aGate();
  const job = aJob((step) => Promise.all([step.wait("review"), step.run("slow", gate.work)]));
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  const idle = engine.runUntilIdle();
  await gate.reached;
  await host.settle();

  await engine.cancel(id);
  gate.open();
  await idle;

  assert.equal((await engine.getRun(id))!.status, "cancelled");
  assert.equal((await waitNamed(engine, id, "review")).status, "cancelled");
});

forEachStore("stop() leaves a run that waits as it is, and another engine goes on with it", async (context) => {
  const { store, host } = context;
  const job = aJob(async (step) => [(await step.wait("review", { timeout: 60_000 })).outcome, step.execution]);
  const first = createEngine({ store, host, jobs: { job } });
  const { id } = await first.trigger(job, null);
  await first.start();
  await host.settle();
  await first.stop();
  const stopped = (await first.getRun(id))!;

  await using second = createEngine({ store, host, jobs: { job } });
  await signal(second, id, "review");
  await second.runUntilIdle();

  assert.equal(stopped.status, "waiting");
  assert.deepEqual(await outputOf(second, id), ["signal", 1]);
});

forEachStore("stop() while a step is executed beside a pause strands neither", async ({ store, host }) => {
  const gate = aGate<string>();
  const job = aJob((step) =>
    Promise.all([step.wait("review").then(({ outcome }) => outcome), step.run("s", gate.work)])
  );
  const first = createEngine({ store, host, jobs: { job } });
  const { id } = await first.trigger(job, null);
  await first.start();
  await gate.reached;
  await host.settle();
  const stopping = first.stop();
  await host.settle();
  gate.open("recorded");
  await stopping;
  const { status, leaseOwner } = (await first.getRun(id))!;

  await using second = createEngine({ store, host, jobs: { job } });
  await second.runUntilIdle();
  await signal(second, id, "review");
  await second.runUntilIdle();

  assert.ok(status === "waiting" || status === "pending", status);
  assert.equal(leaseOwner, null);
  assert.deepEqual(await outputOf(second, id), ["signal", "recorded"]);
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

forEachStore("progress before a pause is kept by it", async ({ store, host }) => {
  const job = aJob(async (step) => {
    step.progress(1, 2, "asked");
    await step.wait("review");
    step.progress(2, 2, "answered");
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();
  const parked = (await engine.getRun(id))!.progress;
  await signal(engine, id, "review");
  await engine.runUntilIdle();

  assert.deepEqual(parked, { current: 1, total: 2, message: "asked" });
  const told = events.filter((event) => event.type === "run:progress").map(({ progress }) => progress.current);
  assert.deepEqual(told, [1, 2]);
});

forEachStore("a replay of steps and waits asks the store once, however many there are", async ({ store, host }) => {
  const calls: string[] = [];
  const counting = new Proxy(store, {
    get(target, name) {
      const member = target[name as keyof typeof target] as unknown;
      if (typeof member !== "function") return member;
      return (...parameters: unknown[]) => {
        calls.push(String(name));
        return member.apply(target, parameters);
      };
    },
  });
  const job = aJob(async (step) => {
    for (let i = 0; i < 200; i++) await step.run("step", () => i);
    for (let i = 0; i < 20; i++) await step.prepareWait("wait");
    await step.sleep("end", 60_000);
  });
  await using engine = createEngine({ store: counting, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();
  host.advance(60_000);
  calls.length = 0;

  await engine.runUntilIdle();

  assert.equal((await store.getRun(id))!.status, "completed");
  assert.deepEqual(calls.filter((name) => name !== "claim"), ["finish"]);
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

forEachStore("a run does not park while a schema checks its output", async ({ store, host }) => {
  const checked = Promise.withResolvers<void>();
  const output: Schema<unknown, unknown> = {
    "~standard": { version: 1, vendor: "test", validate: (value) => checked.promise.then(() => ({ value })) },
  };
  const job = defineJob({
    name: "job",
    input: z.null(),
    output,
    run: (step) => Promise.race([step.wait("never"), step.run("fast", () => "fast")]),
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  const idle = engine.runUntilIdle();
  await host.settle();
  checked.resolve();
  await idle;

  assert.equal((await engine.getRun(id))!.status, "completed");
});

forEachStore("log and progress are silent on a replay beside a wait that is still open", async ({ store, host }) => {
  const job = defineJob({
    name: "import",
    input: anything,
    async run(step) {
      await Promise.all([step.wait("review", { timeout: 60_000 }), work()]);

      async function work() {
        for (let part = 0; part < 3; part++) {
          await step.run("read", () => part);
          step.log.info(`read ${part}`);
          step.progress(part);
          await step.sleep("rest", 5_000);
        }
      }
    },
  });
  await using engine = createEngine({ store, jobs: { job }, host });
  const events = recordEvents(engine);
  await engine.start();
  await engine.jobs.job.trigger({});

  await pass(host, 30_000, 500);

  const told = events.flatMap((event): unknown[] =>
    event.type === "log:write" ? [event.message] : event.type === "run:progress" ? [event.progress.current] : []
  );
  assert.deepEqual(told, ["read 0", 0, "read 1", 1, "read 2", 2]);
});

forEachStore("a log line in a step is written though another branch still replays", async ({ store, host }) => {
  let executions = 0;
  const job = defineJob({
    name: "import",
    input: anything,
    async run(step) {
      executions += 1;
      await step.run("first", () => 1);
      if (executions > 1) {
        const fresh = step.run("fresh", () => step.log.info("inside"));
        await Promise.all([fresh, step.sleep("rest", 1_000)]);
      } else await step.sleep("rest", 1_000);
    },
  });
  await using engine = createEngine({ store, jobs: { job }, host });
  const events = recordEvents(engine);
  await engine.start();
  await engine.jobs.job.trigger({});

  await pass(host, 3_000, 100);

  assert.deepEqual(events.filter(({ type }) => type === "log:write").length, 1);
});

forEachStore("a run parks at once though a signal was recorded right after its last step", async ({ store, host }) => {
  const lastStep = Promise.withResolvers<void>();
  const signalling = new Proxy(store, {
    get: (_, name: keyof Store) => {
      const method = store[name] as (...parameters: unknown[]) => Promise<unknown>;
      if (name !== "saveStep") return method.bind(store);
      return async (...parameters: unknown[]) => {
        const recordedNo = await method.apply(store, parameters);
        const [wait] = await store.getWaits(id);
        await store.signal(wait!.id, { signalId: "1", payload: null });
        return recordedNo;
      };
    },
  });
  const job = defineJob({
    name: "import",
    input: anything,
    run: async (step) =>
      void await Promise.all([
        step.sleep("long", 3_600_000),
        step.wait("review"),
        step.run("last", () => lastStep.promise),
      ]),
  });
  await using engine = createEngine({ store: signalling, jobs: { job }, host });
  await engine.start();
  const { id } = await engine.jobs.job.trigger({});
  await pass(host, 100);

  lastStep.resolve();
  await host.settle(100); // no time passes

  assert.equal((await store.getRun(id))!.status, "waiting");
});
