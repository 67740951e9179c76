import { defineJob, type StepContext } from "../../src/job.ts";
import { anything } from "./for_each_store.ts";

/** A job that takes any input. */
export function aJob<Output = unknown>(
  run: (step: StepContext, input: unknown) => Output | Promise<Output>,
  name = "job",
) {
  return defineJob({ name, input: anything, run });
}

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
