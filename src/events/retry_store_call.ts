import { HoldfastError, StoreError } from "../model/error.ts";
import { type Host, pause } from "../model/host.ts";
import type { Hub } from "./hub.ts";

const FIRST_PAUSE_MS = 20;
const MAX_PAUSE_MS = 2_000;

/** The dependencies of {@linkcode retryStoreCall}. */
export interface RetryDeps {
  /** Timers and randomness. */
  host: Host;
  /** Publishes the errors. */
  hub: Hub;
}

/**
 * Repeats a call to the store, with growing pauses, until the store answers. A refusal is an answer, and is thrown.
 *
 * @param abortSignal Ends the retries when it fires: the last error is thrown.
 * @param options.maxPauseMs The longest pause, in milliseconds (default, and at most, 2,000).
 */
export async function retryStoreCall<T>(
  call: () => Promise<T>,
  deps: RetryDeps,
  abortSignal: AbortSignal,
  { maxPauseMs = MAX_PAUSE_MS }: { maxPauseMs?: number } = {},
): Promise<T> {
  for (let attempt = 0;; attempt++) {
    try {
      return await call();
    } catch (error) {
      if (isRefusal(error) || abortSignal.aborted) throw error;
      deps.hub.publishError(error);
      const longest = Math.min(MAX_PAUSE_MS, maxPauseMs, FIRST_PAUSE_MS * 2 ** attempt);
      await pause(deps.host, longest * (0.5 + deps.host.random() / 2), abortSignal);
      if (abortSignal.aborted) throw error;
    }
  }
}

/** Whether a store has answered by refusing, rather than not at all. */
export function isRefusal(error: unknown): boolean {
  return error instanceof HoldfastError && !(error instanceof StoreError);
}

const MAX_REPEATS = 3;

/** Repeats a call whose outcome is unknown: the store recognises the repetition and does not report a conflict. */
export async function untilKnown<T>(call: () => Promise<T>): Promise<T> {
  for (let repeats = 0;; repeats++) {
    try {
      return await call();
    } catch (error) {
      if (!(error instanceof StoreError && error.outcomeUnknown) || repeats === MAX_REPEATS) throw error;
    }
  }
}
