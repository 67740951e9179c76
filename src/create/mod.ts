/**
 * Makes a small app: a job, its test, a server with the dashboard, and a Dockerfile.
 *
 * @example
 * ```sh
 * deno run -A jsr:@holdfast/jobs/create my-app
 * deno run -A jsr:@holdfast/jobs/create my-app --node
 * ```
 *
 * @module
 */

import { runCreate } from "./run_create.ts";

export { type CreateTerminal, runCreate } from "./run_create.ts";

if (import.meta.main) main();

/** Does what the arguments of the process say, and ends it. */
async function main(): Promise<void> {
  const { default: process } = await import("node:process");
  process.exitCode = await runCreate(process.argv.slice(2), { print: console.log, note: console.error });
}
