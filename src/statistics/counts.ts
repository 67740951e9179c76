import type { StatisticsCounts } from "../store/operate.ts";

/** The counts of nothing. */
export const NO_COUNTS: Readonly<StatisticsCounts> = {
  triggered: 0,
  started: 0,
  completed: 0,
  failed: 0,
  cancelled: 0,
  steps: 0,
  stepFailures: 0,
};
const NAMES = Object.keys(NO_COUNTS) as (keyof StatisticsCounts)[]; // it has no others

/** Adds counts to a sum. */
export function addCounts(sum: StatisticsCounts, counts: StatisticsCounts): void {
  for (const name of NAMES) sum[name] += counts[name];
}
