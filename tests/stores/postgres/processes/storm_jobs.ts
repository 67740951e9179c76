import { defineJob, type Job } from "../../../../mod.ts";
import { anything } from "../../../processes/anything.ts";

/** The input of a run of the storm. */
export interface StormInput {
  /** Which trigger it was, from 0. */
  n: number;
}

/** How many steps a run has. */
export const STEPS = 4;

/** What a body tells of itself. */
export type Tell = (...words: (string | number)[]) => void;

/** The jobs of the storm: `keyed` has a run of each key at a time, and `plain` sleeps and is of one version. */
export function stormJobs(version: number, tell: Tell): { keyed: Job<StormInput>; plain: Job<StormInput> } {
  const steps = async (step: Parameters<Parameters<typeof defineJob>[0]["run"]>[0]) => {
    const outputs: string[] = [];
    for (let n = 0; n < STEPS; n++) {
      outputs.push(
        await step.run(`step ${n}`, async () => {
          await new Promise((resolve) => setTimeout(resolve, Math.random() * 20));
          return crypto.randomUUID(); // another value whenever it is executed
        }),
      );
    }
    return outputs;
  };
  return {
    keyed: defineJob({
      name: "keyed",
      input: anything<StormInput>(),
      async run(step, { n }) {
        tell("begin", step.runId, n);
        return await steps(step);
      },
    }),
    plain: defineJob({
      name: "plain",
      version,
      input: anything<StormInput>(),
      async run(step) {
        tell("version", step.runId, version);
        const outputs = await steps(step);
        await step.sleep("sleep", 100);
        return outputs;
      },
    }),
  };
}
