import assert from "node:assert/strict";
import { z } from "zod";
import type { Engine } from "../../src/engine/engine.ts";
import { persistLogs } from "../../src/engine/persist_logs.ts";
import { HoldfastError, LeaseLostError, StoreError } from "../../src/error.ts";
import type { Host } from "../../src/host.ts";
import { defineJob, type StepContext } from "../../src/job.ts";
import type { Store } from "../../src/store.ts";
import { SqliteStore } from "../../src/stores/sqlite/sqlite_store.ts";
import { FakeHost } from "../support/fake_host.ts";
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
import { withCalls } from "../support/with_calls.ts";

function aJob(run: (step: StepContext, input: unknown) => unknown, name = "job") {
  return defineJob({ name, input: anything, run });
}

/** A job of one step, which tells when it has begun and returns when it is let go. */
function aGate() {
  const reached = Promise.withResolvers<AbortSignal>();
  const gate = Promise.withResolvers<unknown>();
  let calls = 0;
  const job = aJob((step) =>
    step.run("slow", ({ abortSignal }) => {
      calls += 1;
      reached.resolve(abortSignal);
      return gate.promise;
    })
  );
  return { job, reached: reached.promise, releaseKey: gate.resolve, calls: () => calls };
}

/** Stops an engine whose steps hang. */
async function stopHard(engine: Pick<Engine, "stop">, host: FakeHost): Promise<void> {
  const stopping = engine.stop({ timeout: 1 });
  await pass(host, 1_000);
  await stopping;
}

/** The store, but some of its calls fail: before they do anything, or after they have done it. */
function failing(store: Store, fails: (method: string) => "before" | "after" | null): Store {
  return new Proxy(store, {
    get: (target, key: keyof Store & string) => {
      const method = target[key] as unknown;
      if (typeof method !== "function") return method;
      return async (...args: unknown[]) => {
        const when = fails(key);
        if (when === "before") throw new StoreError("busy");
        const answer = await method.apply(target, args);
        if (when === "after") throw new StoreError("answer lost", { outcomeUnknown: true });
        return answer;
      };
    },
  });
}

/** Fails the first `times` calls of one method. */
function first(times: number, method: string, when: "before" | "after") {
  let calls = 0;
  return (called: string) => called === method && calls++ < times ? when : null;
}

forEachStore("a worker executes as many runs at the same time as it may", async ({ store, host }) => {
  const gates: (() => void)[] = [];
  let active = 0;
  let most = 0;
  const job = aJob((step) =>
    step.run("slow", async () => {
      most = Math.max(most, ++active);
      await new Promise<void>((resolve) => gates.push(resolve));
      active -= 1;
    })
  );
  await using engine = createEngine({ store, host, jobs: { job }, worker: { concurrency: 2 } });
  await engine.start();
  const runs = await engine.jobs.job.batchTrigger(Array.from({ length: 5 }, (_, input) => ({ input })));

  for (let ended = 0; ended < 5; ended++) {
    await host.settle();
    assert.equal(active, Math.min(2, 5 - ended));
    gates.shift()!();
  }
  await Promise.all(runs.map(({ id }) => engine.waitForRun(id)));

  assert.equal(most, 2);
});

forEachStore("a worker fills all its slots from one look", async ({ store, host }) => {
  const job = aJob((_step, input) => input);
  await using engine = createEngine({ store, host, jobs: { job }, worker: { concurrency: 7 } });
  const runs = await engine.jobs.job.batchTrigger(Array.from({ length: 50 }, (_, input) => ({ input })));

  await engine.start();
  const ended = await Promise.all(runs.map(({ id }) => engine.waitForRun(id)));

  assert.deepEqual(ended.map(({ output }) => output), runs.map((_, n) => n));
});

forEachStore("a worker takes runs in the order of their triggers, the interrupted as well", async ({ store, host }) => {
  const order: unknown[] = [];
  const jobs = {
    one: aJob((_step, input) => order.push(input), "one"),
    two: aJob((_step, input) => order.push(input), "two"),
  };
  await using engine = createEngine({ store, host, jobs, worker: { concurrency: 1 } });
  for (const [input, job] of ["one", "two", "two", "one", "two"].entries()) await engine.trigger(job, input);
  await claimOne(store, "one");
  host.advance(LEASE_MS);

  await engine.runUntilIdle();

  assert.deepEqual(order, [0, 1, 2, 3, 4]);
});

forEachStore("a worker leaves runs of unknown jobs pending, and their keys to others", async ({ store, host }) => {
  const known = aJob(() => "done", "known");
  await using other = createEngine({ store, host, jobs: { unknown: aJob(() => 1, "unknown") } });
  await using engine = createEngine({ store, host, jobs: { known } });
  const unknown = await other.trigger("unknown", 1, { concurrencyKey: "line" });
  const behind = await engine.trigger("known", 1, { concurrencyKey: "line" });
  await engine.start();

  const run = await engine.waitForRun(behind.id);
  await pass(host, 60_000, 5_000);

  assert.equal(run.output, "done");
  assert.equal((await engine.getRun(unknown.id))!.status, "pending");
});

forEachStore("a worker executes runs of one key one after another, whatever their job", async ({ store, host }) => {
  const log: string[] = [];
  const body = async (step: StepContext, input: unknown) => {
    log.push(`begin ${input}`);
    await step.run("work", () => host.settle());
    log.push(`end ${input}`);
  };
  const jobs = { one: aJob(body, "one"), two: aJob(body, "two") };
  await using engine = createEngine({ store, host, jobs });
  for (const [input, job] of (["one", "two", "one", "two"] as const).entries()) {
    await engine.trigger(job, input, { concurrencyKey: "line" });
  }
  await engine.trigger("one", "free");

  await engine.runUntilIdle();

  const keyed = log.filter((line) => !line.endsWith("free"));
  assert.deepEqual(keyed, [0, 1, 2, 3].flatMap((input) => [`begin ${input}`, `end ${input}`]));
  assert.ok(log.indexOf("begin free") < log.indexOf("begin 1"));
});

