import { z } from "zod";
import type { McpTool } from "../../src/http/mcp/mod.ts";
import { NonRetryableError } from "../../src/model/error.ts";
import { defineJob } from "../../src/model/job/define_job.ts";

const Confirmation = z.object({ confirm: z.boolean() });

const greet = defineJob({
  name: "greet",
  input: z.object({ name: z.string().default("World") }),
  run: (_step, { name }) => `Hello, ${name}!`,
});
const slowCompute = defineJob({
  name: "slow_compute",
  input: z.object({ seconds: z.number(), label: z.string() }),
  output: z.object({ label: z.string() }),
  async run(step, { seconds, label }) {
    if (seconds > 0) await step.sleep("compute", seconds * 1_000);
    return { label };
  },
});
const failing = defineJob({
  name: "failing_job",
  input: z.object({}),
  run: (step) =>
    step.run("fail", () => {
      throw new NonRetryableError("It cannot be done");
    }),
});
// A deadline is no error of its code, so that is an error of the protocol.
const late = defineJob({
  name: "protocol_error_job",
  input: z.object({}),
  finishWithin: 100,
  run: (step) => step.sleep("too long", "1h"),
});
const confirmDelete = defineJob({
  name: "confirm_delete",
  input: z.object({ filename: z.string() }),
  async run(step, { filename }) {
    const answer = await step.wait("confirm", {
      metadata: { message: `Delete ${filename}?` },
      schema: Confirmation,
    });
    return answer.outcome === "signal" && answer.payload.confirm ? `Deleted ${filename}` : `Kept ${filename}`;
  },
});
const multiInput = defineJob({
  name: "multi_input",
  input: z.object({}),
  async run(step) {
    const [name, confirm] = await Promise.all([
      step.wait("name", { schema: z.object({ name: z.string() }) }),
      step.wait("confirm", { schema: Confirmation }),
    ]);
    return { name, confirm };
  },
});

/** The tools that the conformance suite of MCP asks for. */
export const TOOLS: McpTool[] = [
  { job: greet, description: "Greets somebody", task: "never" },
  { job: slowCompute, description: "Computes for some seconds" },
  { job: failing, description: "Fails", task: "required" },
  { job: late, description: "Ends at its deadline" },
  { job: confirmDelete, description: "Deletes a file, once somebody has confirmed it" },
  { job: multiInput, description: "Asks two questions at once" },
];
