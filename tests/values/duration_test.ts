import assert from "node:assert/strict";
import { type Duration, readDuration, toMs } from "../../src/values/duration.ts";
import { RetryAfterError } from "../../src/model/error.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import { retryAfter, retryDelay } from "../../src/model/retry.ts";
import { workerSettings } from "../../src/execution/worker_settings.ts";
import { FakeHost } from "../support/fake_host.ts";
import { z } from "zod";
import type { StepContext } from "../../src/model/job.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { aJob } from "../support/jobs.ts";
import { createEngine } from "../support/quiet_engine.ts";

const DURATIONS: [text: Duration, ms: number][] = [
  ["500ms", 500],
  ["30s", 30_000],
  ["5m", 300_000],
  ["90min", 5_400_000],
  ["2h", 7_200_000],
  ["3d", 259_200_000],
  ["2w", 1_209_600_000],
  ["1.5h", 5_400_000],
  ["0s", 0],
  ["1d12h", 129_600_000],
  ["1 millisecond", 1],
  ["20 seconds", 20_000],
  ["5 minutes", 300_000],
  ["1 hour", 3_600_000],
  ["2 days", 172_800_000],
  ["3 weeks", 1_814_400_000],
  [1.5, 1.5],
  [Infinity, Infinity],
];

Deno.test("readDuration() takes milliseconds, and numbers with a unit", () => {
  for (const [duration, ms] of DURATIONS) assert.equal(readDuration(duration, "It"), ms, String(duration));
  assert.equal(readDuration(-1, "It", -Infinity), -1);
  const wrong = ["", "5000", "s", "2 fortnights", "5 m inutes", "-5s", "1e3s", "2d ", "1h,2m", "9".repeat(400) + "s"];
  for (const text of [...wrong, null, undefined, 5n]) assert.throws(() => readDuration(text, "It"), TypeError);
  for (const ms of [-1, NaN, -Infinity]) assert.throws(() => readDuration(ms, "It"), RangeError);
  assert.throws(() => readDuration(NaN, "It", -Infinity), RangeError);
  assert.equal(toMs("soon"), "soon");
});

Deno.test("a duration with an unknown unit does not compile", () => {
  // @ts-expect-error -- there is no such unit
  const wrong: Duration = "5 fortnights";
  assert.equal(toMs(wrong), wrong);
});

Deno.test("retries, limits and workers take durations with a unit", () => {
  const host = new FakeHost();
  const job = defineJob({
    name: "job",
    input: z.null(),
    startWithin: "1h",
    finishWithin: "2 days",
    limits: { rate: { limit: 1, period: "1m" } },
    retry: { maxAttempts: 2, delay: "5s" },
    run: () => 1,
  });

  assert.equal(job.flow.startWithin, 3_600_000);
  assert.equal(job.flow.finishWithin, 172_800_000);
  assert.equal(job.flow.rate?.period, 60_000);
  assert.equal(retryDelay(job.retry, 1, host), 5_000);
  assert.equal(retryDelay({ delay: "2h", maxDelay: "1m" }, 1, host), 60_000);
  assert.equal(retryAfter(new RetryAfterError("30s"), host), 30_000);
  assert.equal(retryAfter(new RetryAfterError("30"), host), 30_000);
  assert.equal(retryAfter({ retryAfter: "2m" }, host), 120_000);
  assert.equal(workerSettings({ staleThreshold: "1m" }).staleThreshold, 60_000);
  assert.throws(() => workerSettings({ concurrency: "1s" as never }), RangeError);
});

Deno.test("a trigger, a wait and a sleep take durations with a unit", async () => {
  const job = aJob(async (step) => {
    const { deadlineAt, createdAt } = await step.prepareWait("review", { timeout: "2 days" });
    await step.sleep("nap", "0s");
    return await step.run("read", () => Date.parse(deadlineAt!) - Date.parse(createdAt), { timeout: "1m" });
  });
  await using engine = createEngine({ store: new MemoryStore(), jobs: { job }, retention: { failed: "30d" } });

  const run = await engine.jobs.job.trigger(null, { delay: "0s", startWithin: "1h", finishWithin: "3 days" });
  await engine.runUntilIdle({ timeout: "1m" });

  assert.equal(Date.parse(run.startBy!) - Date.parse(run.createdAt), 3_600_000);
  assert.equal((await engine.waitForRun(run.id, { timeout: "1m" })).output, 172_800_000);
  assert.deepEqual(await engine.purgeRuns({ olderThan: "1d" }), { deleted: 0 });
});

const TEXT = "2 fortnights" as Duration;

const DURATION_RULE = 'milliseconds, or a duration such as "30s", "5m", "2h" or "3 days"';

const IN_JOBS: Record<string, [subject: string, run: (step: StepContext) => Promise<unknown>]> = {
  "step.run()": ['The timeout of step "read"', (step) => step.run("read", () => 1, { timeout: TEXT })],
  "step.sleep()": ['The length of sleep "nap"', (step) => step.sleep("nap", TEXT)],
  "step.wait()": ['The timeout of wait "review"', (step) => step.wait("review", { timeout: TEXT })],
  "step.prepareWait()": ['The timeout of wait "review"', (step) => step.prepareWait("review", { timeout: TEXT })],
};

for (const [name, [subject, run]] of Object.entries(IN_JOBS)) {
  Deno.test(`${name} refuses "2 fortnights" for a duration, and says what it takes`, async () => {
    const job = aJob(run);
    await using engine = createEngine({ store: new MemoryStore(), jobs: { job } });
    const { id } = await engine.jobs.job.trigger(null);

    await engine.runUntilIdle();

    assert.equal((await engine.getRun(id))!.error, `${subject} must be ${DURATION_RULE}, not "2 fortnights"`);
  });
}

Deno.test('the engine refuses "2 fortnights" for a duration, and says what it takes', async () => {
  const job = aJob(() => 1);
  const create = (retention = {}) => createEngine({ store: new MemoryStore(), jobs: { job }, retention });
  await using engine = create();
  const refusal = (subject: string) => ({
    name: "TypeError",
    message: `${subject} must be ${DURATION_RULE}, not "2 fortnights"`,
  });

  await assert.rejects(
    engine.jobs.job.triggerAndWait(1, { timeout: TEXT }),
    refusal("The timeout of triggerAndWait()"),
  );
  await assert.rejects(engine.waitForRun("run", { timeout: TEXT }), refusal("The timeout of waitForRun()"));
  await assert.rejects(engine.stop({ timeout: TEXT }), refusal("The timeout of stop()"));
  assert.throws(() => create({ completed: "2 fortnights" }), refusal("retention.completed"));
  assert.equal((await engine.getRuns()).total, 0);
});
