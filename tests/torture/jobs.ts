import { defineJob, type Job, type StepContext } from "../../mod.ts";
import { anything } from "../processes/anything.ts";
import {
  type GivenInput,
  RecordedBody,
  type RecordedBodyDeps,
  type TortureInput,
  type TortureOutput,
} from "./recorded_body.ts";

type Act = (body: RecordedBody, step: StepContext) => Promise<void>;

const AT_ONCE = { maxAttempts: 4, delay: 20 };
// Longer than a second: such a retry parks the run.
const PARKED = { maxAttempts: 3, delay: 1_050, jitter: 0.04 };

/** What the jobs of the torture do. Each thing that they do by chance is the same in every execution of a run. */
const ACTS = {
  straight: async (body, step) => {
    const parts = 3 + body.chance.int(4);
    for (let part = 1; part <= parts; part++) {
      await body.step("part");
      step.progress(part, parts, "ü");
      step.log.info(`part ${part}`, { part });
    }
  },
  parallel: async (body) => {
    await body.step("before");
    await Promise.all(["a", "b", "c", "d"].map((name) => body.step(name)));
    await Promise.all([body.step("e"), body.step("f").then(() => body.step("g"))]);
  },
  retried: async (body) => {
    await body.step("at once", { failures: 1 + body.chance.int(3), retry: AT_ONCE });
    await body.step("between");
    await Promise.all([body.step("parked", { failures: 1, retry: PARKED }), body.step("beside")]);
  },
  sleeping: async (body, step) => {
    await body.step("before");
    await step.sleep("short", 50 + body.chance.int(400));
    await Promise.all([body.step("beside"), step.sleep("long", 100 + body.chance.int(700))]);
    await body.step("after");
  },
  waiting: async (body) => {
    await body.step("before");
    await body.wait("answer");
    await body.step("after");
  },
  deadline: async (body) => {
    await body.wait("soon", 200 + body.chance.int(2_000));
    await body.step("between");
    await Promise.all([body.wait("left", 400 + body.chance.int(1_500)), body.wait("right", 1_500)]);
    await body.step("after");
  },
  prepared: async (body) => {
    await body.preparedWait("prepared", () => body.step("meanwhile"));
    await body.step("after");
  },
  keyed: async (body) => {
    for (let part = 0; part < 3; part++) await body.step("part");
  },
  "keyed-other": async (body, step) => {
    await body.step("before");
    if (body.chance.happens(0.3)) await step.sleep("nap", 100);
    await body.step("retried", { failures: body.chance.int(2), retry: PARKED });
  },
  catching: async (body) => {
    await body.step("before");
    await body.step("caught", { failures: 2, retry: { maxAttempts: 2, delay: 10 } }).catch(() => {});
    await body.step("after");
  },
  failing: async (body) => {
    await body.step("before");
    await Promise.all([body.step("beside"), body.step("broken", { failures: 1 })]);
  },
} satisfies Record<string, Act>;

/** The names of the jobs. */
export const JOB_NAMES = Object.keys(ACTS) as (keyof typeof ACTS)[];

/** The job whose runs fail, each for its step "broken". */
export const FAILING_JOB = "failing";

/** The jobs, whose bodies write down all that they do. */
export function tortureJobs(deps: RecordedBodyDeps): Record<string, Job<TortureInput, TortureOutput>> {
  return Object.fromEntries(Object.entries(ACTS).map(([name, act]) => [name, defineRecorded(name, act, deps)]));
}

function defineRecorded(name: string, act: Act, deps: RecordedBodyDeps): Job<TortureInput, TortureOutput> {
  return defineJob({
    name,
    input: anything<TortureInput>(),
    async run(step, input) {
      const body = new RecordedBody(step, input as GivenInput, deps);
      try {
        await act(body, step);
      } catch (error) {
        await body.end();
        throw error;
      }
      return await body.end();
    },
  });
}
