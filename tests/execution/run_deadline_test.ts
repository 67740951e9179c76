import assert from "node:assert/strict";
import { RunFailedError, TimeoutError } from "../../src/model/error.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import type { StepContext } from "../../src/model/job.ts";
import type { Store } from "../../src/store/store.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { stopHard, typesOf } from "../support/engines.ts";
import { FakeHost } from "../support/fake_host.ts";
import { anything, forever, pass, recordEvents } from "../support/stores/for_each_store.ts";
import { failing, first } from "../support/stores/failing_store.ts";
import { aGate } from "../support/jobs.ts";
import { createEngine } from "../support/quiet_engine.ts";
import { withCalls } from "../support/stores/with_calls.ts";

const LIMIT = 5_000;
const MESSAGE = `The run did not end within ${LIMIT} ms after its start (finishWithin)`;

/** A store whose claims say how long their runs may take. */
function timing(store: Store, leftMs = LIMIT): Store {
  return withCalls(store, {
    claim: async (request) => {
      const result = await store.claim(request);
      return { ...result, claims: result.claims.map((claim) => ({ ...claim, finishInMs: leftMs })) };
    },
  });
}

/** An engine that executes a job with a deadline. */
function anEngine(run: (step: StepContext) => unknown, wrap: (store: Store) => Store = (store) => store) {
  const host = new FakeHost();
  const memory = new MemoryStore({ host });
  const job = defineJob({ name: "job", input: anything, run });
  const engine = createEngine({ store: wrap(timing(memory)), host, jobs: { job } });
  return { host, memory, engine, events: recordEvents(engine) };
}

for (const [how, isStep] of [["code between steps", false], ["the function of a step", true]] as const) {
  Deno.test(`a run is late although ${how} has blocked the timer of its deadline`, async () => {
    const clock = { host: null as FakeHost | null };
    const block = () => {
      const { host } = clock;
      const monotonic = host!.monotonic.bind(host);
      host!.monotonic = () => monotonic() + LIMIT + 1; // no timer fires meanwhile
    };
    const { host, engine } = anEngine(async (step) => {
      if (isStep) await step.run("blocks", block);
      else block();
      if (isStep) await step.run("next", () => "never");
      return "late";
    });
    clock.host = host;
    const { id } = await engine.trigger("job", null);
    await engine.start();
    await host.settle();
    await host.settle();

    const run = await engine.getRun(id);
    const steps = await engine.getSteps(id);

    assert.partialDeepStrictEqual(run, { status: "failed", error: MESSAGE, failureKind: "timeout" });
    assert.deepEqual(steps, []);
    await stopHard(engine, host);
  });
}

Deno.test("a run whose step hangs fails at its deadline, not before, and its abortSignal fires", async () => {
  const gate = aGate();
  let abortSignal!: AbortSignal;
  const { host, engine, events } = anEngine((step) =>
    step.run("hangs", (tools) => {
      abortSignal = tools.abortSignal;
      gate.work();
      return forever();
    })
  );
  const { id } = await engine.trigger("job", null);
  await engine.start();
  await host.settle();
  await gate.reached;

  await pass(host, LIMIT - 1);
  const before = await engine.getRun(id);
  await pass(host, 1);
  const after = await engine.getRun(id);

  assert.equal(before!.status, "running");
  assert.partialDeepStrictEqual(after, {
    status: "failed",
    error: MESSAGE,
    failureKind: "timeout",
    failedStepName: null,
    leaseOwner: null,
  });
  assert.ok(abortSignal.aborted && abortSignal.reason instanceof TimeoutError);
  assert.equal(abortSignal.reason.message, MESSAGE);
  const failed = events.find(({ type }) => type === "run:fail");
  assert.partialDeepStrictEqual(failed, { error: MESSAGE, failedStepName: null, failureKind: "timeout" });
  await stopHard(engine, host);
});

