/**
 * A client of the HTTP service of `@holdfast/jobs`, for browsers, Deno, Node and Bun. It has no dependency.
 *
 * @example
 * ```ts
 * import { createClient } from "@holdfast/jobs/client";
 *
 * const client = createClient({ url: "https://example.com/api/jobs", headers: { authorization: "Bearer token" } });
 *
 * export async function greet(name: string) {
 *   const { runId } = await client.trigger("greet", { name });
 *   const { output } = await client.waitForRun(runId, { timeout: 60_000 });
 *   return output;
 * }
 * ```
 *
 * @module
 */

export { type Client, createClient } from "./client.ts";
export type * from "./client_types.ts";
export { ClientError, type ClientHeaders, type ServiceOptions } from "./service.ts";
export { defineStream } from "./follow.ts";
export type { ClientSignalReceipt, ClientWait } from "../model/wait.ts";
export type { ClientMessage } from "../model/message.ts";
export type { Stream, StreamPart } from "../model/stream.ts";
