/**
 * Serves a handler with the HTTP server of Node: alone, or as a route of Express, Fastify and others that are built on
 * `node:http`. Frameworks that have `Request` and `Response` (Hono, Next.js) take `handler.fetch` and need none of this.
 *
 * @example
 * ```ts
 * import { createEngine, createHandler, MemoryStore, shutdownOnSignal } from "@holdfast/jobs";
 * import { listen } from "@holdfast/jobs/node";
 *
 * export async function serve() {
 *   const engine = createEngine({ store: new MemoryStore(), jobs: {} });
 *   await engine.start();
 *   const handler = createHandler(engine, { basePath: "/api/jobs" });
 *   const server = await listen(handler, { port: 8000, hostname: "127.0.0.1" });
 *   await shutdownOnSignal(engine, { server });
 * }
 * ```
 *
 * @module
 */

export { type FetchHandler, listen, type ListenOptions, type NodeListener, toNodeListener } from "./listen.ts";
