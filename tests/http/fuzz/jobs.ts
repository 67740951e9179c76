import { z } from "zod";
import { defineJob } from "../../../src/model/job/define_job.ts";
import { aJob } from "../../support/jobs.ts";

/** How long an approval waits, in milliseconds. */
export const REVIEW_MS = 60_000;

/** What may be triggered. Whatever these do takes no time. */
export const fuzzJobs = {
  echo: aJob((step, input) => {
    step.log.info("echo", input);
    return input;
  }, "echo"),
  fail: aJob(async (step) => {
    await step.run("read", () => ["row"]);
    throw new Error("broken");
  }, "fail"),
  approval: aJob(async (step, input) => {
    await step.run("prepare", () => input);
    return await step.wait("review", { timeout: REVIEW_MS, metadata: { changes: 3 } });
  }, "approval"),
  strict: defineJob({
    name: "strict",
    input: z.object({ n: z.number().default(7) }),
    run: (_step, input) => input,
  }),
};
