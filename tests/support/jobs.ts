import type { StepContext } from "../../src/model/job.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import type { RetryPolicy } from "../../src/model/retry.ts";
import { anything } from "./stores/for_each_store.ts";

/** A job that takes any input. */
export function aJob<Output = unknown, Input = unknown>(
  run: (step: StepContext, input: Input) => Output | Promise<Output>,
  name = "job",
  options: { retry?: RetryPolicy } = {},
) {
  return defineJob({ name, input: anything, run, ...options });
}

/** A job that returns its input. */
export const echo = aJob((_step, input) => input, "echo");

/** A job that fails. */
export const fail = aJob(() => {
  throw new Error("broken");
}, "fail");

/** A job that a test controls: `begun` resolves with its step context, `end` and `fail` end it. */
export function aScript(name = "script") {
  const begun = Promise.withResolvers<StepContext>();
  const ending = Promise.withResolvers<unknown>();
  const job = aJob((step) => {
    begun.resolve(step);
    return ending.promise;
  }, name);
  return { job, begun: begun.promise, end: ending.resolve, fail: ending.reject };
}

/** A step's function that a test controls: `reached` resolves when it is called, and it returns after `open()`. */
export function aGate<T = void>() {
  const reached = Promise.withResolvers<void>();
  const { promise, resolve } = Promise.withResolvers<T>();
  const work = () => {
    reached.resolve();
    return promise;
  };
  return { reached: reached.promise, work, open: resolve };
}

/** A job of one step that a test controls: `reached` resolves when the step begins, and it returns after `letGo()`. */
export function aGatedJob(name = "job") {
  const reached = Promise.withResolvers<AbortSignal>();
  const gate = Promise.withResolvers<unknown>();
  let calls = 0;
  const job = aJob((step) =>
    step.run("slow", ({ abortSignal }) => {
      calls += 1;
      reached.resolve(abortSignal);
      return gate.promise;
    }), name);
  return { job, reached: reached.promise, letGo: gate.resolve, calls: () => calls };
}

/** A job that does something outside of its steps, and goes on after `letGo()`. */
export function anOutsideJob(after: (step: StepContext) => unknown = () => "done") {
  const reached = Promise.withResolvers<AbortSignal>();
  const gate = Promise.withResolvers<void>();
  const bodies: number[] = [];
  let active = 0;
  const job = aJob(async (step) => {
    bodies.push(++active);
    reached.resolve(step.abortSignal);
    await gate.promise;
    active -= 1;
    return await after(step);
  });
  return { job, reached: reached.promise, letGo: gate.resolve, bodies };
}

/** Awaits all of them, as an output that can be stored: `null` for `undefined`. */
export async function allOf(parts: readonly Promise<unknown>[]): Promise<unknown[]> {
  return (await Promise.all(parts)).map((part) => part ?? null);
}
