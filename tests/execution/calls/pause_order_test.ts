import assert from "node:assert/strict";
import { z } from "zod";
import { isoTime } from "../../../src/values/iso_time.ts";
import type { Wait } from "../../../src/model/wait.ts";
import { FAKE_START } from "../../support/fake_host.ts";
import { forEachStore, LEASE_MS, pass, recordEvents } from "../../support/stores/for_each_store.ts";
import { createEngine } from "../../support/quiet_engine.ts";
import { aGate, aJob } from "../../support/jobs.ts";
import { outputOf, signal, waitings } from "../../support/pauses.ts";

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
  await using first = createEngine({ onDivergence: "continue", store, host, jobs: { old } });
  const { id } = await first.trigger(old, null);
  await first.runUntilIdle();
  await signal(first, id, "early");
  await first.stop();
  await using second = createEngine({ onDivergence: "continue", store, host, jobs: { renewed } });

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
