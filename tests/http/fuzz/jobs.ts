import { z } from "zod";
import { defineJob, type StepContext } from "../../../src/job.ts";
import { anything } from "../../support/for_each_store.ts";

/** How long an approval waits, in milliseconds. */
export const REVIEW_MS = 60_000;

/** What may be triggered. Whatever these do takes no time. */
export const fuzzJobs = {
  echo: defineJob({
    name: "echo",
    input: anything,
    run: (step, input) => {
      step.log.info("echo", input);
      return input;
    },
  }),
  fail: defineJob({
    name: "fail",
    input: anything,
    run: async (step) => {
      await step.run("read", () => ["row"]);
      throw new Error("broken");
    },
  }),
  approval: defineJob({
    name: "approval",
    input: anything,
    run: async (step: StepContext, input) => {
      await step.run("prepare", () => input);
      return await step.wait("review", { timeout: REVIEW_MS, metadata: { changes: 3 } });
    },
  }),
  strict: defineJob({
    name: "strict",
    input: z.object({ n: z.number().default(7) }),
    run: (_step, input) => input,
  }),
};
