import { deadlineFailure, type Failure } from "../model/failure.ts";
import { TimeoutError } from "../model/error.ts";
import type { Execution } from "./execution.ts";

/** The countdown to the end of a run's `finishWithin`. */
interface RunDeadline {
  /** Resolves with why the run fails, when it is late; never, if it has no deadline. */
  exceeded: Promise<Failure>;
  /**
   * Ends the run at once if it is late already: its timer can be late, after code that has blocked the event loop, or
   * after the process was suspended.
   */
  check: () => void;
  /** Stops the countdown. */
  cancel: () => void;
}

/** Of all runs without a deadline. Wait for its promise nowhere: what waits for it is never freed. */
const NO_DEADLINE: RunDeadline = { exceeded: new Promise(() => {}), check: () => {}, cancel: () => {} };

/**
 * Counts down to the deadline of a run, on the monotonic clock from the answer to the claim: never early, whatever the
 * wall clocks do. Then it fires the `abortSignal` of the job, so that the run can fail at once. A run that is just being
 * parked or ended is late only if the store refuses that.
 */
export function startDeadline({ claim, claimedAt, deps, state }: Execution): RunDeadline {
  const { finishInMs, startedAgoMs, finishWithin } = claim;
  if (finishInMs === null) return NO_DEADLINE;
  const { promise: exceeded, resolve } = Promise.withResolvers<Failure>();
  const failure = deadlineFailure("timeout", finishWithin ?? finishInMs + startedAgoMs);
  const lateAt = claimedAt + finishInMs;
  let isCancelled = false;
  let cancelTimer = () => {};
  const count = () => {
    cancelTimer();
    const leftMs = lateAt - deps.host.monotonic();
    if (leftMs <= 0) return void end();
    cancelTimer = deps.host.schedule(Math.ceil(leftMs), count); // again, if a timer is early
  };
  const end = async () => {
    for (let answered; (answered = state.releaseAnswered) !== null;) await answered;
    if (isCancelled || !state.expire(new TimeoutError(failure.message))) return;
    resolve(failure);
  };
  count();
  return {
    exceeded,
    check: () => {
      if (deps.host.monotonic() >= lateAt) count();
    },
    cancel: () => {
      isCancelled = true;
      cancelTimer();
    },
  };
}
