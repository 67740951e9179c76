/**
 * Tests of jobs: the real engine and worker, on a store in memory and a clock that only the test moves. It works
 * with `Deno.test()`, vitest and `node:test`. The tests of a store are in `@holdfast/jobs/testing/store`.
 *
 * ```ts ignore
 * import { createTestEngine } from "@holdfast/jobs/testing";
 *
 * Deno.test("ships after the review", async () => {
 *   await using t = createTestEngine({ jobs: { checkout } });
 *   const run = await t.trigger(checkout, { order: "o-1" });
 *   await t.expectRun(run).waitsFor("review");
 *   await t.signal(run, "review", { approved: true });
 *   await t.expectRun(run).completed({ shipped: true });
 * });
 * ```
 *
 * @module
 */
export { createTestEngine } from "./create_test_engine.ts";
export type { CrashMoment, RunRef, TestEngine, TestEngineOptions } from "./test_engine.ts";
export type { Duration } from "../values/duration.ts";
export type { RunExpectations } from "./expect_run.ts";
export type { FakeCall, FakeStep } from "./fakes.ts";
export { fakeChance } from "./fake_globals.ts";
export type { Replaced } from "./fake_globals.ts";
export { crashAtEveryCheckpoint } from "./crashes/crash_at_every_checkpoint.ts";
export type { Effects, ShortCrashOptions } from "./crashes/crash_at_every_checkpoint.ts";
export type { CrashKit, CrashMessage, CrashMode, CrashOptions, CrashPlan } from "./crashes/crash_plan.ts";
export type { CrashFinding, CrashReport } from "./crashes/crash_report.ts";