forEachStore("a worker does not execute a key again before a cancelled body has ended", async ({ store, host }) => {
  const { job, reached, releaseKey } = aGate();
  const next = aJob(() => "next", "next");
  await using engine = createEngine({ store, host, jobs: { job, next } });
  await engine.start();
  const cancelled = await engine.trigger("job", 1, { concurrencyKey: "line" });
  await reached;
  const behind = await engine.trigger("next", 2, { concurrencyKey: "line" });

  await engine.cancel(cancelled.id);
  await pass(host, 5_000, 500);
  const whileItRuns = (await engine.getRun(behind.id))!.status;
  releaseKey("late");
  const run = await engine.waitForRun(behind.id);

  assert.equal(whileItRuns, "pending");
  assert.equal(run.output, "next");
});

forEachStore("a worker executes a key again when a cancelled body hangs and its lease is over", async (context) => {
  const { store, host } = context;
  const { job, reached } = aGate();
  const next = aJob(() => "next", "next");
  const engine = createEngine({ store, host, jobs: { job, next } });
  await engine.start();
  const cancelled = await engine.trigger("job", 1, { concurrencyKey: "line" });
  await reached;
  const behind = await engine.trigger("next", 2, { concurrencyKey: "line" });

  await engine.cancel(cancelled.id);
  await pass(host, LEASE_MS + 2_000, 500);

  assert.equal((await engine.getRun(behind.id))!.status, "completed");
  await stopHard(engine, host);
});

forEachStore("a worker begins a run that is triggered beside it without a moment's delay", async ({ store, host }) => {
  const job = aJob(() => "done");
  await using engine = createEngine({ store, host, jobs: { job } });
  await engine.start();
  await host.settle();

  const { id } = await engine.trigger(job, 1);
  const run = await engine.waitForRun(id);

  assert.equal(run.completedAt, run.createdAt);
});

forEachStore("a worker finds runs that another engine has triggered", async ({ store, host }) => {
  const job = aJob(() => "done");
  await using engine = createEngine({ store, host, jobs: { job }, worker: { pollingInterval: 1_000 } });
  await using other = createEngine({ store, host, jobs: { job } });
  await engine.start();
  await host.settle();

  const { id } = await other.trigger(job, 1);
  await pass(host, 1_200, 100);

  assert.equal((await engine.getRun(id))!.status, "completed");
});

forEachStore("a worker takes over a run whose lease has expired, and not before", async ({ store, host }) => {
  const job = aJob((step) => step.execution);
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, 1);
  await claimOne(store, "job");
  await engine.start();

  await pass(host, LEASE_MS - 1, 1_000);
  const before = (await engine.getRun(id))!;
  await pass(host, 2, 1);
  const after = (await engine.getRun(id))!;

  assert.deepEqual([before.status, before.leaseOwner], ["running", "dead-worker"]);
  assert.deepEqual([after.status, after.output, after.leaseOwner], ["completed", 2, null]);
});

forEachStore("a worker renews its leases, and tells of it", async ({ store, host }) => {
  const { job, reached, releaseKey, calls } = aGate();
  await using engine = createEngine({ store, host, jobs: { job } });
  await using other = createEngine({ store, host, jobs: { job } });
  await other.start();
  await engine.start();
  const renewals: number[] = [];
  engine.on("run:lease-renewed", (event) => void renewals.push(Date.parse(event.leaseExpiresAt)));
  other.on("run:lease-renewed", (event) => void renewals.push(Date.parse(event.leaseExpiresAt)));
  const { id } = await engine.trigger(job, 1);
  await reached;

  await pass(host, 3 * LEASE_MS, 1_000);
  const run = (await engine.getRun(id))!;
  releaseKey("done");
  await host.settle();

  assert.equal(calls(), 1);
  assert.equal(run.leaseGeneration, 1);
  assert.ok(renewals.length >= 17, `${renewals.length} renewals in 90 s`);
  assert.equal(Date.parse(run.leaseExpiresAt!), renewals.at(-1));
  assert.equal((await engine.getRun(id))!.output, "done");
});

forEachStore("a worker stops renewing when it executes nothing", async ({ store, host }) => {
  let renewals = 0;
  const counting = failing(store, (method) => (method === "renew" && renewals++, null));
  const { job, reached, releaseKey } = aGate();
  await using engine = createEngine({ store: counting, host, jobs: { job } });
  await engine.start();
  const { id } = await engine.trigger(job, 1);
  await reached;
  await pass(host, 10_000, 1_000);
  releaseKey(1);
  await engine.waitForRun(id);
  const before = renewals;

  await pass(host, 60_000, 1_000);

  assert.deepEqual([before, renewals], [3, 3]); // the first one says that the step has begun
});

forEachStore("an early renewal leaves out a step that has only just begun", async ({ store, host }) => {
  const gate = Promise.withResolvers<void>();
  const job = aJob((step) => step.run("slow", () => gate.promise));
  await using engine = createEngine({ store, host, jobs: { job } });
  await engine.start();
  const renewed: string[] = [];
  engine.on("run:lease-renewed", ({ runId }) => void renewed.push(runId));
  const begin = async () => {
    const begun = nextEvent(engine, "step:start");
    await engine.trigger(job, 1);
    return (await begun).runId;
  };
  const first = await begin();
  await pass(host, 15, 5);
  const second = await begin();

  await pass(host, 10, 5);
  const early = [...renewed];
  await pass(host, 200, 10);

  assert.deepEqual([early, renewed], [[first], [first, second]]);
  gate.resolve();
  await host.settle();
});

