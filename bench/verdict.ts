/** How fast one is, measured by another (1 is as fast): the median of all rounds, and where it is with 95 % certainty. */
export interface Speed {
  /** Its lower bound. */
  from: number;
  /** The median of the rounds. */
  median: number;
  /** Its upper bound. */
  to: number;
}

/**
 * What a comparison says: a goal is `missed` if neither randomness nor the machine explains it, `perhaps` if one of them
 * does.
 */
export type Verdict = "reached" | "perhaps" | "missed";

/**
 * Compares a speed with its goal.
 *
 * @param control The speed of a copy of the base, which is 1 but for what else the machine was doing.
 * @param goal At least how fast it has to be: 0.9 is nine tenths of the base.
 */
export function judge(speed: Speed, control: Speed, goal: number): Verdict {
  if (speed.median >= goal) return "reached";
  return speed.to < goal && control.from >= goal ? "missed" : "perhaps";
}
