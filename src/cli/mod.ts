/**
 * The command line of Holdfast: what is stuck, why, and what to do about it.
 *
 * @example
 * ```sh
 * deno run -A jsr:@holdfast/jobs/cli runs --store jobs.db --status failed
 * deno install -gA -n holdfast jsr:@holdfast/jobs/cli
 * holdfast why 0193542e --store https://example.com/api/jobs
 * ```
 *
 * @module
 */

import { runCli } from "./run_cli.ts";

export type { ExitCode } from "./command.ts";
export { runCli } from "./run_cli.ts";
export type { Terminal } from "./terminal.ts";

if (import.meta.main) main();

/** Does what the arguments of the process say, and ends it. */
async function main(): Promise<void> {
  const { default: process } = await import("node:process");
  const { processTerminal } = await import("./terminal.ts");
  process.exitCode = await runCli(process.argv.slice(2), processTerminal());
}
