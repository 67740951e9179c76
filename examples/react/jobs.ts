// The jobs of the server. The page imports their types alone.

import { setTimeout } from "node:timers/promises";
import { defineJob } from "@holdfast/jobs";
import { z } from "zod";

const PAGES = 4;

const publish = defineJob({
  name: "publish",
  input: z.object({ title: z.string().min(1).max(100) }),
  async run(step, { title }) {
    for (let page = 1; page <= PAGES; page++) {
      step.progress(page, PAGES, `Page ${page}`);
      await step.run(`set page ${page}`, ({ abortSignal }) => setTimeout(300, null, { signal: abortSignal }));
    }
    const review = await step.wait("review", {
      timeout: 60 * 60 * 1_000,
      metadata: { title },
      schema: z.object({ approved: z.boolean() }),
    });
    if (review.outcome === "timeout" || !review.payload.approved) throw new Error(`"${title}" was not approved`);
    const address = await step.run("publish", () => `/books/${encodeURIComponent(title)}`);
    return { address, pages: PAGES };
  },
});

/** The jobs of the server, under any keys. */
export const jobs = { publish };
