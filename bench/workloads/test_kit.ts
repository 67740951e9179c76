import { defineJob, type Job, type StepContext } from "@holdfast/jobs";
import { crashAtEveryCheckpoint, createTestEngine, type TestEngine } from "@holdfast/jobs/testing";
import { z } from "zod";
import type { Goal, Measure, Trial, Workload } from "../workload.ts";

const HOUR = 3_600_000;

/** How long tests take that use `@holdfast/jobs/testing`. */
export const testKit: Workload = {
  name: "test_kit",
  title: "Tests with @holdfast/jobs/testing",
  about: "A job that is crashed at each of its checkpoints in each way, and a clock that is moved by a year.",
  trials: [
    crashes("20 steps, crashed everywhere", [{ below: 300 }], steps(20)),
    crashes("20 steps, 4 sleeps and a wait, crashed everywhere", [], async (step) => {
      for (let day = 0; day < 4; day++) {
        await steps(5)(step);
        await step.sleep("night", 24 * HOUR);
      }
      await step.wait("review");
    }, { review: true }),
    crashes("100 steps, crashed everywhere", [], steps(100)),
    year("a run that triggers the next one each hour, for 365 days", [{ below: 2_000 }], (t, left) => {
      return t.trigger(chained, { left });
    }),
    year("a schedule with a run each hour, for 365 days", [], (t) => {
      return t.engine.schedules.set("each hour", { job: "scheduled", cron: "0 * * * *", timezone: "UTC", input: null });
    }),
  ],
};

function steps(count: number): (step: StepContext) => Promise<void> {
  return async (step) => {
    for (let n = 0; n < count; n++) await step.run("work", () => n);
  };
}

function crashes(
  name: string,
  goals: readonly Goal[],
  run: (step: StepContext) => Promise<void>,
  signals: { review?: true } = {},
): Trial {
  const job = defineJob({ name: "crashed", input: z.null(), run });
  const measure: Measure = async () => {
    const startedAt = performance.now();
    const report = await crashAtEveryCheckpoint(() => ({ job, input: null, signals }));
    const ms = performance.now() - startedAt;
    report.assertSame();
    return [ms];
  };
  return { name, figures: [{ name: "", unit: "ms", goals }], rounds: 5, contenders: { holdfast: measure } };
}

const scheduled = defineJob({ name: "scheduled", input: z.null(), run: (step) => step.run("work", () => 1) });

const chained = defineJob({
  name: "chained",
  input: z.object({ left: z.number() }),
  async run(step, { left }): Promise<void> {
    await step.run("work", () => 1);
    if (left > 1) await step.trigger("next", chained as Job<{ left: number }>, { left: left - 1 }, { delay: HOUR });
  },
});

function year(name: string, goals: readonly Goal[], begin: (t: TestEngine, runs: number) => Promise<unknown>): Trial {
  const measure: Measure = async ({ size }) => {
    const days = size(365, 2);
    await using t = createTestEngine({ jobs: { scheduled, chained } });
    await begin(t as TestEngine, days * 24);
    const startedAt = performance.now();
    await t.advance(`${days}d`);
    const ms = performance.now() - startedAt;
    const { total } = await t.engine.getRuns({ status: "completed", limit: 1 });
    if (total !== days * 24) throw new Error(`${total} runs have completed`);
    return [ms];
  };
  return { name, figures: [{ name: "", unit: "ms", goals }], rounds: 3, contenders: { holdfast: measure } };
}
