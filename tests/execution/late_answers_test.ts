import assert from "node:assert/strict";
import type { Engine } from "../../src/engine/engine.ts";
import { LeaseLostError, StoreError } from "../../src/model/error.ts";
import type { StepContext } from "../../src/model/job.ts";
import type { Store } from "../../src/store/store.ts";
import { claimOne, forEachStore, pass, recordEvents } from "../support/stores/for_each_store.ts";
import { createEngine } from "../support/quiet_engine.ts";
import { aGate, aJob } from "../support/jobs.ts";
import { getRun } from "../../src/store/reads.ts";

/** The store, but a test can hold back the next call of a method, and lets it go when it likes. */
function holdable(store: Store) {
  const holds = new Map<string, { when: "before" | "after"; reached: () => void; release: Promise<void> }>();
  /** Holds it before the store carries it out, or after that, before its answer. `lose()` loses the answer. */
  const hold = (method: keyof Store & string, when: "before" | "after" = "after") => {
    const reached = Promise.withResolvers<void>();
    const release = Promise.withResolvers<void>();
    holds.set(method, { when, reached: reached.resolve, release: release.promise });
    return {
      reached: reached.promise,
      release: () => release.resolve(),
      lose: () => release.reject(new StoreError("answer lost", { outcomeUnknown: true })),
    };
  };
  const held = new Proxy(store, {
    get: (target, key: keyof Store & string) => {
      const method = target[key] as unknown;
      if (typeof method !== "function") return method;
      return async (...args: unknown[]) => {
        const own = holds.get(key);
        holds.delete(key);
        const stop = () => {
          own!.reached();
          return own!.release;
        };
        if (own?.when === "before") await stop();
        const answer = await method.apply(target, args);
        if (own?.when === "after") await stop();
        return answer;
      };
    },
  });
  return { held, hold };
}

async function signal(engine: Engine, runId: string, name: string): Promise<void> {
  const wait = (await engine.getWaits(runId)).find((wait) => wait.name === name)!;
  await engine.signal(wait.id, { signalId: `signal of ${name}`, payload: null });
}

forEachStore("prepareWait() whose answer comes late still comes in its order", async ({ store, host }) => {
  const orders: string[][] = [];
  const job = aJob(async (step) => {
    const order: string[] = [];
    orders.push(order);
    await Promise.all([
      step.prepareWait("review").then(() => order.push("review")),
      step.run("step", () => 1).then(() => order.push("step")),
    ]);
    await step.sleep("end", 1_000);
  });
  const { held, hold } = holdable(store);
  await using engine = createEngine({ store: held, host, jobs: { job } });
  const preparing = hold("pause");
  await engine.trigger(job, null);
  const idle = engine.runUntilIdle();
  await preparing.reached;
  await host.settle(); // until the step is recorded, too

  preparing.release();
  await idle;
  host.advance(1_000);
  await engine.runUntilIdle();

  assert.deepEqual(orders, [["review", "step"], ["review", "step"]]);
});

forEachStore("a pause that was asked for while the store was asked for another comes in its order", async (context) => {
  const { store, host } = context;
  const orders: string[][] = [];
  const gate = aGate();
  const asking = Promise.withResolvers<void>();
  const job = aJob(async (step) => {
    const order: string[] = [];
    orders.push(order);
    const early = await step.prepareWait("early");
    await Promise.all([
      step.wait("late").then(() => order.push("late")),
      asking.promise.then(() => step.waitFor(early)).then(() => order.push("early")),
      step.run("slow", gate.work),
    ]);
    await step.sleep("end", 1_000);
  });
  const { held, hold } = holdable(store);
  await using engine = createEngine({ store: held, host, jobs: { job } });
  await using other = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  const idle = engine.runUntilIdle();
  await gate.reached;
  await host.settle();
  await signal(other, id, "early");
  await signal(other, id, "late");
  const look = hold("pause");
  await pass(host, 1_000);
  await look.reached;

  asking.resolve();
  await host.settle();
  look.release();
  await host.settle();
  gate.open();
  await idle;
  host.advance(1_000);
  await engine.runUntilIdle();

  assert.deepEqual(orders, [["early", "late"], ["early", "late"]]);
});

