/**
 * The dashboard of `@holdfast/jobs`: pages for operators, served by `createHandler()`.
 *
 * ```ts ignore
 * import { createHandler } from "@holdfast/jobs";
 * import { dashboard } from "@holdfast/jobs/ui";
 *
 * const handler = createHandler(engine, { basePath: "/api/jobs", ui: dashboard() });
 * Deno.serve(handler.fetch); // then open /api/jobs/ui
 * ```
 *
 * @module
 */

export { type Dashboard, dashboard, type DashboardOptions } from "./dashboard.ts";
