/**
 * Jobs as tools of the Model Context Protocol: a call is a run, a long run is a task, a wait is a question.
 *
 * ```ts ignore
 * import { mcp } from "@holdfast/jobs/mcp";
 *
 * createHandler(engine, {
 *   auth,
 *   mcp: mcp({
 *     name: "shop",
 *     tools: [{ job: refund, description: "Refunds an order, once a person has approved it" }],
 *     operate: true, // list_runs, get_run, explain_run, list_failures, retry_run, cancel_run, answer_wait
 *   }),
 * }); // POST /mcp
 * ```
 *
 * @module
 */

export { mcp } from "./mcp.ts";
export type { McpOptions, McpTool, McpTriggerOptions } from "./mcp.ts";