Deno.test("a run that hangs outside of its steps fails at its deadline, and gives its slot to the next", async () => {
  const { host, engine } = anEngine(() => forever());
  const limited = await engine.trigger("job", null);
  await engine.start();
  await host.settle();
  const waiting = engine.waitForRun(limited.id).catch((error) => error);

  await pass(host, LIMIT);

  const refusal = await waiting;
  assert.ok(refusal instanceof RunFailedError && refusal.cause instanceof Error);
  assert.deepEqual([refusal.cause.name, refusal.cause.message], ["TimeoutError", MESSAGE]);
  await stopHard(engine, host);
});

Deno.test("nothing is recorded after the deadline: neither a late result, nor what the job would do next", async () => {
  const gate = aGate<string>();
  const done: string[] = [];
  const { host, engine, events } = anEngine(async (step) => {
    try {
      await step.run("slow", gate.work);
      done.push("next");
      await step.run("next", () => done.push("ran"));
    } catch {
      done.push("caught");
    } finally {
      done.push("finally");
    }
  });
  const { id } = await engine.trigger("job", null);
  await engine.start();
  await host.settle();
  await gate.reached;
  await pass(host, LIMIT);

  gate.open("late");
  await host.settle();

  const run = await engine.getRun(id);
  assert.deepEqual([run!.status, run!.failureKind, done], ["failed", "timeout", []]);
  assert.deepEqual(await engine.getSteps(id), []);
  const types = typesOf(events).filter((type) => type !== "run:lease-renewed");
  assert.deepEqual(types.slice(-2), ["step:start", "run:fail"]);
  await stopHard(engine, host);
});

Deno.test("a step that throws when it is aborted does not hide that the run is late", async () => {
  const { host, engine } = anEngine((step) =>
    step.run(
      "aborts",
      ({ abortSignal }) =>
        new Promise((_, reject) => abortSignal.addEventListener("abort", () => reject(new Error("aborted")))),
    )
  );
  const { id } = await engine.trigger("job", null);
  await engine.start();
  await host.settle();

  await pass(host, LIMIT);

  assert.partialDeepStrictEqual(await engine.getRun(id), { failureKind: "timeout", error: MESSAGE });
  assert.deepEqual(await engine.getSteps(id), []);
  await stopHard(engine, host);
});

Deno.test("a result that is committed first counts, even if its answer comes after the deadline", async () => {
  const answer = Promise.withResolvers<void>();
  const { host, engine, events } = anEngine(
    () => "done",
    (store) =>
      withCalls(store, {
        finish: async (lease, ending, reports) => {
          await store.finish(lease, ending, reports);
          await answer.promise;
        },
      }),
  );
  const { id } = await engine.trigger("job", null);
  await engine.start();
  await host.settle();
  await pass(host, 2 * LIMIT);

  answer.resolve();
  await host.settle();

  assert.partialDeepStrictEqual(await engine.getRun(id), { status: "completed", output: "done", failureKind: null });
  assert.equal(typesOf(events).at(-1), "run:complete");
  await stopHard(engine, host);
});

Deno.test("a run that has parked by its deadline is not ended by the worker", async () => {
  const answer = Promise.withResolvers<void>();
  const { host, engine } = anEngine(
    (step) => step.wait("review"),
    (store) =>
      withCalls(store, {
        pause: async (lease, request) => {
          const result = await store.pause(lease, request);
          await answer.promise;
          return result;
        },
      }),
  );
  const { id } = await engine.trigger("job", null);
  await engine.start();
  await host.settle();
  await pass(host, 2 * LIMIT);

  answer.resolve();
  await host.settle();

  assert.equal((await engine.getRun(id))!.status, "waiting");
  await stopHard(engine, host);
});

Deno.test("a run that was about to park at its deadline fails as soon as the store has not parked it", async () => {
  const answer = Promise.withResolvers<void>();
  const { host, engine } = anEngine(
    (step) => step.wait("review"),
    (store) =>
      withCalls(store, {
        pause: async (lease, request) => {
          await answer.promise;
          return await store.pause(lease, { ...request, park: false });
        },
      }),
  );
  const { id } = await engine.trigger("job", null);
  await engine.start();
  await host.settle();
  await pass(host, 2 * LIMIT);

  answer.resolve();
  await host.settle();

  assert.partialDeepStrictEqual(await engine.getRun(id), { status: "failed", failureKind: "timeout" });
  await stopHard(engine, host);
});

