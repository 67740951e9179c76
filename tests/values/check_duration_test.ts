import assert from "node:assert/strict";
import { checkDuration } from "../../src/values/check_duration.ts";
import type { StepContext } from "../../src/job.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { aJob } from "../support/jobs.ts";
import { createEngine } from "../support/quiet_engine.ts";

Deno.test("checkDuration() takes numbers of milliseconds, and nothing else", () => {
  checkDuration(0, "It");
  checkDuration(1.5, "It");
  checkDuration(Infinity, "It");
  checkDuration(-1, "It", -Infinity);
  for (const wrong of ["2d", "5000", null, undefined, 5n]) assert.throws(() => checkDuration(wrong, "It"), TypeError);
  for (const wrong of [-1, NaN, -Infinity]) assert.throws(() => checkDuration(wrong, "It"), RangeError);
  assert.throws(() => checkDuration(NaN, "It", -Infinity), RangeError);
});

const TEXT = "2d" as unknown as number;

const IN_JOBS: Record<string, [subject: string, run: (step: StepContext) => Promise<unknown>]> = {
  "step.run()": ['The timeout of step "read"', (step) => step.run("read", () => 1, { timeout: TEXT })],
  "step.sleep()": ['The length of sleep "nap"', (step) => step.sleep("nap", TEXT)],
  "step.wait()": ['The timeout of wait "review"', (step) => step.wait("review", { timeout: TEXT })],
  "step.prepareWait()": ['The timeout of wait "review"', (step) => step.prepareWait("review", { timeout: TEXT })],
};

for (const [name, [subject, run]] of Object.entries(IN_JOBS)) {
  Deno.test(`${name} refuses "2d" for a duration, and says what it takes`, async () => {
    const job = aJob(run);
    await using engine = createEngine({ store: new MemoryStore(), jobs: { job } });
    const { id } = await engine.jobs.job.trigger(null);

    await engine.runUntilIdle();

    assert.equal((await engine.getRun(id))!.error, `${subject} must be a number of milliseconds, not "2d"`);
  });
}

Deno.test('the engine refuses "2d" for a duration, and says what it takes', async () => {
  const job = aJob(() => 1);
  const create = (retention = {}) => createEngine({ store: new MemoryStore(), jobs: { job }, retention });
  await using engine = create();
  const refusal = (subject: string) => ({
    name: "TypeError",
    message: `${subject} must be a number of milliseconds, not "2d"`,
  });

  await assert.rejects(
    engine.jobs.job.triggerAndWait(1, { timeout: TEXT }),
    refusal("The timeout of triggerAndWait()"),
  );
  await assert.rejects(engine.waitForRun("run", { timeout: TEXT }), refusal("The timeout of waitForRun()"));
  await assert.rejects(engine.stop({ timeout: TEXT }), refusal("The timeout of stop()"));
  assert.throws(() => create({ completed: "2d" }), refusal("retention.completed"));
  assert.equal((await engine.getRuns()).total, 0);
});
