import type { Failure } from "../failure.ts";

/** A run that was abandoned so many times in a row is claimed alone. */
export const ALONE_FROM = 2;

/** A run that is claimed alone waits for so large a part of a lease, times its abandonments but the first. */
export const ALONE_DELAY = 1 / 4;

/** How long a run waits before it is claimed alone, in milliseconds. `leaseMs`: the length of the lost lease. */
export function aloneDelayMs(abandonments: number, leaseMs: number): number {
  return Math.ceil((abandonments - 1) * leaseMs * ALONE_DELAY);
}

/** The failure of a run that was abandoned too many times in a row. */
export function abandonedFailure(abandonments: number): Failure {
  const message = `Abandoned ${abandonments} times in a row without recording anything: ` +
    "its worker keeps dying or stalling";
  return { kind: "abandoned", name: "Error", message, stack: null, cause: null };
}