Deno.test("the job does not go on while the failure of its late run is stored", async () => {
  const answer = Promise.withResolvers<void>();
  const done: string[] = [];
  const { host, engine } = anEngine(
    async (step) => {
      const aborted = (abortSignal: AbortSignal) =>
        new Promise((_, reject) => abortSignal.addEventListener("abort", () => reject(new Error("aborted"))));
      await step.run("aborts", ({ abortSignal }) => aborted(abortSignal)).catch(() => done.push("caught"));
      step.log.info("goes on");
    },
    (store) =>
      withCalls(store, {
        finish: async (lease, ending, reports) => {
          await answer.promise;
          await store.finish(lease, ending, reports);
        },
      }),
  );
  const { id } = await engine.trigger("job", null);
  await engine.start();
  await host.settle();

  await pass(host, LIMIT + 100);
  answer.resolve();
  await host.settle();

  assert.deepEqual([(await engine.getRun(id))!.failureKind, done], ["timeout", []]);
  await stopHard(engine, host);
});

Deno.test("a step that returns while the failure of its late run is repeated is not recorded", async () => {
  const gate = aGate<string>();
  const { host, engine } = anEngine(
    (step) => step.run("slow", gate.work),
    (store) => failing(store, first(5, "finish", "before")),
  );
  const { id } = await engine.trigger("job", null);
  await engine.start();
  await gate.reached;
  await pass(host, LIMIT);

  gate.open("late");
  await pass(host, 5_000);

  assert.equal((await engine.getRun(id))!.failureKind, "timeout");
  assert.deepEqual(await engine.getSteps(id), []);
  await stopHard(engine, host);
});

for (const when of ["before", "after"] as const) {
  Deno.test(`the failure of a late run is repeated until the store answers (${when})`, async () => {
    const { host, engine, events } = anEngine(() => forever(), (store) => failing(store, first(3, "finish", when)));
    const { id } = await engine.trigger("job", null);
    await engine.start();
    await host.settle();
    await host.settle();

    await pass(host, LIMIT + 3_000);

    assert.partialDeepStrictEqual(await engine.getRun(id), { status: "failed", failureKind: "timeout" });
    assert.deepEqual(typesOf(events).filter((type) => type === "run:fail"), ["run:fail"]);
    await stopHard(engine, host);
  });
}

Deno.test("a late run that was cancelled first stays cancelled", async () => {
  const { host, engine, events } = anEngine(() => forever());
  const { id } = await engine.trigger("job", null);
  await engine.start();
  await host.settle();
  await pass(host, LIMIT - 1);

  await engine.cancel(id);
  await pass(host, 1_000);

  assert.equal((await engine.getRun(id))!.status, "cancelled");
  assert.ok(!typesOf(events).includes("run:fail"));
  await stopHard(engine, host);
});

Deno.test("a run that ends in time leaves no timer", async () => {
  const { host, engine } = anEngine(() => "done");
  const { id } = await engine.trigger("job", null);
  const idle = engine.runUntilIdle();
  await pass(host, 1_000);
  await idle;

  assert.equal((await engine.getRun(id))!.status, "completed");
  assert.equal(host.timerCount, 0);
});

Deno.test("a clock that is set forward or back does not move the deadline of a run that is executed", async () => {
  for (const jump of [3_600_000, -3_600_000]) {
    const { host, engine } = anEngine(() => forever());
    const { id } = await engine.trigger("job", null);
    await engine.start();
    await host.settle();
    await host.settle();
    await pass(host, 1_000);

    host.jump(jump);
    await pass(host, LIMIT - 1_001);
    const before = await engine.getRun(id);
    await pass(host, 1);

    assert.deepEqual([before!.status, (await engine.getRun(id))!.failureKind], ["running", "timeout"]);
    await stopHard(engine, host);
  }
});
