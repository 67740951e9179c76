import assert from "node:assert/strict";
import { persistLogs } from "../../src/engine/plugin.ts";
import { HoldfastError, LeaseLostError } from "../../src/model/error.ts";
import type { Host } from "../../src/model/host.ts";
import type { Store } from "../../src/store/store.ts";
import { forEachStore, forever, pass, recordEvents } from "../support/stores/for_each_store.ts";
import { createEngine } from "../support/quiet_engine.ts";
import { stopHard } from "../support/engines.ts";
import { failing, first } from "../support/stores/failing_store.ts";
import { aGatedJob, aJob, anOutsideJob } from "../support/jobs.ts";
import { getRun, getRuns, getSteps } from "../../src/store/reads.ts";

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
  const { job, reached, letGo } = aGatedJob();
  const engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, 1);
  await engine.start();
  await reached;

  const stopping = engine.stop();
  letGo("done");
  await stopping;

  assert.equal((await engine.getRun(id))!.output, "done");
});

forEachStore("stop() claims nothing more", async ({ store, host }) => {
  const { job, reached, letGo } = aGatedJob();
  const next = aJob(() => 1, "next");
  const engine = createEngine({ store, host, jobs: { job, next }, worker: { concurrency: 1 } });
  await engine.trigger("job", 1);
  await engine.start();
  await reached;

  const stopping = engine.stop();
  const { id } = await engine.trigger("next", 1);
  letGo(1);
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

forEachStore(
  "stop() lets code outside of steps go on to the next step, then releases the run",
  async ({ store, host }) => {
    let calls = 0;
    const { job, reached, letGo, bodies } = anOutsideJob((step) => step.run("after", () => ++calls));
    const engine = createEngine({ store, host, jobs: { job } });
    await using other = createEngine({ store, host, jobs: { job } });
    const { id } = await engine.trigger(job, 1, { concurrencyKey: "one" });
    await engine.start();
    const abortSignal = await reached;
    await other.start();

    const stopping = engine.stop();
    await pass(host, 5_000, 500);
    const before = { isAborted: abortSignal.aborted, status: (await getRun(store, id))!.status, bodies: [...bodies] };
    letGo();
    await stopping;
    await pass(host, 2_000, 100);
    await other.waitForRun(id);

    assert.deepEqual(before, { isAborted: false, status: "running", bodies: [1] });
    assert.deepEqual(bodies, [1, 1]); // never two at once
    assert.equal(calls, 1);
  },
);

forEachStore("stop() lets code outside of steps go on to the job's end", async ({ store, host }) => {
  const { job, reached, letGo } = anOutsideJob();
  const engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, 1);
  await engine.start();
  await reached;

  const stopping = engine.stop();
  await pass(host, 2_000, 500);
  letGo();
  await stopping;

  assert.equal((await getRun(store, id))!.output, "done");
});

forEachStore("stop() lets a job go on after a step that was being executed", async ({ store, host }) => {
  const gate = Promise.withResolvers<void>();
  const between = Promise.withResolvers<void>();
  const { job, reached, letGo } = aGatedJob();
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
  letGo("result");
  await between.promise;
  await pass(host, 2_000, 500);
  gate.resolve();
  await stopping;

  assert.equal((await getRun(store, id))!.output, "done");
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
    assert.equal((await getRun(store, id))!.status, "pending");
  },
);

forEachStore(
  "stop() keeps the key of a cancelled run whose step does not end, until it is out of time",
  async (context) => {
    const { store, host } = context;
    const { job, reached } = aGatedJob();
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

  assert.deepEqual((await getSteps(store, id)).map(({ name, status }) => [name, status]), [["slow", "completed"]]);
  assert.equal(isPast, false);
});

forEachStore("stop() keeps progress that no step has kept yet", async ({ store, host }) => {
  const { job, reached, letGo } = anOutsideJob((step) => {
    step.progress(5, 9);
    return step.run("after", () => 1);
  });
  const engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, 1);
  await engine.start();
  await reached;

  const stopping = engine.stop();
  await host.settle();
  letGo();
  await stopping;

  const { status, progress } = (await getRun(store, id))!;
  assert.deepEqual([status, progress], ["pending", { current: 5, total: 9 }]);
});

forEachStore("stop() releases a run although the store fails once", async ({ store, host }) => {
  const flaky = failing(store, first(1, "release", "before"));
  const { job, reached, letGo } = anOutsideJob((step) => step.run("after", () => 1));
  const engine = createEngine({ store: flaky, host, jobs: { job } });
  const { id } = await engine.trigger(job, 1);
  await engine.start();
  await reached;

  const stopping = engine.stop();
  await host.settle();
  letGo();
  await pass(host, 1_000, 50);
  await stopping;

  assert.equal((await getRun(store, id))!.status, "pending");
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

forEachStore("stop() ends although the store fails", async ({ store, host }) => {
  let isDown = false;
  const { job, reached } = aGatedJob();
  const flaky = failing(store, () => isDown ? "before" : null);
  const engine = createEngine({ store: flaky, host, jobs: { job } });
  await engine.trigger(job, 1);
  await engine.start();
  await reached;
  isDown = true;

  await stopHard(engine, host);

  assert.equal((await getRuns(store, {})).runs[0]!.status, "running");
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
