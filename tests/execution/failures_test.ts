import assert from "node:assert/strict";
import { RunFailedError, StepError } from "../../src/model/error.ts";
import type { RunEvent } from "../../src/model/event.ts";
import type { Failure } from "../../src/model/failure.ts";
import type { StepContext } from "../../src/model/job.ts";
import { claimOne, forEachStore, forever, LEASE_MS, pass, type StoreTest } from "../support/stores/for_each_store.ts";
import { createEngine } from "../support/quiet_engine.ts";
import { aJob } from "../support/jobs.ts";

function anEngine({ store, host }: StoreTest, run: (step: StepContext) => unknown) {
  return createEngine({ store, host, jobs: { job: aJob(run, "import") } });
}

/** What somebody's code throws: the stack names this function. */
function openFile(): never {
  throw new RangeError("ENOENT: no such file", { cause: new TypeError("the disk is gone") });
}

function assertOpenFile(failure: Failure | null | undefined): void {
  const { kind, name, message, stack, cause } = failure!;
  assert.deepEqual([kind, name, message], ["error", "RangeError", "ENOENT: no such file"]);
  assert.match(stack!, /openFile.*failures_test\.ts/);
  assert.deepEqual([cause!.name, cause!.message], ["TypeError", "the disk is gone"]);
}

forEachStore("a run and its step keep what the step threw, with stack and cause", async (context) => {
  await using engine = anEngine(context, (step) => step.run("read", openFile));
  const { id } = await engine.trigger("import", null);

  await engine.runUntilIdle();

  const run = (await engine.getRun(id))!;
  const [step] = await engine.getSteps(id);
  assertOpenFile(run.failure);
  assert.deepEqual(step!.failure, run.failure);
  assert.deepEqual([run.error, run.failedStepName, step!.error], [run.failure!.message, "read", run.failure!.message]);
});

forEachStore("a run keeps what its function threw, and names no step", async (context) => {
  await using engine = anEngine(context, openFile);
  const { id } = await engine.trigger("import", null);

  await engine.runUntilIdle();

  const run = (await engine.getRun(id))!;
  assertOpenFile(run.failure);
  assert.equal(run.failedStepName, null);
});

forEachStore("a run that has not failed has no failure", async (context) => {
  await using engine = anEngine(context, (step) => step.run("read", () => 1));
  const { id } = await engine.trigger("import", null);

  await engine.runUntilIdle();

  const { failure, failedStepName } = (await engine.getRun(id))!;
  assert.deepEqual([failure, failedStepName, (await engine.getSteps(id))[0]!.failure], [null, null, null]);
});

forEachStore("a step that its timeout has ended says so, and its run failed of an error", async (context) => {
  const { host } = context;
  await using engine = anEngine(context, (step) => step.run("read", forever, { timeout: 200 }));
  const { id } = await engine.trigger("import", null);
  const idle = engine.runUntilIdle();
  await host.settle();

  host.advance(200);
  await idle;

  const run = (await engine.getRun(id))!;
  assert.deepEqual([run.failure!.kind, run.failure!.name], ["error", "TimeoutError"]);
  assert.equal((await engine.getSteps(id))[0]!.failure!.kind, "timeout");
});

forEachStore("a run that fails of an error with a step's as its cause names the step", async (context) => {
  await using engine = anEngine(context, async (step) => {
    try {
      await step.run("read", () => Promise.reject(new Error("no file")));
    } catch (cause) {
      throw new Error("the import cannot go on", { cause });
    }
  });
  const { id } = await engine.trigger("import", null);

  await engine.runUntilIdle();

  const { failedStepName, error } = (await engine.getRun(id))!;
  assert.deepEqual([failedStepName, error], ["read", "the import cannot go on"]);
});

