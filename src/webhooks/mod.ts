/**
 * Webhooks: verified ones in, and signed ones out, each as a run of a job.
 *
 * ```ts
 * import { createEngine, defineJob, MemoryStore } from "@holdfast/jobs";
 * import { stripeWebhook } from "@holdfast/jobs/webhooks";
 * import { z } from "zod";
 *
 * const payment = defineJob({
 *   name: "payment",
 *   input: z.object({ type: z.string(), payload: z.unknown() }),
 *   run: (step, { type }) => step.run("book", () => `booked ${type}`),
 * });
 * await using engine = createEngine({ store: new MemoryStore(), jobs: { payment } });
 *
 * const stripe = stripeWebhook({
 *   secret: "whsec_of_the_endpoint", // in production, from the environment
 *   async receive({ id, type, payload }) {
 *     await engine.jobs.payment.trigger({ type, payload }, { idempotencyKey: `stripe/${id}` });
 *   },
 * });
 * console.log((await stripe(new Request("http://localhost/stripe", { method: "POST", body: "{}" }))).status); // 401
 * // Deno.serve(stripe);
 * ```
 *
 * @module
 */

export { githubWebhook, standardWebhook, stripeWebhook } from "./providers.ts";
export type { ProviderOptions } from "./providers.ts";
export { webhook } from "./webhook.ts";
export type { ReceivedWebhook, VerifiedWebhook, WebhookOptions } from "./webhook.ts";
export type { WebhookEndpoint } from "./send_webhook.ts";
export { webhookJob } from "./webhook_job.ts";
export type { FailedDelivery, WebhookInput, WebhookJobOptions, WebhookResult } from "./webhook_job.ts";
