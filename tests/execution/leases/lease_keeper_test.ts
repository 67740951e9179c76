import assert from "node:assert/strict";
import { LeaseLostError, StoreError } from "../../../src/model/error.ts";
import type { Store } from "../../../src/store/store.ts";
import { FakeHost } from "../../support/fake_host.ts";
import { forEachStore, forever, LEASE_MS, nextEvent, pass, recordEvents } from "../../support/stores/for_each_store.ts";
import { createEngine } from "../../support/quiet_engine.ts";
import { withCalls } from "../../support/stores/with_calls.ts";
import { stopHard } from "../../support/engines.ts";
import { failing, first } from "../../support/stores/failing_store.ts";
import { aGatedJob, aJob } from "../../support/jobs.ts";
import { getRun } from "../../../src/store/reads.ts";

forEachStore("a worker renews its leases, and publishes that", async ({ store, host }) => {
  const { job, reached, letGo, calls } = aGatedJob();
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
  letGo("done");
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
  const { job, reached, letGo } = aGatedJob();
  await using engine = createEngine({ store: counting, host, jobs: { job } });
  await engine.start();
  const { id } = await engine.trigger(job, 1);
  await reached;
  await pass(host, 10_000, 1_000);
  letGo(1);
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

forEachStore("a write under a lost lease is refused, and publishes no event", async ({ store, host }) => {
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

forEachStore("an ending under a lost lease is refused, and publishes no event", async ({ store, host }) => {
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
    const { job, reached, letGo, calls } = aGatedJob();
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
    letGo("done");
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
      const { leaseExpiresAt } = (await getRun(store, step.runId))!;
      return [step.execution, Date.parse(leaseExpiresAt!) - host.now()];
    });
    await using engine = createEngine({ store: flaky, host, jobs: { job } });
    const { id } = await engine.trigger(job, 1);
    await engine.start();

    await pass(host, LEASE_MS + 1_000, 1_000);
    isDown = false;
    await pass(host, 2_000, 1_000);

    const [execution, leftMs] = (await engine.getRun(id))!.output as [number, number];
    assert.equal(execution, 1);
    // A lease that is renewed again at the same instant, as it may be over a slow store, ends a millisecond later.
    assert.ok(leftMs >= LEASE_MS && leftMs <= LEASE_MS + 2, `${leftMs} ms are left`);
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
  const { job, reached } = aGatedJob();
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

forEachStore("progress that an earlier write has overtaken is kept again soon", async ({ store, host }) => {
  const saving = Promise.withResolvers<void>();
  const mayEnd = Promise.withResolvers<void>();
  let holds = true;
  // The write of a step that was sent before the latest report is carried out after the renewal that keeps the report.
  const slow = new Proxy(store, {
    get: (target, key: keyof Store) => {
      const value = target[key] as unknown;
      if (typeof value !== "function") return value;
      if (key !== "saveStep") return value?.bind(target);
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
  const { job: gate, reached, letGo } = aGatedJob();
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
  const { progress } = (await getRun(store, id))!;
  letGo("done");
  await engine.waitForRun(id);

  assert.deepEqual(progress, { current: 2 });
});

forEachStore("a worker hears within 250 ms that another process has cancelled a run", async ({ store, host }) => {
  const { job, reached, letGo } = aGatedJob();
  await using engine = createEngine({ store, host, jobs: { job } });
  await using other = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, 1);
  await engine.start();
  const abortSignal = await reached;

  await other.cancel(id);
  await pass(host, 250, 10);
  const isAborted = abortSignal.aborted;
  letGo("late");
  await host.settle();

  assert.equal(isAborted, true);
});

forEachStore("a worker keeps progress soon, although nothing else is written", async ({ store, host }) => {
  const { job, reached, letGo } = aGatedJob();
  const reporting = aJob(async (step, input) => {
    step.progress(1, 3);
    await job.run(step, input);
  });
  await using engine = createEngine({ store, host, jobs: { reporting } });
  const { id } = await engine.trigger(reporting, 1);
  await engine.start();
  await reached;

  await pass(host, 250, 50);
  const { progress } = (await getRun(store, id))!;
  letGo("done");
  await engine.waitForRun(id);

  assert.deepEqual(progress, { current: 1, total: 3 });
});

forEachStore("a worker keeps progress that the store could not take, as soon as it can", async ({ store, host }) => {
  let isDown = true;
  const flaky = failing(store, (method) => isDown && method === "renew" ? "before" : null);
  const { job, reached, letGo } = aGatedJob();
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
  const { progress } = (await getRun(store, id))!;
  letGo("done");
  await engine.waitForRun(id);

  assert.deepEqual(progress, { current: 1 });
});

forEachStore("a worker renews early only for reports that nothing else has kept", async ({ store, host }) => {
  let renewals = 0;
  const counting = failing(store, (method) => {
    if (method === "renew") renewals += 1;
    return null;
  });
  const { job, reached, letGo } = aGatedJob();
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
  letGo("done");
  await engine.waitForRun(id);

  assert.equal(renewals, 1); // which says that the long step has begun
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
    const job = aJob((step) => {
      step.log.info("line");
      return ending.promise;
    }, "talk");
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