forEachStore("a timeout of something else is an error like others", async (context) => {
  const error = new DOMException("too slow", "TimeoutError");
  await using engine = anEngine(context, (step) => step.run("read", () => Promise.reject(error), { timeout: 200 }));
  const { id } = await engine.trigger("import", null);

  await engine.runUntilIdle();

  const { kind, name } = (await engine.getRun(id))!.failure!;
  assert.deepEqual([kind, name], ["error", "TimeoutError"]);
});

forEachStore("a run that was abandoned too often says so", async ({ store, host }) => {
  const jobs = { job: aJob(() => {}, "import") };
  await using engine = createEngine({ store, host, jobs, worker: { maxAbandonments: 1 } });
  const { id } = await engine.trigger("import", null);
  await claimOne(store, "import");
  host.advance(LEASE_MS);

  await engine.runUntilIdle();

  const { failure, error } = (await engine.getRun(id))!;
  assert.deepEqual(failure, { kind: "abandoned", name: "Error", message: error, stack: null, cause: null });
});

forEachStore("a StepError is the same on a replay, with stack and cause", async (context) => {
  const { host } = context;
  const seen: StepError[] = [];
  await using engine = anEngine(context, async (step) => {
    await step.run("read", openFile).catch((error) => seen.push(error));
    await step.sleep("nap", 1_000);
  });
  const { id } = await engine.trigger("import", null);

  await engine.runUntilIdle();
  host.advance(1_000);
  await engine.runUntilIdle();

  assert.equal(seen.length, 2);
  const [step] = await engine.getSteps(id);
  for (const error of seen) {
    assert.ok(error instanceof StepError);
    assertOpenFile(error.failure);
    assert.equal(error.stack, step!.failure!.stack);
    assert.deepEqual([error.name, error.message], ["RangeError", "ENOENT: no such file"]);
    const { name, message, stack } = error.cause as Error;
    const { cause } = step!.failure!;
    assert.deepEqual([name, message, stack], [cause!.name, cause!.message, cause!.stack]);
  }
});

forEachStore("waitForRun() and triggerAndWait() say which job failed, in which step and why", async (context) => {
  await using engine = anEngine(context, (step) => step.run("read", openFile));
  await engine.start();

  const error = await engine.jobs.job.triggerAndWait(null).then(() => null, (error: unknown) => error);

  assert.ok(error instanceof RunFailedError);
  const { runId, jobName, stepName, message } = error;
  assert.deepEqual([jobName, stepName], ["import", "read"]);
  assert.equal(message, `Run "${runId}" of job "import" failed in step "read": ENOENT: no such file`);
  const cause = error.cause as Error;
  assert.deepEqual([cause.name, cause.message], ["RangeError", "ENOENT: no such file"]);
  assert.match(cause.stack!, /openFile/);
  assert.equal((cause.cause as Error).message, "the disk is gone");
});

forEachStore("on() gives what was thrown with run:fail and step:fail, streams never", async (context) => {
  const errors = [new RangeError("once"), new TypeError("twice")];
  let attempts = 0;
  await using engine = anEngine(context, (step) =>
    step.run("read", () => {
      throw errors[attempts++];
    }, { retry: { maxAttempts: 2, delay: 0 } }));
  await using elsewhere = anEngine(context, () => {});
  const { id } = await engine.trigger("import", null);
  const streams = [engine, elsewhere].map((one) => Array.fromAsync(one.subscribe(id)));
  const heard: unknown[] = [];
  engine.on("step:fail", ({ thrown }) => void heard.push(thrown));
  engine.on("run:fail", ({ thrown }) => void heard.push(thrown));

  await engine.runUntilIdle();
  const here = await streams[0]!;
  await pass(context.host, 2_000);
  const there = await streams[1]!;

  assert.equal(heard.length, 3);
  assert.ok(heard[0] === errors[0] && heard[1] === errors[1]);
  assert.ok(heard[2] instanceof StepError && heard[2].name === "TypeError");
  const thrownIn = (events: RunEvent[]) => events.flatMap((event) => "thrown" in event ? [event.thrown] : []);
  assert.deepEqual(here, there);
  assert.equal(there.at(-1)!.type, "run:fail");
  assert.deepEqual(thrownIn(there), []);
});

