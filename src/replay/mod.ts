/**
 * Tests whether open runs go on with changed code: executes the code of a job against the histories of its runs, without
 * calling the function of any step.
 *
 * In a test:
 *
 * ```ts ignore
 * import { replay } from "@holdfast/jobs/replay";
 *
 * const report = await replay(history, checkout); // a history from engine.exportHistory()
 * report.assertGoesOn();
 * ```
 *
 * As a command, for all open runs of a database and the newest that have ended:
 *
 * ```sh
 * deno run --allow-read jsr:@holdfast/jobs/replay --jobs jobs.ts --db backup.db
 * ```
 *
 * @module
 */

export type { Changes } from "../job_changes.ts";
export type { NeededChanges } from "./observed_replay.ts";
export { replay, type ReplayOptions } from "./replay.ts";
export type { ReplayOutcome, ReplayReport } from "./replay_report.ts";

if (import.meta.main) main();

/** Does what the arguments of the process say, and ends it: a job may have left timers and connections behind. */
async function main(): Promise<void> {
  const { default: process } = await import("node:process");
  const { runCommand } = await import("./command/command.ts");
  const output = { log: console.log.bind(console), error: console.error.bind(console) };
  // What jobs write does not mix with the result.
  for (const method of ["log", "info", "debug"] as const) console[method] = output.error;
  process.on("unhandledRejection", (reason) => output.error(`A job has left a rejected promise behind: ${reason}`));
  process.exit(await runCommand(process.argv.slice(2), output));
}
