import assert from "node:assert/strict";
import { persistLogs } from "../../../src/engine/plugin.ts";
import { RunFailedError, StepError } from "../../../src/model/error.ts";
import type { Job, StepContext } from "../../../src/model/job.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import type { Store } from "../../../src/store/store.ts";
import { FakeHost } from "../../support/fake_host.ts";
import { aStep } from "../../support/fixtures.ts";
import {
  anything,
  claimOne,
  endDelay,
  forEachStore,
  forever,
  LEASE_MS,
  nextEvent,
  pass,
  recordEvents,
  type StoreTest,
} from "../../support/stores/for_each_store.ts";
import { createEngine } from "../../support/quiet_engine.ts";
import { aJob } from "../../support/jobs.ts";
import { getRun, getSteps } from "../../../src/store/reads.ts";

type Body = (step: StepContext, input: unknown) => unknown;

/** Executes a job once, and answers how the run stands then. */
async function perform({ store, host }: StoreTest, run: Body) {
  await using engine = createEngine({ store, host, jobs: { job: aJob(run) } });
  const { id } = await engine.trigger("job", null);
  await engine.runUntilIdle();
  return (await engine.getRun(id))!;
}

/** Begins a run in a process of its own that never hears of time again: it is dead as soon as nobody helps it. */
async function beginElsewhere(store: Store, job: Job<unknown>): Promise<string> {
  const process = createEngine({ store, host: new FakeHost(), jobs: { job } });
  const { id } = await process.trigger(job, null);
  process.runUntilIdle().catch(() => {});
  return id;
}

/** Takes over what a dead process has left, and answers how the run stands then. */
async function takeOver({ store, host }: StoreTest, job: Job<unknown>, runId: string) {
  await host.settle(); // until the other process does nothing more
  host.advance(LEASE_MS);
  await using engine = createEngine({ store, host, jobs: { job } });
  await engine.runUntilIdle();
  return (await engine.getRun(runId))!;
}

/** A last step that hangs in the first execution, which crashes there, and returns in the second. */
function aCrash(): { reached: Promise<void>; crash: (step: StepContext) => Promise<unknown> } {
  const { promise, resolve } = Promise.withResolvers<void>();
  const crash = (step: StepContext) =>
    step.run("crash", () => {
      if (step.execution > 1) return;
      resolve();
      return forever();
    });
  return { reached: promise, crash };
}

forEachStore("step.run() answers what its function returned, and the run completes with it", async (context) => {
  const run = await perform(context, async (step) => {
    const first = await step.run("first", () => 20);
    return first + await step.run("second", () => Promise.resolve(22));
  });

  assert.equal(run.status, "completed");
  assert.equal(run.output, 42);
});

forEachStore("step.run() does not execute recorded steps again after a crash", async (context) => {
  const calls: string[] = [];
  const { reached, crash } = aCrash();
  const job = aJob(async (step) => {
    const first = await step.run("first", () => calls.push("first"));
    const second = await step.run("second", () => calls.push("second"));
    await crash(step);
    return [first, second, step.execution];
  });
  const runId = await beginElsewhere(context.store, job);
  await reached;

  const run = await takeOver(context, job, runId);

  assert.deepEqual(calls, ["first", "second"]);
  assert.deepEqual(run.output, [1, 2, 2]);
});

forEachStore("step.run() goes on from the steps that a dropped claim has recorded", async ({ store, host }) => {
  const job = aJob(async (step) => [
    await step.run("first", () => "anew"),
    await step.run("second", () => "anew"),
  ]);
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  const { lease } = await claimOne(store, "job");
  await store.saveStep(lease, aStep({ name: "first", result: { status: "completed", output: '"recorded"' } }), []);
  host.advance(LEASE_MS);

  await engine.runUntilIdle();

  assert.deepEqual((await engine.getRun(id))!.output, ["recorded", "anew"]);
  assert.deepEqual((await engine.getSteps(id)).map(({ name, index }) => [name, index]), [["first", 0], ["second", 1]]);
});

