import { z } from "zod";
import { defineJob } from "../../mod.ts";

/** A job that asks whether it may. */
export const refund = defineJob({
  name: "refund",
  input: z.object({ order: z.string() }),
  async run(step, { order }) {
    const answer = await step.wait("approve", {
      timeout: "1h",
      metadata: { message: `Refund ${order}?` },
      schema: z.object({ approved: z.boolean(), reason: z.string().optional() }),
    });
    return { order, answer: answer.outcome === "signal" ? answer.payload : null };
  },
});
