import { type } from "arktype";
import { z } from "zod";
import { defineJob } from "../../../src/model/job/define_job.ts";
import type { Schema } from "../../../src/model/schema.ts";
import { aJob } from "../../support/jobs.ts";

const tree = z.object({
  name: z.string(),
  get children() {
    return z.array(tree);
  },
});
const zodJob = defineJob({
  name: "zod job",
  input: z.object({ path: z.string(), rows: z.number().int().default(5), tree: tree.optional() }),
  run: () => {},
});
const arkJob = defineJob({ name: "ark", input: type({ "size?": "number", kind: "'a' | 'b'" }), run: () => {} });
/** A schema that cannot describe itself. */
export const broken: Schema = {
  "~standard": {
    version: 1,
    vendor: "test",
    validate: (value) => ({ value }),
    jsonSchema: {
      input: () => {
        throw new Error("no schema");
      },
    },
  },
};
const brokenJob = defineJob({ name: "broken", input: broken, run: () => {} });
/** Jobs whose schemas are of several libraries. */
export const JOBS = { zodJob, arkJob, brokenJob, plain: aJob(() => {}, "plain") };
