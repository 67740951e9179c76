import assert from "node:assert/strict";
import { forEachStore } from "../support/for_each_store.ts";
import { createEngine } from "../support/quiet_engine.ts";
import { aJob, echo } from "../support/jobs.ts";
import { outputOf } from "../support/pauses.ts";

forEachStore("invoke() returns what a child run returns", async ({ store, host }) => {
  const parent = aJob(async (step) => [await step.invoke("one", echo, { a: 1 }), await step.invoke("one", echo, 2)]);
  await using engine = createEngine({ store, host, jobs: { parent, echo } });
  const { id } = await engine.trigger(parent, null);

  await engine.runUntilIdle();

  assert.deepEqual(await outputOf(engine, id), [{ a: 1 }, 2]);
  const { runs } = await store.getRuns({ parentRunId: id });
  assert.deepEqual(runs.map(({ jobName, status }) => [jobName, status]), Array(2).fill(["echo", "completed"]));
});

forEachStore("step.trigger() starts a run", async ({ store, host }) => {
  const parent = aJob((step) => step.trigger("one", echo, { a: 1 }));
  await using engine = createEngine({ store, host, jobs: { parent, echo } });
  const { id } = await engine.trigger(parent, null);

  await engine.runUntilIdle();

  const { runId, disposition } = await outputOf(engine, id) as { runId: string; disposition: string };
  assert.equal(disposition, "created");
  assert.deepEqual(await outputOf(engine, runId), { a: 1 });
});