forEachStore("a renewal keeps the progress that no write has kept yet", async ({ store, host }) => {
  const reached = Promise.withResolvers<void>();
  const gate = Promise.withResolvers<void>();
  const job = aJob((step) =>
    step.run("slow", () => {
      step.progress(3, 4);
      reached.resolve();
      return gate.promise;
    })
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  await engine.start();
  const { id } = await engine.trigger(job, 1);
  await reached.promise;

  await pass(host, 5_000, 1_000);

  assert.deepEqual((await engine.getRun(id))!.progress, { current: 3, total: 4 });
  gate.resolve();
  await engine.waitForRun(id);
});

forEachStore("a lost lease fires the abort signal, and the run goes on under a new one", async ({ store, host }) => {
  const signals: AbortSignal[] = [];
  const gate = Promise.withResolvers<string>();
  const job = aJob((step) =>
    step.run("work", ({ abortSignal }) => {
      signals.push(abortSignal);
      return step.execution === 1 ? gate.promise : "second";
    })
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  await engine.start();
  const { id } = await engine.trigger(job, 1);
  await host.settle();

  await store.revoke(await store.getLeases());
  await pass(host, 10_000, 500);
  gate.resolve("first, late");
  await host.settle();

  assert.ok(signals[0]!.reason instanceof LeaseLostError);
  const run = (await engine.getRun(id))!;
  assert.deepEqual([run.status, run.output], ["completed", "second"]);
  const outputs = events.flatMap((event): unknown[] => event.type === "step:complete" ? [event.output] : []);
  assert.deepEqual(outputs, ["second"]);
});

forEachStore("a worker that takes over a run of its own ends what it did before", async ({ store, host }) => {
  const signals: AbortSignal[] = [];
  const gate = Promise.withResolvers<string>();
  const job = aJob((step) =>
    step.run("work", ({ abortSignal }) => {
      signals.push(abortSignal);
      return step.execution === 1 ? gate.promise : "second";
    })
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  await engine.start();
  const { id } = await engine.trigger(job, 1);
  await host.settle();

  await store.revoke(await store.getLeases());
  await engine.trigger(job, 2); // makes it look before its next heartbeat
  await host.settle();
  const isAborted = signals[0]!.aborted;
  gate.resolve("first, late");
  const run = await engine.waitForRun(id);

  assert.equal(isAborted, true);
  assert.equal(run.output, "second");
});

forEachStore("a write under a lost lease is refused, and no event tells of it", async ({ store, host }) => {
  const gate = Promise.withResolvers<string>();
  const job = aJob(async (step) => {
    const value = await step.run("work", () => step.execution === 1 ? gate.promise : "second");
    await step.run("after", () => {});
    return value;
  });
  const zombie = createEngine({ store, host: new FakeHost(), jobs: { job } });
  const events = recordEvents(zombie);
  const { id } = await zombie.trigger(job, 1);
  const idle = zombie.runUntilIdle();
  await nextEvent(zombie, "step:start");
  await host.settle();
  host.advance(LEASE_MS);
  await using engine = createEngine({ store, host, jobs: { job } });
  await engine.runUntilIdle();

  gate.resolve("first, late");
  await idle;

  const run = (await engine.getRun(id))!;
  assert.equal(run.output, "second");
  const types = events.map(({ type }) => type);
  assert.deepEqual(types, ["run:trigger", "run:leased", "run:start", "step:start"]);
  assert.deepEqual((await engine.getSteps(id)).map(({ output }) => output), ["second", null]);
  await zombie.stop();
});

forEachStore("an ending under a lost lease is refused, and no event tells of it", async ({ store, host }) => {
  const gate = Promise.withResolvers<string>();
  const reached = Promise.withResolvers<void>();
  const job = aJob((step) => {
    reached.resolve();
    return step.execution === 1 ? gate.promise : "second";
  });
  const zombie = createEngine({ store, host: new FakeHost(), jobs: { job } });
  const events = recordEvents(zombie);
  const { id } = await zombie.trigger(job, 1);
  const idle = zombie.runUntilIdle();
  await reached.promise;
  await host.settle();
  host.advance(LEASE_MS);
  await using engine = createEngine({ store, host, jobs: { job } });
  await engine.runUntilIdle();

  gate.resolve("first, late");
  await idle;

  assert.equal((await engine.getRun(id))!.output, "second");
  assert.ok(events.every(({ type }) => type !== "run:complete"));
  await zombie.stop();
});

for (const when of ["before", "after"] as const) {
  for (const method of ["saveStep", "finish"]) {
    forEachStore(`a store that fails ${when} it has carried out ${method}() fails no run`, async ({ store, host }) => {
      let calls = 0;
      const job = aJob((step) => step.run("work", () => ++calls));
      const flaky = failing(store, first(3, method, when));
      await using engine = createEngine({ store: flaky, host, jobs: { job } });
      const events = recordEvents(engine);
      await engine.start();
      const { id } = await engine.trigger(job, 1);

      await pass(host, 2_000, 20);

      const run = (await engine.getRun(id))!;
      assert.deepEqual([run.status, run.output, calls], ["completed", 1, 1]);
      // What was reported is written by a renewal while the step cannot be saved.
      const types = events.map(({ type }) => type).filter((type) => type !== "run:lease-renewed");
      assert.deepEqual(types, [
        "run:trigger",
        "run:leased",
        "run:start",
        "step:start",
        ...(method === "saveStep" ? Array(3).fill("worker:error") : []),
        "step:complete",
        ...(method === "finish" ? Array(3).fill("worker:error") : []),
        "run:complete",
      ]);
      assert.equal((await engine.getSteps(id)).length, 1);
    });

    forEachStore(`a store that fails ${when} ${method}() of a failure tells it once`, async ({ store, host }) => {
      const job = aJob((step) => step.run("work", () => Promise.reject(new Error("broken"))));
      const flaky = failing(store, first(2, method, when));
      await using engine = createEngine({ store: flaky, host, jobs: { job } });
      const events = recordEvents(engine);
      await engine.start();
      const { id } = await engine.trigger(job, 1);

      await pass(host, 2_000, 20);

      const run = (await engine.getRun(id))!;
      assert.deepEqual([run.status, run.error], ["failed", "broken"]);
      const told = events.map(({ type }) => type).filter((type) => /^(step|run):fail$/.test(type));
      assert.deepEqual(told, ["step:fail", "run:fail"]);
    });
  }

  forEachStore(`a store that fails ${when} it has carried out claim() loses no run`, async ({ store, host }) => {
    const executions: number[] = [];
    const job = aJob((step) => executions.push(step.execution));
    const flaky = failing(store, first(3, "claim", when));
    await using engine = createEngine({ store: flaky, host, jobs: { job } });
    const runs = await engine.jobs.job.batchTrigger([{ input: 1 }, { input: 2 }]);
    await engine.start();

    await pass(host, 5_000, 100);

    const stands = await Promise.all(runs.map(({ id }) => engine.getRun(id)));
    assert.deepEqual(stands.map((run) => run!.status), ["completed", "completed"]);
    assert.deepEqual(executions, [1, 1]);
  });

  forEachStore(`a store that fails ${when} it has carried out renew() costs no lease`, async ({ store, host }) => {
    const { job, reached, releaseKey, calls } = aGate();
    const flaky = failing(store, first(4, "renew", when));
    await using engine = createEngine({ store: flaky, host, jobs: { job } });
    await using other = createEngine({ store, host, jobs: { job } });
    const errors: unknown[] = [];
    engine.on("worker:error", ({ error }) => void errors.push(error));
    await engine.start();
    const { id } = await engine.trigger(job, 1);
    const abortSignal = await reached;
    await other.start();

    await pass(host, 2 * LEASE_MS, 500);
    releaseKey("done");
    const run = await engine.waitForRun(id);

    assert.deepEqual([abortSignal.aborted, calls(), errors.length], [false, 1, 4]);
    assert.equal(run.leaseGeneration, 1);
  });
}

forEachStore(
  "a claim that is answered after its leases have ended begins nothing before they are renewed",
  async (context) => {
    const { store, host } = context;
    let claims = 0;
    let isDown = true;
    const flaky = failing(store, (method) => {
      if (method !== "claim" || !isDown) return null;
      return claims++ === 0 ? "after" : "before";
    });
    const job = aJob(async (step) => {
      const { leaseExpiresAt } = (await store.getRun(step.runId))!;
      return [step.execution, Date.parse(leaseExpiresAt!) - host.now()];
    });
    await using engine = createEngine({ store: flaky, host, jobs: { job } });
    const { id } = await engine.trigger(job, 1);
    await engine.start();

    await pass(host, LEASE_MS + 1_000, 1_000);
    isDown = false;
    await pass(host, 2_000, 1_000);

    assert.deepEqual((await engine.getRun(id))!.output, [1, LEASE_MS]);
  },
);

forEachStore("a store that fails for longer than a lease costs the lease, but not the run", async ({ store, host }) => {
  let isDown = false;
  const gate = Promise.withResolvers<string>();
  const signals: AbortSignal[] = [];
  const job = aJob((step) =>
    step.run("work", ({ abortSignal }) => {
      signals.push(abortSignal);
      return step.execution === 1 ? gate.promise : "second";
    })
  );
  const flaky = failing(store, () => isDown ? "before" : null);
  await using engine = createEngine({ store: flaky, host, jobs: { job } });
  const events = recordEvents(engine);
  await engine.start();
  const { id } = await engine.trigger(job, 1);
  await host.settle();

  isDown = true;
  await pass(host, 2 * LEASE_MS, 500);
  gate.resolve("first, late");
  await pass(host, 10_000, 500);
  const isAborted = signals[0]!.aborted;
  isDown = false;
  await pass(host, LEASE_MS, 500);

  assert.equal(isAborted, true);
  const run = (await engine.getRun(id))!;
  assert.deepEqual([run.status, run.output], ["completed", "second"]);
  assert.equal(events.filter(({ type }) => type === "run:complete").length, 1);
});

forEachStore("a renewal that is never answered costs the lease", async ({ store, host }) => {
  const { job, reached } = aGate();
  const silent = new Proxy(store, {
    get: (target, key: keyof Store) => {
      if (key === "renew") return forever;
      return typeof target[key] === "function" ? target[key].bind(target) : target[key];
    },
  });
  const engine = createEngine({ store: silent, host, jobs: { job } });
  await engine.trigger(job, 1);
  await engine.start();
  const abortSignal = await reached;

  await pass(host, LEASE_MS - 1_000, 1_000);
  const isAbortedEarly = abortSignal.aborted;
  await pass(host, 12_000, 1_000);
  const isAborted = abortSignal.aborted;
  await stopHard(engine, host);

  assert.deepEqual([isAbortedEarly, isAborted], [false, true]);
});

forEachStore("a blocked event loop is told by worker:error", async ({ store, host }) => {
  let blockedMs = 0;
  const blockable: Host = {
    now: () => host.now(),
    monotonic: () => host.monotonic() + blockedMs,
    schedule: (ms, callback) => host.schedule(ms, callback),
    defer: (callback) => host.defer(callback),
    random: () => host.random(),
    newId: () => host.newId(),
  };
  const { job, reached, releaseKey } = aGate();
  await using engine = createEngine({ store, host: blockable, jobs: { job } });
  const told = nextEvent(engine, "worker:error");
  const { id } = await engine.trigger(job, 1);
  await engine.start();
  await reached;

  blockedMs = 10_000;
  await pass(host, 5_000, 1_000);

  assert.match(String((await told).error), /blocked for 10000 ms/);
  releaseKey(1);
  await engine.waitForRun(id);
});

forEachStore("stop() lets the executing step end, and begins no other", async ({ store, host }) => {
  const calls: string[] = [];
  const reached = Promise.withResolvers<void>();
  const gate = Promise.withResolvers<void>();
  const job = aJob(async (step) => {
    await step.run("first", () => {
      calls.push("first");
      reached.resolve();
      return gate.promise;
    });
    await step.run("second", () => calls.push("second"));
  });
  const engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, 1);
  await engine.start();
  await reached.promise;

  const stopping = engine.stop();
  await host.settle();
  gate.resolve();
  await stopping;

  assert.deepEqual(calls, ["first"]);
  const run = (await engine.getRun(id))!;
  assert.deepEqual([run.status, run.leaseOwner], ["pending", null]);
  assert.deepEqual(events.map(({ type }) => type).slice(-2), ["step:start", "step:complete"]);
  await using next = createEngine({ store, host, jobs: { job } });
  await next.runUntilIdle();
  assert.deepEqual(calls, ["first", "second"]);
});

forEachStore("stop() lets a run complete whose last step ends in time", async ({ store, host }) => {
  const { job, reached, releaseKey } = aGate();
  const engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, 1);
  await engine.start();
  await reached;

  const stopping = engine.stop();
  releaseKey("done");
  await stopping;

  assert.equal((await engine.getRun(id))!.output, "done");
});

forEachStore("stop() claims nothing more", async ({ store, host }) => {
  const { job, reached, releaseKey } = aGate();
  const next = aJob(() => 1, "next");
  const engine = createEngine({ store, host, jobs: { job, next }, worker: { concurrency: 1 } });
  await engine.trigger("job", 1);
  await engine.start();
  await reached;

  const stopping = engine.stop();
  const { id } = await engine.trigger("next", 1);
  releaseKey(1);
  await stopping;

  assert.equal((await engine.getRun(id))!.status, "pending");
});

forEachStore("stop() aborts what does not end in time, and others take over at once", async ({ store, host }) => {
  const signals: AbortSignal[] = [];
  const gate = Promise.withResolvers<string>();
  const job = aJob((step) =>
    step.run("work", ({ abortSignal }) => {
      signals.push(abortSignal);
      return step.execution === 1 ? gate.promise : "second";
    })
  );
  const engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, 1);
  await engine.start();
  await host.settle();

  const stopping = engine.stop({ timeout: 5_000 });
  await pass(host, 4_900, 100);
  const isAbortedEarly = signals[0]!.aborted;
  await pass(host, 1_000, 100);
  await stopping;
  await using next = createEngine({ store, host, jobs: { job } });
  await next.runUntilIdle();
  gate.resolve("first, late");
  await host.settle();

  assert.equal(isAbortedEarly, false);
  const { reason } = signals[0]!;
  assert.ok(reason instanceof HoldfastError && !(reason instanceof LeaseLostError));
  assert.deepEqual((await next.getSteps(id)).map(({ output }) => output), ["second"]);
  assert.equal((await next.getRun(id))!.output, "second");
});

