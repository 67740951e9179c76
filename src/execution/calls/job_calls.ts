import { WatchedPromise } from "../../values/watched_promise.ts";
import type { ExecutionState } from "../execution_state.ts";

/** A call of a job. */
interface Call {
  /** What was called, such as `run`. */
  method: string;
  /** The name that was given to it. */
  givenName: unknown;
}

/** What a job has called on `step`: which calls have not settled, and at which promises it has not looked. */
export class JobCalls {
  readonly #state: ExecutionState;
  readonly #warn: (what: string) => void;
  readonly #unseen = new Map<WatchedPromise<unknown>, Call>();
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
    const { hasParked, hasReturned, isInterrupted } = this.#state;
    if (hasParked || (hasReturned && !isInterrupted)) {
      const reason = hasParked
        ? "its run had parked: it awaits something that is no step, and what follows never happens here. Put that into " +
          "the function of a step"
        : "it had ended: that is never executed. Await it in the job";
      this.#warn(`has called ${describeCall(method, givenName)} after ${reason}`);
    }
    this.#open += 1;
    const forJob = new WatchedPromise<T>((resolve, reject) => {
      promise.then((value) => {
        this.#open -= 1;
        if (this.#state.mayContinue) resolve(value);
        else this.#state.noteWaiting();
      }, (error) => {
        this.#open -= 1;
        if (!this.#state.mayContinue) return this.#state.noteWaiting();
        const call = this.#unseen.get(forJob);
        forJob.catch(() => {}); // a failed step that nobody awaits must not end the process
        if (call !== undefined) this.#unseen.set(forJob, call); // it was this `catch()` that looked at it
        reject(error);
      });
    });
    forJob.unseen = this.#unseen;
    this.#unseen.set(forJob, { method, givenName });
    return forJob;
  }

  /** Warns of the calls of a job that has returned at whose promises it has not looked. */
  warnOfUnawaited(): void {
    for (const { method, givenName } of this.#unseen.values()) {
      const call = describeCall(method, givenName);
      this.#warn(`does not await ${call}: the job can return before it has ended, and nobody sees that it failed`);
    }
  }
}

/** A call as code has it: `step.run("charge")`. */
function describeCall(method: string, givenName: unknown): string {
  return `step.${method}("${String(givenName)}")`;
}
