import { HoldfastError, StoreError } from "../error.ts";
import { type Host, pause } from "../host.ts";
import type { Hub } from "./hub.ts";

const FIRST_PAUSE_MS = 20;
const MAX_PAUSE_MS = 2_000;

/** What {@linkcode retryStoreCall} works with. */
export interface RetryDeps {
  /** Time and chance. */
  host: Host;
  /** Hears what goes wrong. */
  hub: Hub;
}

/**
 * Makes a call to the store until it is answered, with growing pauses: a store that cannot answer says nothing about
 * the run. A refusal is an answer, and is thrown.
 *
 * @param abortSignal Gives up when it fires: the last error is thrown.
 */
export async function retryStoreCall<T>(
  call: () => Promise<T>,
  deps: RetryDeps,
  abortSignal: AbortSignal,
): Promise<T> {
  for (let attempt = 0;; attempt++) {
    try {
      return await call();
    } catch (error) {
      if (isRefusal(error) || abortSignal.aborted) throw error;
      deps.hub.publishError(error);
      const longest = Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** attempt);
      await pause(deps.host, longest * (0.5 + deps.host.random() / 2), abortSignal);
      if (abortSignal.aborted) throw error;
    }
  }
}

/** Whether a store has answered by refusing, rather than not at all. */
export function isRefusal(error: unknown): boolean {
  return error instanceof HoldfastError && !(error instanceof StoreError);
}