forEachStore("a string that a step throws is named as what it is", async (context) => {
  await using engine = anEngine(context, (step) => step.run("read", () => Promise.reject("boom")));
  const { id } = await engine.trigger("import", null);

  await engine.runUntilIdle();

  const { error, failure } = (await engine.getRun(id))!;
  assert.equal(error, 'A string was thrown instead of an Error: "boom"');
  assert.equal(failure!.stack, null);
});

forEachStore("with errors.stack false, no stack of a run, a step or a cause is stored", async ({ store, host }) => {
  const job = aJob((step) => step.run("read", openFile), "import");
  await using engine = createEngine({ store, host, jobs: { job }, errors: { stack: false } });
  const { id } = await engine.trigger("import", null);

  await engine.runUntilIdle();

  const { failure } = (await engine.getRun(id))!;
  const [step] = await engine.getSteps(id);
  assert.deepEqual([failure!.message, failure!.stack, failure!.cause!.message, failure!.cause!.stack], [
    "ENOENT: no such file",
    null,
    "the disk is gone",
    null,
  ]);
  assert.deepEqual(step!.failure, failure);
});

forEachStore("a stack of a megabyte, and a getter that throws, do no harm", async (context) => {
  const { store } = context;
  const enormous = Object.assign(new Error("x".repeat(100_000)), { stack: "at ".repeat(350_000) });
  const hostile = Object.defineProperty(new Error("y"), "cause", {
    get: () => {
      throw new Error("no");
    },
  });
  await using engine = anEngine(context, async (step) => {
    await step.run("enormous", () => Promise.reject(enormous)).catch(() => {});
    await step.run("hostile", () => Promise.reject(hostile));
  });
  const { id } = await engine.trigger("import", null);

  await engine.runUntilIdle();

  const { steps, run } = (await store.getFailures(id))!;
  assert.deepEqual(steps.map(({ name, attempt }) => [name, attempt]), [["enormous", 1], ["hostile", 1]]);
  const { message, stack } = steps[0]!.failure;
  assert.ok(message.length + stack!.length <= 16_500, `${message.length} and ${stack!.length}`);
  assert.deepEqual([run!.message, run!.cause], ["y", null]);
});

forEachStore("an AggregateError keeps its first four errors, and 16 KiB in all", async (context) => {
  const errors = Array.from(
    { length: 6 },
    (_, at) => Object.assign(new Error(`error ${at}`), { stack: "x".repeat(6_000) }),
  );
  await using engine = anEngine(context, () => {
    throw new AggregateError(errors, "all failed");
  });
  const { id } = await engine.trigger("import", null);

  await engine.runUntilIdle();

  const kept: (Failure | null)[] = [];
  for (let failure = (await engine.getRun(id))!.failure; failure !== null; failure = failure.cause) kept.push(failure);
  assert.deepEqual(kept.map((failure) => failure!.message), ["all failed", "error 0", "error 1", "error 2", "error 3"]);
  const bytes = kept.reduce((sum, failure) => sum + (failure!.stack?.length ?? 0), 0);
  assert.ok(bytes <= 16_384 && bytes > 12_000, `${bytes}`);
});

forEachStore(
  "a SuppressedError keeps what the disposal threw, and what it suppressed with its cause",
  async (context) => {
    await using engine = anEngine(context, (step) =>
      step.run("copy", () => {
        using _file = {
          [Symbol.dispose]: () => {
            throw new Error("cannot close");
          },
        };
        return openFile();
      }));
    const { id } = await engine.trigger("import", null);

    await engine.runUntilIdle();

    const { name, cause } = (await engine.getRun(id))!.failure!;
    assert.deepEqual([name, cause!.message], ["SuppressedError", "cannot close"]);
    assertOpenFile(cause!.cause);
  },
);
