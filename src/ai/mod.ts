/**
 * Language models in jobs: each call of a model is a step, so that a crash or a pause repeats none of them. It works
 * with the models of the AI SDK (`npm:ai`), versions 5 to 7, and imports none of it.
 *
 * ```ts ignore
 * import { durableModel } from "@holdfast/jobs/ai";
 * import { generateText, stepCountIs, tool } from "ai";
 *
 * const research = defineJob({
 *   name: "research",
 *   input: z.object({ question: z.string() }),
 *   async run(step, { question }) {
 *     const { text } = await generateText({
 *       model: durableModel(step, openai("…"), { retry: { maxAttempts: 5, delay: 1_000, backoff: "exponential" } }),
 *       maxRetries: 0, // the steps are retried
 *       tools: {
 *         search: tool({
 *           inputSchema: z.object({ words: z.string() }),
 *           execute: ({ words }, { toolCallId }) => step.run(`search ${toolCallId}`, () => search(words)),
 *         }),
 *       },
 *       stopWhen: stepCountIs(20),
 *       prompt: question,
 *     });
 *     return text;
 *   },
 * });
 * ```
 *
 * @module
 */

export { durableModel } from "./durable_model.ts";
export type { DurableModelOptions, LanguageModelLike, StreamPartOf } from "./durable_model.ts";
