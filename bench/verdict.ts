import type { Ratio } from "./take_turns.ts";

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
export function judge(speed: Ratio, control: Ratio, goal: number): Verdict {
  if (speed.median >= goal) return "reached";
  return speed.to < goal && control.from >= goal ? "missed" : "perhaps";
}
