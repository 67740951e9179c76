import type { Model } from "./checker.ts";
import type { Rate } from "../../src/model/flow.ts";

/** A run starts: it is claimed for the first time, at a moment between two instants in milliseconds. */
export interface StartAsk {
  is: "start";
  run: string;
  from: number;
  to: number;
}

/** It was so. */
export type Started = "started";

/**
 * What a rate does: the start that is `limit` starts before another is at least a `period` before it. The state are the
 * last starts, each as early as it can have been. If no instants fit, later ones do not either.
 */
export function rateModel({ limit, period }: Rate): Model<readonly number[], StartAsk, Started> {
  return {
    first: [],
    key: (starts) => starts.join(),
    part: ({ run }) => run,
    next(starts, { from, to }) {
      const opensAt = starts.length < limit ? -Infinity : starts[0]! + period;
      const at = Math.max(from, starts.at(-1) ?? -Infinity, opensAt);
      return at > to ? [] : [[...starts, at].slice(-limit)];
    },
  };
}