forEachStore("stop() keeps what a step returns when it is aborted, and not what it throws", async ({ store, host }) => {
  const whenAborted = (signal: AbortSignal, then: () => void) => signal.addEventListener("abort", then);
  const job = aJob((step) =>
    Promise.all([
      step.run("returns", ({ abortSignal }) =>
        new Promise<string>((resolve) => whenAborted(abortSignal, () => resolve("kept")))),
      step.run("throws", ({ abortSignal }) =>
        step.execution > 1
          ? "second"
          : new Promise<string>((_resolve, reject) =>
            whenAborted(abortSignal, () =>
              reject(new Error("aborted")))
          )),
    ])
  );
  const engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, 1);
  await engine.start();
  await host.settle();

  await stopHard(engine, host);

  const steps = await engine.getSteps(id);
  assert.deepEqual(steps.map(({ name, status, output }) => [name, status, output]), [["returns", "completed", "kept"]]);
  assert.ok(events.every(({ type }) => type !== "step:fail" && type !== "run:fail"));
  await using next = createEngine({ store, host, jobs: { job } });
  await next.runUntilIdle();
  assert.deepEqual((await next.getRun(id))!.output, ["kept", "second"]);
});

/** A job that does something outside of its steps, which goes on when it is let go. */
function anOutsideJob(after: (step: StepContext) => unknown = () => "done") {
  const reached = Promise.withResolvers<AbortSignal>();
  const gate = Promise.withResolvers<void>();
  const bodies: number[] = [];
  let active = 0;
  const job = aJob(async (step) => {
    bodies.push(++active);
    reached.resolve(step.abortSignal);
    await gate.promise;
    active -= 1;
    return await after(step);
  });
  return { job, reached: reached.promise, releaseKey: gate.resolve, bodies };
}

