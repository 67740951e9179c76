/**
 * The dashboard of `@holdfast/jobs`: pages for operators, served by `createHandler()`.
 *
 * @example
 * ```ts
 * import { createHandler, type Engine } from "@holdfast/jobs";
 * import { dashboard } from "@holdfast/jobs/ui";
 *
 * export function serve(engine: Engine) {
 *   const handler = createHandler(engine, { basePath: "/api/jobs", ui: dashboard() });
 *   return Deno.serve(handler.fetch); // then open /api/jobs/ui
 * }
 * ```
 *
 * @module
 */

export { type Dashboard, dashboard, type DashboardOptions } from "./dashboard.ts";
