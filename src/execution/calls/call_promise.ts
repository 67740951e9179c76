/**
 * What a call of a job returns: a promise that is in a set until somebody looks at it. `await`, `then()` and
 * `Promise.all()` all read `constructor` of a promise (ECMA-262, PromiseResolve and SpeciesConstructor), and find that of
 * a plain promise: with a `then()` of its own, or another constructor, it would be awaited some turns later.
 */
export class CallPromise<T> extends Promise<T> {
  /** What was called, such as `run`. */
  method = "";
  /** The name that was given to it. */
  givenName: unknown;
  /** The promises at which nobody has looked. */
  unseen: Set<CallPromise<unknown>> | null = null;

  static {
    Object.defineProperty(this.prototype, "constructor", {
      get(this: CallPromise<unknown>) {
        this.unseen?.delete(this);
        return Promise;
      },
    });
  }
}

/** A call as code has it: `step.run("charge")`. */
export function describeCall(method: string, givenName: unknown): string {
  return `step.${method}("${String(givenName)}")`;
}