forEachStore(
  "stop() lets code outside of steps go on to the next step, then releases the run",
  async ({ store, host }) => {
    let calls = 0;
    const { job, reached, releaseKey, bodies } = anOutsideJob((step) => step.run("after", () => ++calls));
    const engine = createEngine({ store, host, jobs: { job } });
    await using other = createEngine({ store, host, jobs: { job } });
    const { id } = await engine.trigger(job, 1, { concurrencyKey: "one" });
    await engine.start();
    const abortSignal = await reached;
    await other.start();

    const stopping = engine.stop();
    await pass(host, 5_000, 500);
    const before = { isAborted: abortSignal.aborted, status: (await store.getRun(id))!.status, bodies: [...bodies] };
    releaseKey();
    await stopping;
    await pass(host, 2_000, 100);
    await other.waitForRun(id);

    assert.deepEqual(before, { isAborted: false, status: "running", bodies: [1] });
    assert.deepEqual(bodies, [1, 1]); // never two at once
    assert.equal(calls, 1);
  },
);

forEachStore("stop() lets code outside of steps go on to the job's end", async ({ store, host }) => {
  const { job, reached, releaseKey } = anOutsideJob();
  const engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, 1);
  await engine.start();
  await reached;

  const stopping = engine.stop();
  await pass(host, 2_000, 500);
  releaseKey();
  await stopping;

  assert.equal((await store.getRun(id))!.output, "done");
});

