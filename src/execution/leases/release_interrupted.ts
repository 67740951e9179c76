import { retryStoreCall } from "../../events/retry_store_call.ts";
import type { Execution } from "../execution.ts";

/** When a worker releases the leases of interrupted executions. */
export interface ReleaseOptions {
  /** Fires when the worker has stopped: the lease is released though code of the job still runs. */
  stopped: AbortSignal;
  /** Fires at the end of a stop: the release is given up. */
  givenUp: AbortSignal;
  /** The longest delay before the release is tried again, in milliseconds. */
  maxPauseMs: number;
}

/**
 * Releases the lease of an interrupted execution when no code of the job runs here any more, or the worker has stopped.
 * Until then, while the lease lasts, no other execution of the run begins, and a cancelled run keeps its concurrency
 * key.
 *
 * @param bodyEnded Resolves when no code of the job runs here any more.
 */
export async function releaseInterrupted(
  execution: Execution,
  bodyEnded: Promise<void>,
  { stopped, givenUp, maxPauseMs }: ReleaseOptions,
): Promise<void> {
  const { reports, deps } = execution;
  await untilEither(bodyEnded, stopped);
  const release = () => deps.store.release(execution.lease, reports.send());
  await retryStoreCall(release, deps, givenUp, { maxPauseMs }).catch((error) => deps.hub.publishError(error));
}

/** Waits for a promise, at most until a signal fires. */
async function untilEither(work: Promise<void>, abortSignal: AbortSignal): Promise<void> {
  if (abortSignal.aborted) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  const end = () => resolve();
  abortSignal.addEventListener("abort", end, { once: true });
  work.then(end);
  await promise;
  abortSignal.removeEventListener("abort", end);
}
