import { setTimeout } from "node:timers/promises";

/** Waits; answers `false` as soon as the signal has fired. */
export async function pauseUnlessAborted(ms: number, signal: AbortSignal): Promise<boolean> {
  return await setTimeout(ms, true, { signal }).catch(() => false);
}