forEachStore("stop() lets a job go on after a step that was being executed", async ({ store, host }) => {
  const gate = Promise.withResolvers<void>();
  const between = Promise.withResolvers<void>();
  const { job, reached, releaseKey } = aGate();
  const longer = aJob(async (step, input) => {
    await job.run(step, input);
    between.resolve();
    await gate.promise;
    return "done";
  });
  const engine = createEngine({ store, host, jobs: { longer } });
  const { id } = await engine.trigger(longer, 1);
  await engine.start();
  await reached;

  const stopping = engine.stop();
  releaseKey("result");
  await between.promise;
  await pass(host, 2_000, 500);
  gate.resolve();
  await stopping;

  assert.equal((await store.getRun(id))!.output, "done");
});

forEachStore(
  "stop() aborts a job that comes to no checkpoint in time, by default after 8 s",
  async ({ store, host }) => {
    const reached = Promise.withResolvers<AbortSignal>();
    const job = aJob((step) => {
      reached.resolve(step.abortSignal);
      return new Promise((resolve) => step.abortSignal.addEventListener("abort", resolve));
    });
    const engine = createEngine({ store, host, jobs: { job } });
    const { id } = await engine.trigger(job, 1);
    await engine.start();
    const abortSignal = await reached.promise;

    const stopping = engine.stop();
    await pass(host, 7_900, 100);
    const before = abortSignal.aborted;
    await pass(host, 1_000, 100);
    await stopping;

    assert.deepEqual([before, abortSignal.aborted], [false, true]);
    assert.equal((await store.getRun(id))!.status, "pending");
  },
);

forEachStore(
  "stop() keeps the key of a cancelled run whose step does not end, until it is out of time",
  async (context) => {
    const { store, host } = context;
    const { job, reached } = aGate();
    const engine = createEngine({ store, host, jobs: { job } });
    const { id } = await engine.trigger(job, 1, { concurrencyKey: "one" });
    await engine.start();
    await reached;
    await engine.cancel(id);
    await pass(host, 1_000, 100);

    const stopping = engine.stop({ timeout: 5_000 });
    await pass(host, 4_000, 500);
    const during = (await store.getLeases()).length;
    await pass(host, 3_000, 500);
    await stopping;

    assert.deepEqual([during, (await store.getLeases()).length], [1, 0]);
  },
);

forEachStore("stop() lets no branch go on when another has come to its checkpoint", async ({ store, host }) => {
  const gate = Promise.withResolvers<void>();
  const begun = Promise.withResolvers<void>();
  let isPast = false;
  const job = aJob((step) =>
    Promise.all([
      gate.promise.then(() => step.run("other", () => 1)),
      step.run("slow", async () => {
        begun.resolve();
        await gate.promise;
        await new Promise<void>((resolve) => host.schedule(100, resolve));
      }).then(() => isPast = true),
    ])
  );
  const engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, 1);
  await engine.start();
  await begun.promise;

  const stopping = engine.stop();
  await host.settle();
  gate.resolve();
  await pass(host, 300, 20);
  await stopping;

  assert.deepEqual((await store.getSteps(id)).map(({ name, status }) => [name, status]), [["slow", "completed"]]);
  assert.equal(isPast, false);
});

forEachStore("stop() keeps progress that no step has kept yet", async ({ store, host }) => {
  const { job, reached, releaseKey } = anOutsideJob((step) => {
    step.progress(5, 9);
    return step.run("after", () => 1);
  });
  const engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, 1);
  await engine.start();
  await reached;

  const stopping = engine.stop();
  await host.settle();
  releaseKey();
  await stopping;

  const { status, progress } = (await store.getRun(id))!;
  assert.deepEqual([status, progress], ["pending", { current: 5, total: 9 }]);
});

forEachStore("a cancel keeps progress that no step has kept yet", async ({ store, host }) => {
  const { job, reached, releaseKey } = aGate();
  const reporting = aJob(async (step, input) => {
    step.progress(3);
    await job.run(step, input);
  });
  await using engine = createEngine({ store, host, jobs: { reporting } });
  const { id } = await engine.trigger(reporting, 1);
  await engine.start();
  await reached;

  const run = await engine.cancel(id);
  releaseKey("late");

  assert.deepEqual([run.status, run.progress], ["cancelled", { current: 3 }]);
});

forEachStore("stop() releases a run although the store fails once", async ({ store, host }) => {
  const flaky = failing(store, first(1, "release", "before"));
  const { job, reached, releaseKey } = anOutsideJob((step) => step.run("after", () => 1));
  const engine = createEngine({ store: flaky, host, jobs: { job } });
  const { id } = await engine.trigger(job, 1);
  await engine.start();
  await reached;

  const stopping = engine.stop();
  await host.settle();
  releaseKey();
  await pass(host, 1_000, 50);
  await stopping;

  assert.equal((await store.getRun(id))!.status, "pending");
  assert.equal(host.timerCount, 0);
});

