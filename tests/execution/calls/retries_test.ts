import assert from "node:assert/strict";
import type { Engine } from "../../../src/engine/engine.ts";
import { NonRetryableError, RetryAfterError, StepError } from "../../../src/model/error.ts";
import type { EngineEvent, EventOf } from "../../../src/model/event.ts";
import type { Host } from "../../../src/model/host.ts";
import type { Store } from "../../../src/store/store.ts";
import type { StepOptions } from "../../../src/model/job/step_calls.ts";
import type { Step } from "../../../src/model/step.ts";
import type { RetryPolicy } from "../../../src/model/retry.ts";
import { isoTime } from "../../../src/values/iso_time.ts";
import { FAKE_START, FakeHost } from "../../support/fake_host.ts";
import { forEachStore, forever, LEASE_MS, nextEvent, pass, recordEvents } from "../../support/stores/for_each_store.ts";
import { aJob, allOf } from "../../support/jobs.ts";
import { createEngine } from "../../support/quiet_engine.ts";

/** A step's function that notes when it was called, and succeeds at the given attempt. */
function failsUntil(success: number, host: FakeHost, error: (attempt: number) => unknown = () => new Error("not now")) {
  const calls: number[] = [];
  const work = ({ attempt }: { attempt: number }) => {
    calls.push(host.now() - FAKE_START);
    if (attempt < success) throw error(attempt);
    return `attempt ${attempt}`;
  };
  return { calls, work };
}

function failures(events: readonly EngineEvent[]): EventOf<"step:fail">[] {
  return events.filter((event) => event.type === "step:fail");
}

/** Starts the engine, and lets time pass in steps of `stepMs` until the run has ended. */
async function workOff(engine: Engine, host: FakeHost, runId: string, stepMs: number): Promise<void> {
  const ended = engine.waitForRun(runId).catch(() => {});
  let isEnded = false;
  ended.then(() => isEnded = true);
  await engine.start();
  await host.settle();
  while (!isEnded) await pass(host, stepMs, stepMs);
}

forEachStore("retry of a step makes attempts until one succeeds, with short delays in between", async (context) => {
  const { store, host } = context;
  const { calls, work } = failsUntil(4, host);
  const retry: RetryPolicy = { maxAttempts: 5, delay: 100, backoff: "exponential" };
  const job = aJob((step) => step.run("flaky", work, { retry }));
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await workOff(engine, host, id, 50);

  assert.equal((await engine.getRun(id))!.output, "attempt 4");
  assert.deepEqual(calls, [0, 100, 300, 700]);
});

forEachStore("retry of a step makes attempts until one succeeds, with long delays in between", async (context) => {
  const { store, host } = context;
  const { calls, work } = failsUntil(4, host);
  const retry: RetryPolicy = { maxAttempts: 5, delay: 2_000, backoff: "exponential", maxDelay: 5_000 };
  const job = aJob((step) => step.run("flaky", work, { retry }));
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await workOff(engine, host, id, 500);

  assert.equal((await engine.getRun(id))!.output, "attempt 4");
  assert.deepEqual(calls, [0, 2_000, 6_000, 11_000]);
});

/** The same host, whose wall clock is ahead of all others, or behind. */
function skewed(host: FakeHost, ms: number): Host {
  return {
    now: () => host.now() + ms,
    monotonic: () => host.monotonic(),
    schedule: (ms, callback) => host.schedule(ms, callback),
    defer: (callback) => host.defer(callback),
    random: () => host.random(),
    newId: () => host.newId(),
  };
}

