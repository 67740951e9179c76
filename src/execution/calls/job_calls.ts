import type { ExecutionState } from "../execution_state.ts";

/** What a job has called on `step`: which calls have not settled, and at which promises it has not looked. */
export class JobCalls {
  readonly #state: ExecutionState;
  readonly #warn: (what: string) => void;
  readonly #unseen = new Set<CallPromise<unknown>>();
  /** How many have not settled. */
  #open = 0;

  /** @param warn Reports what the job does that is probably a mistake. */
  constructor(state: ExecutionState, warn: (what: string) => void) {
    this.#state = state;
    this.#warn = warn;
  }

  /** Whether all calls have settled. */
  get areSettled(): boolean {
    return this.#open === 0;
  }

  /**
   * Returns a promise for the job that settles as the given one does. It never settles once the run has parked or was
   * interrupted, or the job's function has returned: what is left of the job does not go on, and cannot cause an
   * unhandled rejection. Nor does it settle once a branch of a stopping job has reached its checkpoint: the other
   * branches stop too.
   *
   * @param method What was called, and `givenName` the name that it was given, for warnings.
   */
  forJob<T>(promise: Promise<T>, method: string, givenName: unknown): Promise<T> {
    if (this.#state.hasParked) {
      this.#warn(
        `has called ${
          describeCall(method, givenName)
        } after its run had parked: it awaits something that is no step, ` +
          "and what follows never happens here. Put that into the function of a step",
      );
    }
    this.#open += 1;
    const forJob = new CallPromise<T>((resolve, reject) => {
      promise.then((value) => {
        this.#open -= 1;
        if (this.#state.mayContinue) resolve(value);
        else this.#state.noteWaiting();
      }, (error) => {
        this.#open -= 1;
        if (!this.#state.mayContinue) return this.#state.noteWaiting();
        const isUnseen = this.#unseen.has(forJob);
        forJob.catch(() => {}); // a failed step that nobody awaits must not end the process
        if (isUnseen) this.#unseen.add(forJob); // it was this `catch()` that looked at it
        reject(error);
      });
    });
    forJob.method = method;
    forJob.givenName = givenName;
    forJob.unseen = this.#unseen;
    this.#unseen.add(forJob);
    return forJob;
  }

  /** Warns of the calls of a job that has returned at whose promises it has not looked. */
  warnOfUnawaited(): void {
    for (const { method, givenName } of this.#unseen) {
      const call = describeCall(method, givenName);
      this.#warn(`does not await ${call}: the job can return before it has ended, and nobody sees that it failed`);
    }
  }
}

/**
 * What a call of a job returns: a promise that is in a set until somebody looks at it. `await`, `then()` and
 * `Promise.all()` all read `constructor` of a promise (ECMA-262, PromiseResolve and SpeciesConstructor), and find that of
 * a plain promise: with a `then()` of its own, or another constructor, it would be awaited some turns later.
 */
class CallPromise<T> extends Promise<T> {
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
function describeCall(method: string, givenName: unknown): string {
  return `step.${method}("${String(givenName)}")`;
}