forEachStore("a run does not park on nothing when its last pause ends beside a step", async ({ store, host }) => {
  const gate = aGate();
  const rest = Promise.withResolvers<void>();
  const job = aJob(async (step) => {
    await Promise.all([step.wait("review"), step.run("slow", gate.work)]);
    await rest.promise;
  });
  const { held, hold } = holdable(store);
  const engine = createEngine({ store: held, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);
  engine.runUntilIdle().catch(() => {}); // what the store does not understand would be repeated without end
  await gate.reached;
  await host.settle();
  const look = hold("pause", "before");
  gate.open();
  await look.reached;

  await signal(engine, id, "review");
  look.release();
  await host.settle();
  rest.resolve();
  await pass(host, 1_000);

  assert.deepEqual(events.filter(({ type }) => type === "worker:error"), []);
  assert.equal((await engine.getRun(id))!.status, "completed");
});

forEachStore("run:waiting is not told after run:cancel", async ({ store, host }) => {
  const job = aJob((step) => step.wait("review"));
  const { held, hold } = holdable(store);
  await using engine = createEngine({ store: held, host, jobs: { job } });
  const events = recordEvents(engine);
  const parking = hold("pause");
  const { id } = await engine.trigger(job, null);
  const idle = engine.runUntilIdle();
  await parking.reached;

  await engine.cancel(id);
  parking.release();
  await idle;

  assert.deepEqual(events.map(({ type }) => type), ["run:trigger", "run:leased", "run:start", "run:cancel"]);
});

forEachStore("run:waiting is not told after this worker has taken the run up again", async ({ store, host }) => {
  const job = aJob((step) => step.wait("review"));
  const { held, hold } = holdable(store);
  await using engine = createEngine({ store: held, host, jobs: { job } });
  const events = recordEvents(engine);
  const parking = hold("pause");
  await engine.start();
  const { id } = await engine.trigger(job, null);
  await parking.reached;

  await signal(engine, id, "review");
  await engine.waitForRun(id);
  parking.release();
  await host.settle();

  assert.deepEqual(events.map(({ type }) => type), [
    "run:trigger",
    "run:leased",
    "run:start",
    "run:leased",
    "run:start",
    "run:complete",
  ]);
});

for (
  const { method, body, told } of [
    { method: "pause", body: (step: StepContext) => step.wait("review"), told: "run:waiting" },
    { method: "finish", body: () => "done", told: "run:complete" },
  ] as const
) {
  forEachStore(`${told} is told though a renewal finds that ${method}() has given the lease up`, async (context) => {
    const { store, host } = context;
    const job = aJob<unknown>(body);
    const { held, hold } = holdable(store);
    await using engine = createEngine({ store: held, host, jobs: { job } });
    const events = recordEvents(engine);
    const leaving = hold(method);
    await engine.trigger(job, null);
    const idle = engine.runUntilIdle();
    await leaving.reached;

    await pass(host, 5_000);
    leaving.lose();
    await pass(host, 1_000);
    await idle;

    const types = events.map(({ type }) => type);
    assert.deepEqual(types, ["run:trigger", "run:leased", "run:start", "worker:error", told]);
  });
}

forEachStore("a lost lease counts though the run could have parked, but did not", async ({ store, host }) => {
  const [prepared, asking] = [Promise.withResolvers<AbortSignal>(), Promise.withResolvers<void>()];
  let calls = 0;
  const job = aJob(async (step) => {
    const wait = await step.prepareWait("review");
    prepared.resolve(step.abortSignal);
    await asking.promise;
    await step.waitFor(wait);
    await step.run("after", () => calls++);
  });
  const { held, hold } = holdable(store);
  await using engine = createEngine({ store: held, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  const idle = engine.runUntilIdle();
  const abortSignal = await prepared.promise;
  await signal(engine, id, "review");
  const parking = hold("pause");
  asking.resolve();
  await parking.reached;

  await store.revoke(await store.getLeases());
  await claimOne(store, "job");
  await pass(host, 5_000);
  const isAbortedEarly = abortSignal.aborted;
  parking.release();
  await idle;

  assert.equal(isAbortedEarly, false);
  assert.ok(abortSignal.reason instanceof LeaseLostError);
  assert.equal(calls, 0);
});

forEachStore("cancel() while a claim that brings the run is under way begins nothing", async ({ store, host }) => {
  let executions = 0;
  const job = aJob(() => void executions++);
  const { held, hold } = holdable(store);
  await using engine = createEngine({ store: held, host, jobs: { job } });
  const { id } = await engine.jobs.job.trigger({}, { concurrencyKey: "key" });
  const claim = hold("claim");
  await engine.start();
  await claim.reached;

  await engine.cancel(id);
  claim.release();
  await pass(host, 100);

  assert.equal(executions, 0);
  assert.deepEqual(await store.getLeases(), []); // its key is free
});

forEachStore("stop() hands back what a claim brings that is answered too late", async ({ store, host }) => {
  let executions = 0;
  const job = aJob(() => void executions++);
  const { held, hold } = holdable(store);
  const other = createEngine({ store, host, jobs: { job } });
  const { id } = await other.trigger(job, {});
  const engine = createEngine({ store: held, host, jobs: { job } });
  const claim = hold("claim");
  await engine.start();
  await claim.reached;

  const stopping = engine.stop({ timeout: 0 });
  await pass(host, 2_000);
  await stopping;
  claim.release();
  await host.settle();

  assert.equal(executions, 0);
  assert.equal((await getRun(store, id))!.status, "pending");
});

for (let turns = 0; turns < 12; turns++) {
  forEachStore(
    `a step that is to begin ${turns} turns after a throw is told before the end of the run, or never begins`,
    async ({ store, host }) => {
      const job = aJob((step) => {
        const stepLater = async () => {
          for (let turn = 0; turn < turns; turn++) await null;
          await step.run("beside", () => "result");
        };
        const fail = () => Promise.reject(new Error("broken"));
        return Promise.all([stepLater(), fail()]);
      });
      const { held, hold } = holdable(store);
      const saving = hold("saveStep");
      await using engine = createEngine({ store: held, host, jobs: { job } });
      const events = recordEvents(engine);
      const { id } = await engine.trigger(job, null);

      const idle = engine.runUntilIdle();
      await host.settle();
      saving.release();
      await idle;

      const isBegun = (await engine.getSteps(id)).length > 0;
      const told = isBegun ? ["step:start", "step:complete"] : [];
      const types = events.map(({ type }) => type);
      assert.deepEqual(types, ["run:trigger", "run:leased", "run:start", ...told, "run:fail"]);
    },
  );
}