forEachStore("step.run() passes over recorded steps that the code no longer has", async ({ store, host }) => {
  const job = aJob(async (step) => [
    await step.run("new", () => "anew"),
    await step.run("kept", () => "anew"),
  ]);
  await using engine = createEngine({ onDivergence: "continue", store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  const { lease } = await claimOne(store, "job");
  await store.saveStep(lease, aStep({ name: "gone", index: 0 }), []);
  await store.saveStep(lease, aStep({ name: "kept", index: 1 }), []);
  host.advance(LEASE_MS);

  await engine.runUntilIdle();

  assert.deepEqual((await engine.getRun(id))!.output, ["anew", "rows"]);
});

forEachStore("step.run() takes a name that is used again for another step", async (context) => {
  const calls: number[] = [];
  const { reached, crash } = aCrash();
  const job = aJob(async (step) => {
    const values: number[] = [];
    for (let round = 0; round < 3; round++) values.push(await step.run("round", () => calls.push(round)));
    await crash(step);
    return values;
  });
  const runId = await beginElsewhere(context.store, job);
  await reached;

  const run = await takeOver(context, job, runId);

  assert.deepEqual(run.output, [1, 2, 3]);
  assert.deepEqual(calls, [0, 1, 2]);
  const names = (await getSteps(context.store, runId)).map(({ name }) => name);
  assert.deepEqual(names, ["round", "round#2", "round#3", "crash"]);
});

forEachStore("step.run() refuses a name whose earlier use has not settled", async (context) => {
  const calls: string[] = [];

  const run = await perform(context, async (step) => {
    const open = step.run("same", () => calls.push("first"));
    await assert.rejects(step.run("same", () => calls.push("second")), { name: "TypeError", message: /"same"/ });
    return await open;
  });

  assert.equal(run.status, "completed");
  assert.deepEqual(calls, ["first"]);
});

forEachStore("step.run() refuses names that look like an occurrence, and what is no name", async (context) => {
  const run = await perform(context, async (step) => {
    for (const name of ["x#2", "x#10", "", "\n", "\ud800", "x".repeat(256), 7 as unknown as string]) {
      await assert.rejects(step.run(name, () => {}), TypeError, JSON.stringify(name));
    }
    return await step.run("x#two", () => "fine");
  });

  assert.equal(run.output, "fine");
});

forEachStore("step.run() throws the same StepError the first time and on a replay", async (context) => {
  const seen: unknown[] = [];
  const { reached, crash } = aCrash();
  const job = aJob(async (step) => {
    try {
      await step.run("breaks", () => {
        throw Object.assign(new RangeError("too far"), { extra: 1 });
      });
    } catch (error) {
      assert.ok(error instanceof StepError);
      const { name, message, stepName, attempts, code } = error;
      seen.push({ name, message, stepName, attempts, code, own: Object.keys(error).toSorted() });
    }
    await crash(step);
    return "went on";
  });
  const runId = await beginElsewhere(context.store, job);
  await reached;

  const run = await takeOver(context, job, runId);

  assert.equal(run.output, "went on");
  const expected = { name: "RangeError", message: "too far", stepName: "breaks", attempts: 1, code: "step_failed" };
  assert.partialDeepStrictEqual(seen[0], expected);
  assert.deepEqual(seen[1], seen[0]);
});

forEachStore("step.run() fails the run by a failure that nobody catches", async ({ store, host }) => {
  const job = aJob(async (step) => {
    await step.run("fine", () => 1);
    await step.run("breaks", () => Promise.reject(new Error("no connection")));
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);

  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  const run = (await engine.getRun(id))!;
  assert.equal(run.status, "failed");
  assert.equal(run.error, "no connection");
  const failures = events.filter(({ type }) => type === "step:fail" || type === "run:fail");
  assert.partialDeepStrictEqual(failures, [{
    type: "step:fail",
    stepName: "breaks",
    stepIndex: 1,
    attempt: 1,
    error: "no connection",
    retryAt: null,
  }, { type: "run:fail", error: "no connection", failedStepName: "breaks" }]);
});

forEachStore("step.run() executes parallel steps side by side", async (context) => {
  const left = Promise.withResolvers<void>();
  const right = Promise.withResolvers<void>();

  const run = await perform(context, (step) =>
    Promise.all([
      step.run("left", async () => {
        left.resolve();
        await right.promise;
        return "left";
      }),
      step.run("right", async () => {
        right.resolve();
        await left.promise;
        return "right";
      }),
    ]));

  assert.deepEqual(run.output, ["left", "right"]);
});

forEachStore("step.run() lets parallel steps end before a failure ends the run", async ({ store, host }) => {
  const failed = Promise.withResolvers<void>();
  const job = aJob((step) =>
    Promise.all([
      step.run("breaks", () => {
        failed.resolve();
        throw new Error("broken");
      }),
      step.run("slow", async () => {
        await failed.promise;
        await host.settle();
        return "saved";
      }),
    ])
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);

  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  const steps = (await engine.getSteps(id)).map(({ name, status }) => [name, status]);
  assert.deepEqual(steps, [["breaks", "failed"], ["slow", "completed"]]);
  const types = events.map(({ type }) => type);
  assert.ok(types.indexOf("step:complete") < types.indexOf("run:fail"));
});

forEachStore("step.run() replays Promise.race as it went", async (context) => {
  const fast = Promise.withResolvers<string>();
  const slow = Promise.withResolvers<string>();
  const { reached, crash } = aCrash();
  const job = aJob(async (step) => {
    const branches = [step.run("asked first", () => slow.promise), step.run("won", () => fast.promise)];
    const winner = await Promise.race(branches);
    await Promise.all(branches);
    await crash(step);
    return winner;
  });
  const runId = await beginElsewhere(context.store, job);
  await context.host.settle();
  fast.resolve("fast");
  await context.host.settle();
  slow.resolve("slow");
  await reached;

  const run = await takeOver(context, job, runId);

  assert.equal(run.output, "fast");
});

forEachStore("step.run() replays interleaved branches in the order of their commits", async (context) => {
  const gates = new Map(["a1", "a2", "b1", "b2"].map((name) => [name, Promise.withResolvers<void>()]));
  const orders: string[][] = [];
  const { reached, crash } = aCrash();
  const job = aJob(async (step) => {
    const order: string[] = [];
    orders.push(order);
    const branch = async (...names: string[]) => {
      for (const name of names) {
        await step.run(name, () => gates.get(name)!.promise);
        order.push(name);
      }
    };
    await Promise.all([branch("a1", "a2"), branch("b1", "b2")]);
    await crash(step);
  });
  const runId = await beginElsewhere(context.store, job);
  for (const name of ["b1", "b2", "a1", "a2"]) {
    await context.host.settle();
    gates.get(name)!.resolve();
  }
  await reached;

  const run = await takeOver(context, job, runId);

  assert.equal(run.status, "completed");
  assert.deepEqual(orders, [["b1", "b2", "a1", "a2"], ["b1", "b2", "a1", "a2"]]);
});

forEachStore("step.run() replays no result before the job has gone on with the one before", async (context) => {
  const orders: string[][] = [];
  const turns = async (count: number) => {
    for (let turn = 0; turn < count; turn++) await null;
  };
  const { reached, crash } = aCrash();
  const job = aJob(async (step) => {
    const order: string[] = [];
    orders.push(order);
    await Promise.all([
      step.run("first", () => 1).then(() => turns(100)).then(() => order.push("first")),
      turns(50).then(() => step.run("second", () => context.host.settle())).then(() => order.push("second")),
    ]);
    await crash(step);
  });
  const runId = await beginElsewhere(context.store, job);
  await reached;

  await takeOver(context, job, runId);

  assert.deepEqual(orders, [["first", "second"], ["first", "second"]]);
});

forEachStore("step.run() answers its value after a round trip through JSON, on every execution", async (context) => {
  const seen: unknown[] = [];
  const { reached, crash } = aCrash();
  const job = aJob(async (step) => {
    seen.push([
      await step.run("undefined", () => undefined),
      await step.run("null", () => null),
      await step.run("date", () => new Date(0)),
      await step.run("object", () => ({ point: { x: 1, hidden: undefined }, list: [-0] })),
    ]);
    await crash(step);
  });
  const runId = await beginElsewhere(context.store, job);
  await reached;

  await takeOver(context, job, runId);

  assert.deepEqual(seen[0], [undefined, null, "1970-01-01T00:00:00.000Z", { point: { x: 1 }, list: [0] }]);
  assert.deepEqual(seen[1], seen[0]);
});

forEachStore("step.run() gives the job a value of its own", async (context) => {
  const shared = { count: 1 };

  const run = await perform(context, async (step) => {
    const value = await step.run("shared", () => shared);
    value.count = 2;
    return [shared.count, value.count];
  });

  assert.deepEqual(run.output, [1, 2]);
});

forEachStore("step.run() names the step and the path of what JSON would lose", async (context) => {
  const run = await perform(context, async (step) => {
    const messages: Record<string, string> = {};
    const values = { map: { rows: [{ byName: new Map() }] }, number: [1, NaN], bigint: 1n, work: () => 1 };
    for (const [name, value] of Object.entries(values)) {
      await step.run(name, () => value).catch((error: StepError) => {
        assert.equal(error.name, "SerializationError");
        messages[name] = error.message;
      });
    }
    return messages;
  });

  const messages = run.output as Record<string, string>;
  assert.match(messages.map!, /step "map".*a Map at \$\.rows\[0\]\.byName/);
  assert.match(messages.number!, /step "number".*NaN at \$\[1\]/);
  assert.match(messages.bigint!, /step "bigint".*a bigint at \$/);
  assert.match(messages.work!, /step "work".*a function at \$/);
});

forEachStore("step.run() fails a step whose result is larger than maxValueBytes", async ({ store, host }) => {
  const job = aJob((step) => step.run("large", () => "x".repeat(100)));
  await using engine = createEngine({ store, host, jobs: { job }, maxValueBytes: 100 });

  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  const run = (await engine.getRun(id))!;
  assert.equal(run.status, "failed");
  assert.match(run.error!, /step "large" is too large.*100 bytes/);
});

forEachStore("step.run() survives a value that is nested too deep to be written", async (context) => {
  const run = await perform(context, async (step) => {
    await step.run("deep", () => {
      let value: unknown = 1;
      for (let depth = 0; depth < 20_000; depth++) value = [value];
      return value;
    }).catch((error: unknown) => {
      assert.ok(error instanceof StepError);
      assert.match(error.message, /step "deep" cannot be stored as JSON: it is nested more than 1000 levels deep$/);
    });
    return "lives";
  });

  assert.equal(run.output, "lives");
});

forEachStore("step.run() cannot begin inside the function of another step", async (context) => {
  const run = await perform(context, (step) => step.run("outer", () => step.run("inner", () => 1)));

  assert.equal(run.status, "failed");
  assert.match(run.error!, /"inner".*"outer": call it before or after that step/);
});

forEachStore("step.run() without a name says that it needs one", async (context) => {
  const run = await perform(context, (step) => step.run((() => 1) as never, undefined as never));

  assert.equal(run.error, "A step needs a name, a string, as its first argument, not a function");
});

forEachStore("step.run() executes nothing, and never settles, once its run has ended", async ({ store, host }) => {
  let kept: StepContext | undefined;
  let isExecuted = false;
  const job = aJob((step) => void (kept = step));
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();
  const events = recordEvents(engine);

  let isSettled = false;
  kept!.run("late", () => void (isExecuted = true)).finally(() => isSettled = true);
  await host.settle();

  assert.equal(isSettled, false);
  assert.equal(isExecuted, false);
  assert.deepEqual(events, []);
  assert.deepEqual(await engine.getSteps(id), []);
});

forEachStore("step.progress() and step.log are silent once the run has ended", async ({ store, host }) => {
  let kept: StepContext | undefined;
  const job = aJob((step) => void (kept = step));
  await using engine = createEngine({ store, host, jobs: { job } });
  await engine.trigger(job, null);
  await engine.runUntilIdle();
  const events = recordEvents(engine);

  kept!.progress(1);
  kept!.log.info("late");

  assert.deepEqual(events, []);
});

forEachStore("step.run() that is not awaited ends before the run completes", async ({ store, host }) => {
  const job = aJob((step) => {
    step.run("forgotten", async () => {
      await host.settle();
      return "saved";
    });
    return "done";
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);

  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  assert.equal((await engine.getRun(id))!.output, "done");
  assert.equal((await engine.getSteps(id))[0]!.output, "saved");
  assert.deepEqual(events.slice(-2).map(({ type }) => type), ["step:complete", "run:complete"]);
});

forEachStore("step.run() that is not awaited and fails ends neither the process nor the run", async (context) => {
  const run = await perform(context, (step) => {
    step.run("forgotten", () => Promise.reject(new Error("unheard")));
    return "done";
  });

  assert.equal(run.output, "done");
});

forEachStore("step.run() gives its function a key that every execution shares", async (context) => {
  const keys: string[] = [];
  const reached = Promise.withResolvers<void>();
  const job = aJob((step) =>
    step.run("pay", ({ idempotencyKey, attempt }) => {
      assert.equal(attempt, 1);
      keys.push(idempotencyKey);
      if (step.execution === 2) return;
      reached.resolve();
      return forever();
    })
  );
  const runId = await beginElsewhere(context.store, job);
  await reached.promise;

  await takeOver(context, job, runId);

  assert.equal(keys.length, 2);
  assert.equal(keys[0], keys[1]);
  assert.ok(keys[0]!.includes(runId));
});

function anOutputSchema(validate: (value: unknown) => { value: unknown } | { issues: { message: string }[] }) {
  return { "~standard": { version: 1, vendor: "test", validate } } as const;
}

forEachStore("run() keeps what it returned, not what the output schema makes of it", async ({ store, host }) => {
  const output = anOutputSchema(() => ({ value: "transformed" }));
  const job = defineJob({ name: "job", input: anything, output, run: (): unknown => 1 });
  await using engine = createEngine({ store, host, jobs: { job } });

  const { id } = await engine.trigger("job", null);
  await engine.runUntilIdle();

  assert.equal((await engine.getRun(id))!.output, 1);
});

forEachStore("run() fails a run whose output does not fit its schema", async ({ store, host }) => {
  const output = anOutputSchema(() => ({ issues: [{ message: "no number", path: ["n"] }] }));
  const job = defineJob({ name: "job", input: anything, output, run: (): unknown => "one" });
  await using engine = createEngine({ store, host, jobs: { job } });

  const { id } = await engine.trigger("job", null);
  await engine.runUntilIdle();

  const run = (await engine.getRun(id))!;
  assert.equal(run.status, "failed");
  assert.match(run.error!, /^The output of job "\w+" does not fit its schema: n: no number$/);
  assert.equal(run.output, null);
});

forEachStore("run() fails a run whose output schema throws", async ({ store, host }) => {
  const output = anOutputSchema(() => {
    throw new Error("broken schema");
  });
  const job = defineJob({ name: "job", input: anything, output, run: (): unknown => 1 });
  await using engine = createEngine({ store, host, jobs: { job } });

  const { id } = await engine.trigger("job", null);
  await engine.runUntilIdle();

  assert.equal((await engine.getRun(id))!.status, "failed");
});

forEachStore("run() fails a run whose output cannot be stored as JSON", async (context) => {
  const run = await perform(context, () => ({ when: [new Set()] }));

  assert.equal(run.status, "failed");
  assert.match(run.error!, /The output of job "\w+" cannot be stored as JSON: a Set at \$\.when\[0\]/);
});

forEachStore("step.progress() is published at once and kept with the next write", async ({ store, host }) => {
  const kept: unknown[] = [];
  const job = aJob(async (step) => {
    step.progress(1, 10, "read");
    kept.push((await getRun(store, step.runId))!.progress);
    await step.run("write", () => {});
    kept.push((await getRun(store, step.runId))!.progress);
    step.progress(2);
    step.progress(2);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);

  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  assert.deepEqual(kept, [null, { current: 1, total: 10, message: "read" }]);
  assert.deepEqual((await engine.getRun(id))!.progress, { current: 2 });
  const told = events.filter((event) => event.type === "run:progress").map(({ progress }) => progress);
  assert.deepEqual(told, [{ current: 1, total: 10, message: "read" }, { current: 2 }, { current: 2 }]);
});

forEachStore("step.progress() refuses what is no number, and cuts long messages", async (context) => {
  const run = await perform(context, (step) => {
    for (const odd of [NaN, Infinity, -Infinity]) {
      assert.throws(() => step.progress(odd), RangeError);
      assert.throws(() => step.progress(1, odd), RangeError);
    }
    assert.throws(() => step.progress(undefined as never), RangeError);
    step.progress(-1, 0, "m\ud800".repeat(1_000_000));
  });

  const { current, total, message } = run.progress!;
  assert.deepEqual([current, total], [-1, 0]);
  assert.ok(message!.length < 10_000 && message!.isWellFormed());
});

forEachStore("step.progress() and step.log are silent on a replay", async ({ store, host }) => {
  const { reached, crash } = aCrash();
  const job = aJob(async (step) => {
    step.progress(1);
    step.log.info("before");
    await step.run("first", () => {});
    step.log.info("between");
    await step.run("second", () => {});
    step.log.info("after");
    await crash(step);
    step.progress(3);
  });
  const runId = await beginElsewhere(store, job);
  await reached;
  await host.settle(); // until the other process does nothing more
  host.advance(LEASE_MS);
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);

  await engine.runUntilIdle();

  const told = events.flatMap((event): unknown[] =>
    event.type === "log:write" ? [event.message] : event.type === "run:progress" ? [event.progress.current] : []
  );
  assert.deepEqual(told, ["after", 3]);
  assert.deepEqual((await engine.getRun(runId))!.progress, { current: 3 });
});

forEachStore("step.log tells in which step a line was written, and persistLogs() keeps it", async ({ store, host }) => {
  const job = aJob(async (step) => {
    step.log.info("outside", { n: 1 });
    await step.run("inside", async () => {
      step.log.warn("sync");
      await host.settle(1);
      step.log.error("async", new Map());
    });
    step.log.info("\ud800".repeat(100_000));
  });
  await using engine = createEngine({ store, host, jobs: { job } }).use(persistLogs()).use(persistLogs());

  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  const logs = await engine.getLogs(id);
  assert.deepEqual(logs.slice(0, 3).map(({ level, stepName, message }) => [level, stepName, message]), [
    ["info", null, "outside"],
    ["warn", "inside", "sync"],
    ["error", "inside", "async"],
  ]);
  assert.deepEqual(logs[0]!.data, { n: 1 });
  assert.equal(logs[1]!.data, null);
  assert.match((logs[2]!.data as { error: string }).error, /a Map/);
  assert.equal(logs.length, 4);
  assert.ok(logs[3]!.message.length < 9_000 && logs[3]!.message.isWellFormed());
});

forEachStore("step.log keeps the text of an error, also inside of its data", async ({ store, host }) => {
  const job = aJob((step) => {
    step.log.error("no card", new TypeError("no such card"));
    step.log.warn("no card", { order: 7, tried: [new Error("refused")] });
  });
  await using engine = createEngine({ store, host, jobs: { job } }).use(persistLogs());

  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  const kept = (await engine.getLogs(id)).map(({ data }) => data);
  assert.deepEqual(kept, ["TypeError: no such card", { order: 7, tried: ["Error: refused"] }]);
});

forEachStore("step.log cuts a line of more than 8 KiB: what is published is what is kept", async ({ store, host }) => {
  const job = aJob((step) => {
    step.log.info("hello", { rows: "x".repeat(100_000) });
    step.log.info("€".repeat(100_000), { row: 3 });
  });
  await using engine = createEngine({ store, host, jobs: { job } }).use(persistLogs());
  const events = recordEvents(engine);

  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  const told = events.flatMap((event) => event.type === "log:write" ? [[event.message, event.data]] : []);
  const kept = (await engine.getLogs(id)).map(({ message, data }) => [message, data]);
  assert.deepEqual(told, kept);
  assert.deepEqual(told[0], ["hello", { cut: true, bytes: 100_011 }]);
  assert.match(told[1]![0] as string, /^€{2000,}… \(cut\)$/);
  assert.deepEqual(told[1]![1], { row: 3 });
});

forEachStore("step.execution counts interruptions, by a crash as by a stop", async (context) => {
  const { store, host } = context;
  const executions: number[] = [];
  const reached = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const job = aJob((step) =>
    step.run("work", () => {
      executions.push(step.execution);
      if (step.execution === 3) return;
      reached[step.execution - 1]!.resolve();
      return forever();
    })
  );
  const runId = await beginElsewhere(store, job);
  await reached[0]!.promise;
  await host.settle();
  host.advance(LEASE_MS);
  const stopped = createEngine({ store, host, jobs: { job } });
  await stopped.start();
  await reached[1]!.promise;
  const stopping = stopped.stop({ timeout: 100 });
  await pass(host, 1_000);
  await stopping;

  const run = await takeOver(context, job, runId);

  assert.equal(run.status, "completed");
  assert.deepEqual(executions, [1, 2, 3]);
});

forEachStore("run() fails a run that was abandoned maxAbandonments times in a row", async ({ store, host }) => {
  const job = aJob(() => "fine");
  await using engine = createEngine({ store, host, jobs: { job }, worker: { maxAbandonments: 3 } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);
  for (let crash = 0; crash < 3; crash++) {
    await endDelay(store, host);
    await claimOne(store, "job");
    host.advance(LEASE_MS);
  }

  const { executed } = await engine.runUntilIdle();

  const run = (await engine.getRun(id))!;
  assert.equal(executed, 0);
  assert.equal(run.status, "failed");
  assert.match(run.error!, /3 times/);
  assert.partialDeepStrictEqual(events.at(-1), { type: "run:fail", error: run.error, failedStepName: null });
});

forEachStore("run() counts abandonments anew after something was recorded", async ({ store, host }) => {
  const job = aJob((step) => step.execution);
  await using engine = createEngine({
    onDivergence: "continue",
    store,
    host,
    jobs: { job },
    worker: { maxAbandonments: 3 },
  });
  const { id } = await engine.trigger(job, null);
  for (const records of [false, false, true, false]) {
    await endDelay(store, host);
    const { lease } = await claimOne(store, "job");
    if (records) await store.saveStep(lease, aStep(), []);
    host.advance(LEASE_MS);
  }
  await endDelay(store, host);

  await engine.runUntilIdle();

  assert.equal((await engine.getRun(id))!.output, 5);
});

forEachStore("run() does not count a stop as an abandonment", async ({ store, host }) => {
  let executions = 0;
  let reached = Promise.withResolvers<void>();
  const job = aJob((step) =>
    step.run("work", () => {
      if (++executions === 4) return "done";
      reached.resolve();
      return forever();
    })
  );
  const settings = { store, host, jobs: { job }, worker: { maxAbandonments: 2 } };
  await using last = createEngine(settings);
  const { id } = await last.trigger(job, null);
  for (let stop = 0; stop < 3; stop++) {
    reached = Promise.withResolvers<void>();
    const engine = createEngine(settings);
    await engine.start();
    await reached.promise;
    const stopping = engine.stop({ timeout: 10 });
    await pass(host, 1_000);
    await stopping;
  }

  await last.runUntilIdle();

  assert.equal((await last.getRun(id))!.output, "done");
});

forEachStore("step.run() that returns beside a cancel is recorded and told as one thing", async ({ store, host }) => {
  const gate = Promise.withResolvers<string>();
  const reached = Promise.withResolvers<void>();
  const job = aJob((step) =>
    step.run("slow", () => {
      reached.resolve();
      return gate.promise;
    })
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);
  const idle = engine.runUntilIdle();
  await reached.promise;

  gate.resolve("just in time");
  await engine.cancel(id);
  await idle;

  const run = (await engine.getRun(id))!;
  const [step] = await engine.getSteps(id);
  assert.equal(run.status, "cancelled");
  const endings = events.map(({ type }) => type).filter((type) => /^step:(complete|cancel|fail)$/.test(type));
  assert.deepEqual(endings, [step!.status === "cancelled" ? "step:cancel" : "step:complete"]);
});

forEachStore(
  "step.run() never settles in a job whose run was cancelled, so that nothing can swallow it",
  async (context) => {
    const { store, host } = context;
    const reached = Promise.withResolvers<void>();
    let isSettled = false;
    const job = aJob(async (step) => {
      const branch = (async () => void await step.run("branch", forever))();
      await step.run("first", ({ abortSignal }) => {
        reached.resolve();
        return new Promise((_resolve, reject) =>
          abortSignal.addEventListener("abort", () => reject(abortSignal.reason))
        );
      }).finally(() => isSettled = true);
      await branch;
    });
    const engine = createEngine({ store, host, jobs: { job } });
    const { id } = await engine.trigger(job, null);
    await engine.start();
    await reached.promise;

    await engine.cancel(id);
    await pass(host, 1_000);

    assert.equal(isSettled, false);
    assert.deepEqual(
      (await engine.getSteps(id)).map(({ name, status }) => [name, status]),
      [["branch", "cancelled"], ["first", "cancelled"]],
    );
    const stopping = engine.stop({ timeout: 10 });
    await pass(host, 1_000);
    await stopping;
  },
);

forEachStore("step.run() keeps a thousand steps apart and replays them in one go", async (context) => {
  const count = 1_000;
  let calls = 0;
  const { reached, crash } = aCrash();
  const job = aJob(async (step) => {
    let sum = 0;
    for (let n = 0; n < count; n++) sum += await step.run("n", () => (calls++, n));
    await crash(step);
    return sum;
  });
  const runId = await beginElsewhere(context.store, job);
  await reached;

  const run = await takeOver(context, job, runId);

  assert.equal(run.output, count * (count - 1) / 2);
  assert.equal(calls, count);
});

forEachStore("step.run() gives waitForRun() the error of the step", async ({ store, host }) => {
  const job = aJob((step) => step.run("breaks", () => Promise.reject(new Error("broken"))));
  await using engine = createEngine({ store, host, jobs: { job } });
  await engine.start();
  const failed = nextEvent(engine, "run:fail");
  const { id } = await engine.trigger(job, null);

  const waiting = engine.waitForRun(id);

  await assert.rejects(waiting, RunFailedError);
  assert.equal((await failed).failedStepName, "breaks");
});

const ODDITIES: Record<string, unknown> = {
  "a string": "just text",
  undefined: undefined,
  null: null,
  "a number": 7,
  "a symbol": Symbol("odd"),
  "an object without prototype": Object.create(null),
  "a frozen error": Object.freeze(new Error("frozen")),
  "an error whose message throws": Object.defineProperty(new Error(), "message", {
    get: () => {
      throw new Error("no message");
    },
  }),
  "an error of 10 MB": new Error("x".repeat(10_000_000)),
  "an error with a lone surrogate": new Error("cut \ud83d"),
  "an error without a message": new Error(),
  "an object whose stepName throws": {
    get stepName(): string {
      throw new Error("no step name");
    },
  },
  "a revoked proxy": (() => {
    const { proxy, revoke } = Proxy.revocable({}, {});
    revoke();
    return proxy;
  })(),
};

for (const [description, thrown] of Object.entries(ODDITIES)) {
  forEachStore(`run() fails with a bounded, well-formed text when it throws ${description}`, async (context) => {
    const run = await perform(context, () => {
      throw thrown;
    });

    assert.equal(run.status, "failed");
    assert.ok(run.error!.length > 0 && run.error!.length < 9_000);
    assert.ok(run.error!.isWellFormed());
  });

  forEachStore(`step.run() fails with a bounded, well-formed text when it throws ${description}`, async (context) => {
    const run = await perform(context, async (step) => {
      try {
        return await step.run("odd", () => {
          throw thrown;
        });
      } catch (error) {
        assert.ok(error instanceof StepError);
        return "caught";
      }
    });

    assert.equal(run.output, "caught");
    const [step] = await getSteps(context.store, run.id);
    assert.ok(step!.error!.length < 9_000 && step!.error!.isWellFormed());
  });
}