for (const skewMs of [60_000, -60_000]) {
  forEachStore(
    `retry delays are kept by a worker whose clock is off by ${skewMs / 1_000} s`,
    async ({ store, host }) => {
      const { calls, work } = failsUntil(5, host);
      const delays = [100, 3_000, 200, 2_000];
      const error = (attempt: number) => Object.assign(new Error("not now"), { retryAfter: delays[attempt - 1] });
      const { work: failing } = failsUntil(5, host, error);
      const retry: RetryPolicy = { maxAttempts: 5 };
      const job = aJob((step) => step.run("flaky", (tools) => (work({ attempt: 9 }), failing(tools)), { retry }));
      await using engine = createEngine({ store, host: skewed(host, skewMs), jobs: { job } });
      const { id } = await engine.trigger(job, null);

      await workOff(engine, host, id, 50);

      assert.deepEqual(calls, [0, 100, 3_100, 3_300, 5_300]);
    },
  );

  forEachStore(
    `durations are right in a process whose clock is off by ${skewMs / 1_000} s`,
    async ({ store, host }) => {
      const job = aJob((step) => step.run("slow", () => void host.advance(700)));
      await using engine = createEngine({ store, host: skewed(host, skewMs), jobs: { job } });
      const events = recordEvents(engine);
      const { id } = await engine.trigger(job, null);

      await engine.runUntilIdle();

      const durations = events.flatMap((event) => "duration" in event ? [event.duration] : []);
      assert.deepEqual(durations, [700, 700]);
      const [step] = await engine.getSteps(id);
      assert.deepEqual([step!.startedAt, step!.completedAt], [isoTime(FAKE_START), isoTime(FAKE_START + 700)]);
    },
  );
}

