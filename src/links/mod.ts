/**
 * Links that answer a wait without an account: signed, for one question, until its deadline.
 *
 * @example
 * ```ts
 * import { createEngine, createHandler, defineJob, MemoryStore } from "@holdfast/jobs";
 * import { signedLinks } from "@holdfast/jobs/links";
 * import { z } from "zod";
 *
 * const links = signedLinks({
 *   keys: ["a key of at least 32 characters, from the environment"],
 *   url: "https://app.example.com/api/jobs",
 * });
 * const refund = defineJob({
 *   name: "refund",
 *   input: z.object({ order: z.string() }),
 *   async run(step, { order }) {
 *     const actions = [{ label: "Refund", payload: true }, { label: "Refuse", payload: false }];
 *     const metadata = { message: `Refund order ${order}?`, actions };
 *     const wait = await step.prepareWait("approve", { timeout: "7d", metadata });
 *     await step.run("ask", async () => {
 *       console.log("mail", await links.toWait(wait, { for: "ada@example.com" }));
 *     });
 *     return await step.waitFor(wait);
 *   },
 * });
 * const engine = createEngine({ store: new MemoryStore(), jobs: { refund } });
 * const handler = createHandler(engine, { basePath: "/api/jobs", links }); // Deno.serve(handler.fetch)
 * ```
 *
 * @module
 */

export {
  type LinkOptions,
  type OpenLink,
  type SignedLinks,
  signedLinks,
  type SignedLinksOptions,
} from "./signed_links.ts";
export type { SignedLink } from "../http/handler_options.ts";