forEachStore("stop() does not wait longer than its timeout for a purge and for log lines", async ({ store, host }) => {
  const hanging = new Proxy(store, {
    get: (target, key: keyof Store) => {
      if (key === "purge" || key === "appendLogs") return () => forever();
      const value = target[key] as unknown;
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
  const job = aJob((step) => step.log.info("a line"));
  const engine = createEngine({ store: hanging, host, jobs: { job }, retention: { completed: 0 } });
  engine.use(persistLogs());
  const { id } = await engine.trigger(job, 1);
  await engine.start();
  await engine.waitForRun(id);

  let hasStopped = false;
  const stopping = engine.stop({ timeout: 1_000 }).then(() => hasStopped = true);
  await pass(host, 2_100, 100);

  assert.equal(hasStopped, true);
  await stopping;
});

forEachStore("a worker that polls seldom counts as alive", async ({ store, host }) => {
  const job = aJob(() => 1);
  const worker = { pollingInterval: 60_000, heartbeatInterval: 100, staleThreshold: 300 };
  await using engine = createEngine({ store, host, jobs: { job }, worker });
  await engine.start();
  await host.settle();

  const isAlive = [];
  for (let n = 0; n < 10; n++) {
    await pass(host, 290, 10);
    isAlive.push(await store.hasWorker("job"));
  }

  assert.deepEqual(new Set(isAlive), new Set([true]));
});

forEachStore("progress that an earlier write has overtaken is kept again soon", async ({ store, host }) => {
  const saving = Promise.withResolvers<void>();
  const mayEnd = Promise.withResolvers<void>();
  let holds = true;
  // The write of a step that was sent before the latest report is carried out after the renewal that keeps the report.
  const slow = new Proxy(store, {
    get: (target, key: keyof Store) => {
      const value = target[key] as unknown;
      if (typeof value !== "function") return value;
      if (key !== "saveStep") return value.bind(target);
      return async (...parameters: unknown[]) => {
        if (holds) {
          holds = false;
          saving.resolve();
          await mayEnd.promise;
        }
        return await value.apply(target, parameters);
      };
    },
  });
  const { job: gate, reached, releaseKey } = aGate();
  const job = aJob(async (step, input) => {
    step.progress(1);
    const quick = step.run("quick", () => 1);
    await saving.promise;
    step.progress(2);
    await quick;
    await gate.run(step, input);
  });
  await using engine = createEngine({ store: slow, host, jobs: { job } });
  const { id } = await engine.trigger(job, 1);
  await engine.start();
  await saving.promise;

  await pass(host, 300, 50);
  mayEnd.resolve();
  await reached;
  await pass(host, 250, 50);
  const { progress } = (await store.getRun(id))!;
  releaseKey("done");
  await engine.waitForRun(id);

  assert.deepEqual(progress, { current: 2 });
});

forEachStore("a cancelled run keeps its key while code outside of steps goes on", async ({ store, host }) => {
  const { job, reached, releaseKey, bodies } = anOutsideJob((step) => step.run("after", () => 1));
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, 1, { concurrencyKey: "one" });
  await engine.start();
  await reached;
  const next = await engine.trigger(job, 2, { concurrencyKey: "one" });

  await engine.cancel(id);
  await pass(host, 2_000, 200);
  const during = (await store.getRun(next.id))!.status;
  releaseKey();
  await pass(host, 2_000, 200);

  assert.equal(during, "pending");
  assert.equal((await store.getRun(next.id))!.status, "completed");
  assert.deepEqual(bodies, [1, 1]);
});

forEachStore("a worker hears within 250 ms that another process has cancelled a run", async ({ store, host }) => {
  const { job, reached, releaseKey } = aGate();
  await using engine = createEngine({ store, host, jobs: { job } });
  await using other = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, 1);
  await engine.start();
  const abortSignal = await reached;

  await other.cancel(id);
  await pass(host, 250, 10);
  const isAborted = abortSignal.aborted;
  releaseKey("late");
  await host.settle();

  assert.equal(isAborted, true);
});

forEachStore("a worker keeps progress soon, although nothing else is written", async ({ store, host }) => {
  const { job, reached, releaseKey } = aGate();
  const reporting = aJob(async (step, input) => {
    step.progress(1, 3);
    await job.run(step, input);
  });
  await using engine = createEngine({ store, host, jobs: { reporting } });
  const { id } = await engine.trigger(reporting, 1);
  await engine.start();
  await reached;

  await pass(host, 250, 50);
  const { progress } = (await store.getRun(id))!;
  releaseKey("done");
  await engine.waitForRun(id);

  assert.deepEqual(progress, { current: 1, total: 3 });
});

forEachStore("a worker keeps progress that the store could not take, as soon as it can", async ({ store, host }) => {
  let isDown = true;
  const flaky = failing(store, (method) => isDown && method === "renew" ? "before" : null);
  const { job, reached, releaseKey } = aGate();
  const reporting = aJob(async (step, input) => {
    step.progress(1);
    await job.run(step, input);
  });
  await using engine = createEngine({ store: flaky, host, jobs: { reporting } });
  const { id } = await engine.trigger(reporting, 1);
  await engine.start();
  await reached;

  await pass(host, 500, 50);
  isDown = false;
  await pass(host, 1_200, 100);
  const { progress } = (await store.getRun(id))!;
  releaseKey("done");
  await engine.waitForRun(id);

  assert.deepEqual(progress, { current: 1 });
});

forEachStore("a worker renews early only for reports that nothing else has kept", async ({ store, host }) => {
  let renewals = 0;
  const counting = failing(store, (method) => {
    if (method === "renew") renewals += 1;
    return null;
  });
  const { job, reached, releaseKey } = aGate();
  const reporting = aJob(async (step, input) => {
    step.progress(1);
    await step.run("quick", () => 1);
    await job.run(step, input);
  });
  await using engine = createEngine({ store: counting, host, jobs: { reporting } });
  const { id } = await engine.trigger(reporting, 1);
  await engine.start();
  await reached;

  await pass(host, 1_000, 50);
  releaseKey("done");
  await engine.waitForRun(id);

  assert.equal(renewals, 1); // which says that the long step has begun
});

forEachStore("stop() ends although the store fails", async ({ store, host }) => {
  let isDown = false;
  const { job, reached } = aGate();
  const flaky = failing(store, () => isDown ? "before" : null);
  const engine = createEngine({ store: flaky, host, jobs: { job } });
  await engine.trigger(job, 1);
  await engine.start();
  await reached;
  isDown = true;

  await stopHard(engine, host);

  assert.equal((await store.getRuns({})).runs[0]!.status, "running");
});

forEachStore("stop() leaves no timer behind", async ({ store, host }) => {
  let timers = 0;
  const counted: Host = {
    now: () => host.now(),
    monotonic: () => host.monotonic(),
    schedule: (ms, callback) => {
      timers += 1;
      let isOpen = true;
      const close = () => {
        if (isOpen) timers -= 1;
        isOpen = false;
      };
      const cancel = host.schedule(ms, () => {
        close();
        callback();
      });
      return () => {
        close();
        cancel();
      };
    },
    defer: (callback) => host.defer(callback),
    random: () => host.random(),
    newId: () => host.newId(),
  };
  const job = aJob((step) => step.run("work", () => 1));
  const engine = createEngine({ store, host: counted, jobs: { job }, retention: { completed: 1_000 } });
  await engine.start();
  const { id } = await engine.trigger(job, 1);
  await engine.waitForRun(id, { timeout: 1_000 });
  const reader = engine.subscribe(id).getReader();
  await reader.read();

  await engine.stop();

  assert.equal(timers, 0);
});

forEachStore("a clock that is set back does not strand the run of a dead worker", async ({ store, host }) => {
  const job = aJob((step) => step.execution);
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, 1);
  await claimOne(store, "job");
  host.jump(-3_600_000);
  await engine.start();

  await pass(host, LEASE_MS - 1_000, 1_000);
  const before = (await engine.getRun(id))!.status;
  await pass(host, LEASE_MS, 1_000);

  assert.equal(before, "running");
  const run = (await engine.getRun(id))!;
  assert.deepEqual([run.status, run.output], ["completed", 2]);
});

