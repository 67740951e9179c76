/**
 * Tests whether open runs go on with changed code: executes the code of a job against the histories of its runs, without
 * calling the function of any step.
 *
 * @example In a test
 * ```ts
 * import { createEngine, defineJob, MemoryStore, type StepContext } from "@holdfast/jobs";
 * import { replay } from "@holdfast/jobs/replay";
 * import { z } from "zod";
 *
 * const input = z.object({ order: z.string() });
 * const run = async (step: StepContext) => {
 *   await step.run("charge", () => "paid");
 *   await step.wait("approval", { timeout: 60_000 });
 * };
 * const before = defineJob({ name: "checkout", input, run });
 * await using engine = createEngine({ store: new MemoryStore(), jobs: { before } });
 * const { id } = await engine.jobs.before.trigger({ order: "o-1" });
 * await engine.runUntilIdle();
 * const history = await engine.exportHistory(id); // keep it in a file beside the test
 *
 * const after = defineJob({ name: "checkout", input, run }); // the changed code
 * const report = await replay(history!, after); // the run exists
 * report.assertGoesOn();
 * ```
 *
 * @example As a command, for all open runs of a database and the newest that have ended
 * ```sh
 * deno run --allow-read jsr:@holdfast/jobs/replay --jobs jobs.ts --db backup.db
 * ```
 *
 * @module
 */

export type { Changes } from "../model/job/job_changes.ts";
export type { NeededChanges } from "./observed_replay.ts";
export { replay, type ReplayOptions } from "./replay.ts";
export type { ReplayOutcome, ReplayReport } from "./replay_report.ts";

if (import.meta.main) import("./command/command.ts").then(({ main }) => main());
