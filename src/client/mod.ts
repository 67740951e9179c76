/**
 * A client of the HTTP service of `@holdfast/jobs`, for browsers, Deno, Node and Bun. It has no dependency.
 *
 * @module
 */

export { type Client, createClient } from "./client.ts";
export { ClientError } from "./client_error.ts";
export type * from "./client_types.ts";
export type { ServiceOptions } from "./service.ts";