forEachStore("pauses beside a step are not asked for again and again by a clock that is ahead", async (context) => {
  const { store, host } = context;
  let looks = 0;
  const counting = new Proxy(store, {
    get: (target, key: keyof Store) => {
      if (key === "pause") looks += 1;
      const value = target[key] as unknown;
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
  const gate = Promise.withResolvers<void>();
  const job = aJob((step) => allOf([step.sleep("nap", 30_000), step.run("slow", () => gate.promise)]));
  await using engine = createEngine({ store: counting, host: skewed(host, 60_000), jobs: { job } });
  await engine.trigger(job, null);
  await engine.start();

  await pass(host, 2_000, 10);
  gate.resolve();
  await host.settle();

  assert.ok(looks <= 5, `${looks} looks in 2 s`);
});

forEachStore("retry of a step leaves part of the delay to the host's chance", async (context) => {
  const { store } = context;
  const host = Object.assign(context.host, { random: () => 0.5 });
  const { calls, work } = failsUntil(3, host);
  const retry: RetryPolicy = { maxAttempts: 3, delay: 400, jitter: 0.5 };
  const job = aJob((step) => step.run("flaky", work, { retry }));
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await workOff(engine, host, id, 50);

  assert.deepEqual(calls, [0, 300, 600]);
});

forEachStore("retry of a job is the default of its steps, and a step may say otherwise", async ({ store, host }) => {
  const attempts: Record<string, number> = { inherits: 0, once: 0, twice: 0 };
  const failing = (name: string) => () => {
    attempts[name]! += 1;
    throw new Error("broken");
  };
  const job = aJob(
    async (step) => {
      await step.run("inherits", failing("inherits")).catch(() => {});
      await step.run("once", failing("once"), { retry: { maxAttempts: 1 } }).catch(() => {});
      await step.run("twice", failing("twice"), { retry: { maxAttempts: 2, delay: 0 } }).catch(() => {});
    },
    "job",
    { retry: { maxAttempts: 3, delay: 0 } },
  );
  await using engine = createEngine({ store, host, jobs: { job } });

  await engine.trigger(job, null);
  await engine.runUntilIdle();

  assert.deepEqual(attempts, { inherits: 3, once: 1, twice: 2 });
});

forEachStore("retry is not what a step does that says nothing", async ({ store, host }) => {
  const { calls, work } = failsUntil(2, host);
  const job = aJob((step) => step.run("fails", work));
  await using engine = createEngine({ store, host, jobs: { job } });

  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  assert.equal((await engine.getRun(id))!.status, "failed");
  assert.equal(calls.length, 1);
});

forEachStore("retry refuses a policy that is out of range, in a job and in a step", async ({ store, host }) => {
  let isCalled = false;
  const work = () => void (isCalled = true);
  const job = aJob(async (step) => {
    const refused: StepOptions[] = [
      { retry: { maxAttempts: 0 } },
      { retry: { delay: -1 } },
      { timeout: 0 },
      { timeout: -5 },
      { timeout: NaN },
      { timeout: Infinity },
    ];
    for (const options of refused) await assert.rejects(step.run("refused", work, options), RangeError);
  });
  await using engine = createEngine({ store, host, jobs: { job } });

  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  assert.equal((await engine.getRun(id))!.status, "completed");
  assert.equal(isCalled, false);
  assert.throws(() => aJob(() => {}, "job", { retry: { jitter: 2 } }), RangeError);
});

forEachStore("NonRetryableError ends the attempts at a step", async ({ store, host }) => {
  const { calls, work } = failsUntil(
    9,
    host,
    (attempt) =>
      attempt === 1 ? new Error("not now") : Object.assign(new NonRetryableError("never"), { retryAfter: 10 }),
  );
  const job = aJob((step) =>
    step.run("flaky", work, { retry: { maxAttempts: 9, delay: 0 } }).catch((error) => [
      error.name,
      error.message,
      error.attempts,
    ])
  );
  await using engine = createEngine({ store, host, jobs: { job } });

  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  assert.deepEqual((await engine.getRun(id))!.output, ["NonRetryableError", "never", 2]);
  assert.equal(calls.length, 2);
  const { steps } = (await store.getFailures(id))!;
  assert.deepEqual(steps.map(({ attempt, failure }) => [attempt, failure.maxAttempts]), [[1, 9], [2, 9]]);
});

forEachStore("NonRetryableError of another copy of the package ends the attempts, too", async ({ store, host }) => {
  class OtherError extends Error {
    readonly code = "non_retryable";
  }
  const { calls, work } = failsUntil(9, host, () => new OtherError("never"));
  const job = aJob((step) => step.run("flaky", work, { retry: { maxAttempts: 9, delay: 0 } }));
  await using engine = createEngine({ store, host, jobs: { job } });

  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  assert.equal((await engine.getRun(id))!.error, "never");
  assert.equal(calls.length, 1);
});

forEachStore("retry is of no use for a result that JSON cannot keep", async ({ store, host }) => {
  let calls = 0;
  const job = aJob((step) =>
    step.run("odd", () => {
      calls += 1;
      return new Map();
    }, { retry: { maxAttempts: 5, delay: 0 } })
  );
  await using engine = createEngine({ store, host, jobs: { job } });

  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  assert.match((await engine.getRun(id))!.error!, /a Map/);
  assert.equal(calls, 1);
});

forEachStore("retryAfter of an error sets the next delay, whatever the policy", async (context) => {
  const { store, host } = context;
  const { calls, work } = failsUntil(4, host, (attempt) => ({
    message: "busy",
    retryAfter: [300, 0, -1][attempt - 1],
  }));
  const retry: RetryPolicy = { maxAttempts: 4, delay: 50, maxDelay: 50 };
  const job = aJob((step) => step.run("flaky", work, { retry }));
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await workOff(engine, host, id, 50);

  assert.deepEqual(calls, [0, 300, 300, 350]);
});

forEachStore("RetryAfterError sets the next delay, by the clock of the worker", async ({ store, host }) => {
  const errors = [
    new RetryAfterError(300),
    new RetryAfterError(new Date(host.now() + 1_000)),
    new RetryAfterError("60"),
    new RetryAfterError("no delay"), // then it is that of the policy
  ];
  const { calls, work } = failsUntil(5, host, (attempt) => errors[attempt - 1]!);
  const job = aJob((step) => step.run("fails", work, { retry: { maxAttempts: 5, delay: 10 } }));
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);

  await workOff(engine, host, id, 100);

  assert.equal((await engine.getRun(id))!.status, "completed");
  const retries = failures(events).map(({ retryAt }) => Date.parse(retryAt!) - FAKE_START);
  assert.deepEqual(retries, [calls[0]! + 300, 1_000, calls[2]! + 60_000, calls[3]! + 10]);
});

forEachStore("retryAfter parks the run when it is long, and gives no attempt more", async (context) => {
  const { store, host } = context;
  const { calls, work } = failsUntil(3, host, () => Object.assign(new Error("busy"), { retryAfter: 60_000 }));
  const job = aJob((step) => step.run("flaky", work, { retry: { maxAttempts: 2, delay: 0 } }));
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();
  const between = (await engine.getRun(id))!.status;
  host.advance(59_999);
  const early = await engine.runUntilIdle();
  host.advance(1);
  await engine.runUntilIdle();

  assert.equal(between, "waiting");
  assert.equal(early.executed, 0);
  assert.deepEqual(calls, [0, 60_000]);
  assert.equal((await engine.getRun(id))!.status, "failed");
});

forEachStore("retry keeps the run in memory over a delay of up to a second", async ({ store, host }) => {
  const { work } = failsUntil(2, host);
  const job = aJob((step) => step.run("flaky", work, { retry: { maxAttempts: 2, delay: 1_000 } }));
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);
  const failed = nextEvent(engine, "step:fail");

  const idle = engine.runUntilIdle();
  await failed;
  await host.settle();
  await pass(host, 999);
  const between = (await engine.getRun(id))!;
  await pass(host, 1);
  await idle;

  assert.equal(between.status, "running");
  assert.notEqual(between.leaseOwner, null);
  assert.equal((await engine.getRun(id))!.output, "attempt 2");
  assert.deepEqual(events.filter(({ type }) => type === "run:waiting"), []);
  assert.equal(events.filter(({ type }) => type === "run:leased").length, 1);
});

forEachStore("retry parks the run over a delay of more than a second", async ({ store, host }) => {
  const { work } = failsUntil(2, host);
  const job = aJob((step) => step.run("flaky", work, { retry: { maxAttempts: 2, delay: 1_001 } }));
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();
  const between = (await engine.getRun(id))!;
  host.advance(1_001);
  const { executed } = await engine.runUntilIdle();

  assert.equal(between.status, "waiting");
  assert.deepEqual([between.leaseOwner, between.leaseExpiresAt], [null, null]);
  const waiting = events.filter((event) => event.type === "run:waiting");
  assert.partialDeepStrictEqual(waiting, [{
    runId: id,
    waitId: null,
    waitName: "flaky",
    deadlineAt: isoTime(FAKE_START + 1_001),
  }]);
  assert.equal(waiting.length, 1);
  assert.deepEqual(await engine.getWaits(id), []);
  assert.equal(executed, 1);
  assert.equal((await engine.getRun(id))!.output, "attempt 2");
});

forEachStore("retry publishes each failure, and when the next attempt follows", async ({ store, host }) => {
  const { work } = failsUntil(9, host, (attempt) => new Error(`failure ${attempt}`));
  const job = aJob(async (step) => {
    await step.run("first", () => 1);
    await step.run("flaky", work, { retry: { maxAttempts: 3, delay: 2_000, backoff: "exponential" } });
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  await engine.trigger(job, null);

  for (const ms of [0, 2_000, 4_000]) {
    host.advance(ms);
    await engine.runUntilIdle();
  }

  const told = failures(events).map(({ stepName, stepIndex, attempt, error, retryAt }) => [
    stepName,
    stepIndex,
    attempt,
    error,
    retryAt,
  ]);
  assert.deepEqual(told, [
    ["flaky", 1, 1, "failure 1", isoTime(FAKE_START + 2_000)],
    ["flaky", 1, 2, "failure 2", isoTime(FAKE_START + 6_000)],
    ["flaky", 1, 3, "failure 3", null],
  ]);
  const starts = events.filter((event) => event.type === "step:start").map(({ stepName, attempt }) => [
    stepName,
    attempt,
  ]);
  assert.deepEqual(starts, [["first", 1], ["flaky", 1], ["flaky", 2], ["flaky", 3]]);
  assert.partialDeepStrictEqual(events.at(-1), { type: "run:fail", error: "failure 3", failedStepName: "flaky" });
});

forEachStore("getSteps() shows a step that stands between two attempts", async ({ store, host }) => {
  const { work } = failsUntil(3, host, (attempt) => new Error(`failure ${attempt}`));
  const job = aJob((step) => step.run("flaky", work, { retry: { maxAttempts: 3, delay: 5_000 } }));
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();
  const first = await engine.getSteps(id);
  host.advance(5_000);
  await engine.runUntilIdle();
  const second = await engine.getSteps(id);
  host.advance(5_000);
  await engine.runUntilIdle();
  const third = await engine.getSteps(id);

  const startedAt = isoTime(FAKE_START);
  const step = { id: `${id}/flaky`, runId: id, name: "flaky", index: 0, startedAt, completedAt: null, output: null };
  const withoutFailure = ({ failure: _, ...step }: Step) => step;
  assert.deepEqual(first.map(withoutFailure), [{ ...step, status: "failed", error: "failure 1", attempts: 1 }]);
  assert.deepEqual(second.map(withoutFailure), [{ ...step, status: "failed", error: "failure 2", attempts: 2 }]);
  assert.deepEqual([...first, ...second].map(({ failure }) => failure?.message), ["failure 1", "failure 2"]);
  assert.deepEqual(third, [{
    ...step,
    status: "completed",
    output: "attempt 3",
    error: null,
    failure: null,
    attempts: 3,
    completedAt: isoTime(FAKE_START + 10_000),
  }]);
});

forEachStore("retry hands every attempt the same idempotencyKey", async ({ store, host }) => {
  const keys: string[] = [];
  const job = aJob((step) =>
    step.run("flaky", ({ attempt, idempotencyKey }) => {
      keys.push(idempotencyKey);
      if (attempt < 3) throw new Error("not now");
    }, { retry: { maxAttempts: 3, delay: 2_000 } })
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  for (const ms of [0, 2_000, 2_000]) {
    host.advance(ms);
    await engine.runUntilIdle();
  }

  assert.deepEqual(keys, Array(3).fill(`${id}/flaky`));
});

for (const [length, delay] of [["short", 500], ["long", 60_000]] as const) {
  forEachStore(`retry survives a crash over a ${length} delay, and goes on counting`, async ({ store, host }) => {
    const { work, calls } = failsUntil(3, host);
    const job = aJob((step) => step.run("flaky", work, { retry: { maxAttempts: 3, delay } }));
    const process = createEngine({ store, host: new FakeHost(), jobs: { job } });
    const { id } = await process.trigger(job, null);
    const failed = nextEvent(process, "step:fail");
    process.runUntilIdle().catch(() => {});
    await failed;
    await host.settle();
    await using engine = createEngine({ store, host, jobs: { job } });
    const events = recordEvents(engine);

    host.advance(Math.max(delay, LEASE_MS));
    await workOff(engine, host, id, delay);

    assert.equal((await engine.getRun(id))!.output, "attempt 3");
    assert.equal(calls.length, 3);
    assert.deepEqual(failures(events).map(({ attempt }) => attempt), [2]);
  });
}

forEachStore("retry does not count an attempt that a crash cut short", async ({ store, host }) => {
  const attempts: number[] = [];
  const reached = Promise.withResolvers<void>();
  const job = aJob((step) =>
    step.run("flaky", ({ attempt }) => {
      attempts.push(attempt);
      if (attempts.length === 1) throw new Error("not now");
      if (attempts.length > 2) return "done";
      reached.resolve();
      return forever();
    }, { retry: { maxAttempts: 2, delay: 0 } })
  );
  const process = createEngine({ store, host: new FakeHost(), jobs: { job } });
  const { id } = await process.trigger(job, null);
  process.runUntilIdle().catch(() => {});
  await reached.promise;
  await using engine = createEngine({ store, host, jobs: { job } });

  await host.settle(); // until the other process does nothing more
  host.advance(LEASE_MS);
  await engine.runUntilIdle();

  assert.deepEqual(attempts, [1, 2, 2]);
  assert.equal((await engine.getRun(id))!.output, "done");
  assert.equal((await engine.getSteps(id))[0]!.attempts, 2);
});

forEachStore("retry in memory keeps its delay though the run is taken over before it is due", async (context) => {
  const { store, host } = context;
  const { work, calls } = failsUntil(2, host);
  const job = aJob((step) => step.run("flaky", work, { retry: { maxAttempts: 2, delay: 1_000 } }));
  await using first = createEngine({ store, host, jobs: { job } });
  const { id } = await first.trigger(job, null);
  const failed = nextEvent(first, "step:fail");
  const idle = first.runUntilIdle();
  await failed;
  await pass(host, 400);
  const stopping = first.stop({ timeout: 0 });
  await host.settle();
  await pass(host, 1);
  await Promise.all([stopping, idle]);
  await using second = createEngine({ store, host, jobs: { job } });

  await workOff(second, host, id, 1);

  assert.deepEqual(calls, [0, 1_000]);
  assert.equal((await second.getRun(id))!.output, "attempt 2");
});

forEachStore("StepError tells how many attempts ended, the first time as on a replay", async ({ store, host }) => {
  const seen: unknown[] = [];
  const { work } = failsUntil(9, host, (attempt) => new RangeError(`failure ${attempt}`));
  const job = aJob(async (step) => {
    try {
      await step.run("flaky", work, { retry: { maxAttempts: 3, delay: 0 } });
    } catch (error) {
      assert.ok(error instanceof StepError);
      seen.push([error.name, error.message, error.stepName, error.attempts]);
    }
    await step.sleep("a while", 5_000);
  });
  await using engine = createEngine({ store, host, jobs: { job } });

  await engine.trigger(job, null);
  await engine.runUntilIdle();
  host.advance(5_000);
  await engine.runUntilIdle();

  const expected = ["RangeError", "failure 3", "flaky", 3];
  assert.deepEqual(seen, [expected, expected]);
});

forEachStore("retry goes on with two steps at the same time, each with its own delay", async ({ store, host }) => {
  const soon = failsUntil(3, host);
  const late = failsUntil(2, host);
  const job = aJob((step) =>
    Promise.all([
      step.run("soon", soon.work, { retry: { maxAttempts: 3, delay: 2_000 } }),
      step.run("late", late.work, { retry: { maxAttempts: 2, delay: 5_000 } }),
    ])
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);

  await workOff(engine, host, id, 500);

  assert.deepEqual(soon.calls, [0, 2_000, 4_000]);
  assert.deepEqual(late.calls, [0, 5_000]);
  const first = events.filter((event) => event.type === "run:waiting").slice(0, 2);
  assert.deepEqual(first.map(({ waitName, waitId }) => [waitName, waitId]), [["soon", null], ["late", null]]);
});

forEachStore("retry of a step comes to its turn while another step is still executed", async ({ store, host }) => {
  const gate = Promise.withResolvers<void>();
  const { calls, work } = failsUntil(2, host);
  const job = aJob((step) =>
    allOf([
      step.run("slow", () => gate.promise),
      step.run("flaky", work, { retry: { maxAttempts: 2, delay: 5_000 } }).then(() => gate.resolve()),
    ])
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);

  await workOff(engine, host, id, 500);

  assert.deepEqual(calls, [0, 5_000]);
  assert.equal((await engine.getRun(id))!.status, "completed");
  assert.deepEqual(events.filter(({ type }) => type === "run:waiting"), []);
});

forEachStore("timeout fails an attempt at once, though its function never settles", async ({ store, host }) => {
  const reasons: unknown[] = [];
  const reached = Promise.withResolvers<void>();
  const job = aJob((step) =>
    step.run("hangs", ({ abortSignal }) => {
      abortSignal.addEventListener("abort", () => reasons.push(abortSignal.reason.name));
      reached.resolve();
      return forever();
    }, { timeout: 200 }).catch((error) => [error.name, error.message, error.attempts, step.abortSignal.aborted])
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  const idle = engine.runUntilIdle();
  await reached.promise;
  await pass(host, 199);
  const before = (await engine.getRun(id))!.status;
  host.advance(1);
  await idle;

  assert.equal(before, "running");
  assert.deepEqual(reasons, ["TimeoutError"]);
  const output = (await engine.getRun(id))!.output;
  assert.deepEqual(output, ["TimeoutError", 'Step "hangs" took longer than 200 ms', 1, false]);
});

forEachStore("timeout names itself, whatever the function throws when it is aborted", async ({ store, host }) => {
  const reached = Promise.withResolvers<void>();
  const job = aJob((step) =>
    step.run("obeys", ({ abortSignal }) => {
      reached.resolve();
      return new Promise((_, reject) => abortSignal.addEventListener("abort", () => reject(new Error("its own"))));
    }, { timeout: 200 })
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  const idle = engine.runUntilIdle();
  await reached.promise;
  host.advance(200);
  await idle;

  assert.equal((await engine.getRun(id))!.error, 'Step "obeys" took longer than 200 ms');
});

forEachStore("timeout ignores what the function returns later", async ({ store, host }) => {
  const reached = Promise.withResolvers<void>();
  const late = Promise.withResolvers<string>();
  const job = aJob(async (step) => {
    await step.run("slow", () => {
      reached.resolve();
      return late.promise;
    }, { timeout: 200 }).catch(() => {});
    return await step.run("after", async () => {
      late.resolve("too late");
      await host.settle();
      return "after";
    });
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);

  const idle = engine.runUntilIdle();
  await reached.promise;
  host.advance(200);
  await idle;

  assert.equal((await engine.getRun(id))!.output, "after");
  const steps = (await engine.getSteps(id)).map(({ name, status, output }) => [name, status, output]);
  assert.deepEqual(steps, [["slow", "failed", null], ["after", "completed", "after"]]);
  const completed = events.filter((event) => event.type === "step:complete").map(({ stepName }) => stepName);
  assert.deepEqual(completed, ["after"]);
});

forEachStore("timeout is followed by another attempt, with its own time", async ({ store, host }) => {
  const calls: number[] = [];
  const job = aJob((step) =>
    step.run("hangs", ({ attempt }) => {
      calls.push(host.now() - FAKE_START);
      return attempt < 3 ? forever() : "done";
    }, { timeout: 200, retry: { maxAttempts: 3, delay: 100 } })
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);

  await workOff(engine, host, id, 50);

  assert.deepEqual(calls, [0, 300, 600]);
  assert.equal((await engine.getRun(id))!.output, "done");
  assert.deepEqual(failures(events).map(({ attempt, retryAt }) => [attempt, retryAt]), [
    [1, isoTime(FAKE_START + 300)],
    [2, isoTime(FAKE_START + 600)],
  ]);
});

forEachStore("timeout leaves no timer behind when the function is faster", async ({ store, host }) => {
  let fired = false;
  const job = aJob(async (step) => {
    await step.run("fast", ({ abortSignal }) => {
      abortSignal.addEventListener("abort", () => fired = true);
      return 1;
    }, { timeout: 200 });
    await step.run("slow", () => host.advance(1_000));
  });
  await using engine = createEngine({ store, host, jobs: { job } });

  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  assert.equal((await engine.getRun(id))!.status, "completed");
  assert.equal(fired, false);
});

forEachStore("timeout of ten years does not fire at once", async ({ store, host }) => {
  const job = aJob((step) => step.run("patient", () => host.settle(), { timeout: 315_360_000_000 }));
  await using engine = createEngine({ store, host, jobs: { job } });

  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  assert.equal((await engine.getRun(id))!.status, "completed");
});

forEachStore("retry keeps the concurrency key over its delay", async ({ store, host }) => {
  const order: string[] = [];
  const retrying = aJob(
    (step) =>
      step.run("flaky", ({ attempt }) => {
        order.push(`attempt ${attempt}`);
        if (attempt === 1) throw new Error("not now");
      }, { retry: { maxAttempts: 2, delay: 60_000 } }),
    "retrying",
  );
  const other = aJob(() => void order.push("other"), "other");
  await using engine = createEngine({ store, host, jobs: { retrying, other } });
  await engine.trigger(retrying, null, { concurrencyKey: "line" });
  await engine.trigger(other, null, { concurrencyKey: "line" });

  await engine.runUntilIdle();
  const during = [...order];
  host.advance(60_000);
  await engine.runUntilIdle();

  assert.deepEqual(during, ["attempt 1"]);
  assert.deepEqual(order, ["attempt 1", "attempt 2", "other"]);
});

for (const pause of ["sleep", "wait"] as const) {
  forEachStore(`${pause}() gives up the concurrency key, and asks for it again by age`, async ({ store, host }) => {
    const order: string[] = [];
    const gate = Promise.withResolvers<void>();
    const reached = Promise.withResolvers<void>();
    const pausing = aJob(
      async (step) => {
        await (pause === "sleep" ? step.sleep("nap", 1_000) : step.wait("review", { timeout: 1_000 }));
        order.push("pausing");
      },
      "pausing",
    );
    const second = aJob(
      async (step) => {
        await step.run("gate", () => {
          reached.resolve();
          return gate.promise;
        });
        order.push("second");
      },
      "second",
    );
    const third = aJob(() => void order.push("third"), "third");
    await using engine = createEngine({ store, host, jobs: { pausing, second, third } });
    const { id } = await engine.trigger(pausing, null, { concurrencyKey: "line" });
    await engine.trigger(second, null, { concurrencyKey: "line" });
    await engine.trigger(third, null, { concurrencyKey: "line" });

    await engine.start();
    await reached.promise;
    await pass(host, 3_000, 500);
    const during = [...order];
    const { status } = (await engine.getRun(id))!;
    gate.resolve();
    await engine.waitForRun(id);
    await host.settle();

    assert.deepEqual(during, []);
    assert.equal(status, "waiting");
    assert.deepEqual(order, ["second", "pausing", "third"]);
  });
}

for (const delay of [500, 60_000]) {
  forEachStore(`cancel() ends a run between two attempts with a delay of ${delay} ms`, async ({ store, host }) => {
    const { calls, work } = failsUntil(2, host);
    const job = aJob((step) => step.run("flaky", work, { retry: { maxAttempts: 2, delay } }));
    await using engine = createEngine({ store, host, jobs: { job } });
    const events = recordEvents(engine);
    const { id } = await engine.trigger(job, null);
    const failed = nextEvent(engine, "step:fail");
    const idle = engine.runUntilIdle();
    await failed;
    await host.settle();

    await engine.cancel(id);
    await idle;
    await pass(host, 2 * delay);
    const after = await engine.runUntilIdle();

    assert.equal((await engine.getRun(id))!.status, "cancelled");
    assert.equal(after.executed, 0);
    assert.equal(calls.length, 1);
    assert.deepEqual((await engine.getSteps(id)).map(({ name, status }) => [name, status]), [["flaky", "cancelled"]]);
    assert.equal(events.at(-1)!.type, "run:cancel");
  });
}
