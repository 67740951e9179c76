import type { StepContext } from "../job.ts";

/** Finds the calls of a job whose promises nobody has looked at. */
export class UnawaitedCalls {
  /** What the job calls: it does what the given `step` does. */
  readonly step: StepContext;
  readonly #open = new Map<Promise<unknown>, string>();

  constructor(step: StepContext) {
    this.step = new Proxy(step, {
      get: (target, name) => {
        const value = Reflect.get(target, name, target);
        if (typeof value !== "function") return value;
        return (...parameters: unknown[]) => {
          const result = value.apply(target, parameters);
          if (result instanceof Promise) this.#watch(result, `step.${String(name)}("${parameters[0]}")`);
          return result;
        };
      },
    });
  }

  /** What was called, such as `step.run("charge")`, and is not awaited, passed to `Promise.all()` or the like. */
  names(): string[] {
    return [...this.#open.values()];
  }

  /**
   * `await`, `then()` and `Promise.all()` all read `constructor` of a promise (ECMA-262, PromiseResolve and
   * SpeciesConstructor). A promise with a `then()` of its own would be awaited some turns later than in production.
   */
  #watch(promise: Promise<unknown>, call: string): void {
    this.#open.set(promise, call);
    Object.defineProperty(promise, "constructor", {
      configurable: true,
      get: () => {
        this.#open.delete(promise);
        return Promise;
      },
    });
  }
}
