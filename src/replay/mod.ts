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

if (import.meta.main) import("./command/main.ts").then(({ main }) => main());