forEachStore("a clock that is set back does not strand the key of a dead worker's cancelled run", async (context) => {
  const { store, host } = context;
  const job = aJob(() => "done");
  await using engine = createEngine({ store, host, jobs: { job } });
  const cancelled = await engine.trigger(job, 1, { concurrencyKey: "line" });
  const behind = await engine.trigger(job, 2, { concurrencyKey: "line" });
  await claimOne(store, "job");
  await engine.cancel(cancelled.id);
  host.jump(-3_600_000);
  await engine.start();

  await pass(host, 2 * LEASE_MS, 1_000);

  assert.equal((await engine.getRun(behind.id))!.status, "completed");
});

forEachStore("a clock that is set back takes no lease from a worker that lives", async ({ store, host }) => {
  const { job, reached, releaseKey, calls } = aGate();
  await using engine = createEngine({ store, host, jobs: { job } });
  await using other = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, 1);
  await engine.start();
  const abortSignal = await reached;
  await other.start();

  host.jump(-3_600_000);
  await pass(host, 3 * LEASE_MS, 1_000);
  releaseKey("done");
  await host.settle();

  assert.deepEqual([abortSignal.aborted, calls()], [false, 1]);
  const run = (await engine.getRun(id))!;
  assert.deepEqual([run.output, run.leaseGeneration], ["done", 1]);
});

forEachStore("a pending run is claimed whatever the clock says", async ({ store, host }) => {
  const job = aJob(() => "done");
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, 1);
  host.jump(-365 * 86_400_000);

  await engine.runUntilIdle();

  const run = (await engine.getRun(id))!;
  assert.equal(run.status, "completed");
  assert.ok(run.completedAt! < run.createdAt);
});

forEachStore("a clock that is set forward ends leases early, and the old holder writes nothing", async (context) => {
  const { store, host } = context;
  const gate = Promise.withResolvers<string>();
  const job = aJob((step) => step.run("work", () => step.execution === 1 ? gate.promise : "second"));
  await using engine = createEngine({ store, host, jobs: { job } });
  await using other = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, 1);
  await engine.start();
  await nextEvent(engine, "step:start");

  host.jump(3_600_000);
  await other.runUntilIdle();
  gate.resolve("first, late");
  await host.settle();

  assert.equal((await engine.getRun(id))!.output, "second");
});

Deno.test("a job that has blocked the event loop beyond its lease goes on, and does not park before", async () => {
  await using store = await SqliteStore.open(":memory:");
  const job = defineJob({
    name: "job",
    input: z.null(),
    run: (step) =>
      Promise.all([
        step.wait("never"),
        (async () => {
          await step.run("before", () => {});
          Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 400); // blocks: it is not in a step
          await step.run("after", () => {});
        })(),
      ]),
  });
  await using engine = createEngine({ store, jobs: { job }, worker: { heartbeatInterval: 100, staleThreshold: 300 } });
  await engine.start();
  const waiting = nextEvent(engine, "run:waiting");

  const { id } = await engine.trigger(job, null);
  await waiting;

  assert.deepEqual((await engine.getSteps(id)).map(({ name }) => name), ["before", "after"]);
  assert.equal((await engine.getRun(id))!.leaseGeneration, 1);
});

forEachStore(
  "reports that the store does not take are sent again twice a second, not at each moment",
  async ({ store, host }) => {
    let calls = 0;
    const broken = withCalls(store, {
      renew: () => {
        calls += 1;
        return Promise.reject(new StoreError("The disk is full"));
      },
    });
    const ending = Promise.withResolvers<void>();
    const job = defineJob({
      name: "talk",
      input: anything,
      run: (step) => {
        step.log.info("line");
        return ending.promise;
      },
    });
    await using engine = createEngine({ store: broken, host, jobs: { job } });
    await engine.trigger("talk", 1);
    const idle = engine.runUntilIdle();
    await host.settle();

    await pass(host, 4_000, 20);
    const failed = calls;
    ending.resolve();
    await pass(host, 100, 20);
    await idle;

    assert.ok(failed >= 6 && failed <= 10, `${failed} calls in 4 s`);
  },
);
