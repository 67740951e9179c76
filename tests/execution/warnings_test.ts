import assert from "node:assert/strict";
import type { StepContext } from "../../src/model/job.ts";
import { aJob } from "../support/jobs.ts";
import { createEngine } from "../support/quiet_engine.ts";
import { forEachStore, pass, type StoreTest } from "../support/stores/for_each_store.ts";

/** An engine with one job, and the warnings that it logs. */
function aWarningEngine({ store, host }: StoreTest, body: (step: StepContext) => unknown) {
  const warnings: string[] = [];
  const job = aJob(body, "import");
  const logger = { info: () => {}, warn: (text: string) => void warnings.push(text), error: () => {} };
  return { engine: createEngine({ store, host, jobs: { job }, logger }), warnings };
}

const UNAWAITED = "the job can return before it has ended, and nobody sees that it failed";

forEachStore(
  "a job that returns while a step is under way that it has not awaited is warned of, once",
  async (context) => {
    const { engine, warnings } = aWarningEngine(context, async (step) => {
      step.run("slow", () => context.host.settle(1));
      await step.run("awaited", () => 1);
    });
    await using _ = engine;

    await engine.trigger("import", null);
    await engine.trigger("import", null);
    await engine.runUntilIdle();

    assert.deepEqual(warnings, [`Job "import" does not await step.run("slow"): ${UNAWAITED}`]);
  },
);

forEachStore("a step that fails without being awaited is warned of, and the run completes", async (context) => {
  const { engine, warnings } = aWarningEngine(context, async (step) => {
    step.run("broken", () => Promise.reject(new Error("no")));
    await step.sleep("nap", 1);
    return "done";
  });
  await using _ = engine;
  const { id } = await engine.trigger("import", null);

  await engine.runUntilIdle();
  await pass(context.host, 10);
  await engine.runUntilIdle();

  assert.equal((await engine.getRun(id))!.output, "done");
  assert.deepEqual(warnings, [`Job "import" does not await step.run("broken"): ${UNAWAITED}`]);
});

forEachStore("steps that lose a race, or whose failure is caught later, are not warned of", async (context) => {
  const { engine, warnings } = aWarningEngine(context, async (step) => {
    const failing = step.run("failing", () => Promise.reject(new Error("no")));
    await step.run("first", () => 1);
    await failing.catch(() => {});
    return await Promise.race([step.run("fast", () => 1), step.run("slow", () => context.host.settle(1))]);
  });
  await using _ = engine;

  await engine.trigger("import", null);
  await engine.runUntilIdle();

  assert.deepEqual(warnings, []);
});

forEachStore(
  "a call that a job makes after its run has parked, since it awaited no step, is warned of",
  async (context) => {
    const outside = Promise.withResolvers<void>();
    let isExecuted = false;
    const { engine, warnings } = aWarningEngine(context, async (step) => {
      await Promise.race([step.wait("review"), outside.promise]);
      return await step.run("late", () => void (isExecuted = true));
    });
    await using _ = engine;
    const { id } = await engine.trigger("import", null);
    await engine.runUntilIdle();

    outside.resolve();
    await context.host.settle();

    assert.equal((await engine.getRun(id))!.status, "waiting");
    assert.equal(isExecuted, false);
    assert.deepEqual(warnings, [
      'Job "import" has called step.run("late") after its run had parked: it awaits something that is no step, and what ' +
      "follows never happens here. Put that into the function of a step",
    ]);
  },
);

forEachStore("a call that a job makes after it has ended is warned of", async (context) => {
  const late = Promise.withResolvers<void>();
  let isExecuted = false;
  const { engine, warnings } = aWarningEngine(context, (step) => {
    late.promise.then(() => step.run("late", () => void (isExecuted = true)));
    return "done";
  });
  await using _ = engine;
  await engine.trigger("import", null);
  await engine.runUntilIdle();

  late.resolve();
  await context.host.settle();

  assert.equal(isExecuted, false);
  assert.deepEqual(warnings, [
    'Job "import" has called step.run("late") after it had ended: that is never executed. Await it in the job',
  ]);
});

forEachStore(
  "a wait for a run of a job that no live worker has is warned of after two seconds, once",
  async (context) => {
    const { engine, warnings } = aWarningEngine(context, () => 1);
    await using _ = engine;
    const waits = [engine.jobs.job.triggerAndWait(null), engine.jobs.job.triggerAndWait(null)];

    await pass(context.host, 1_900);
    const before = [...warnings];
    await pass(context.host, 1_200);
    await engine.runUntilIdle();
    await Promise.all(waits);

    assert.deepEqual(before, []);
    assert.deepEqual(warnings, [
      'A run of job "import" is waited for, and no live worker has this job: call start() on an engine that has it',
    ]);
  },
);

forEachStore("a wait for a run of a job that a worker has is not warned of", async (context) => {
  const { engine, warnings } = aWarningEngine(context, (step) => step.sleep("nap", 5_000));
  await using _ = engine;
  await engine.start();

  const wait = engine.jobs.job.triggerAndWait(null);
  await pass(context.host, 10_000);
  await wait;

  assert.deepEqual(warnings, []);
});
