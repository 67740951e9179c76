import type { StatisticsSpan } from "../store/statistics.ts";

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;

/** The lengths of slots, each with how long its slots are kept, in milliseconds. */
export const STATISTICS_SPANS: readonly { span: StatisticsSpan; keptMs: number }[] = [
  { span: MINUTE_MS, keptMs: 2 * HOUR_MS },
  { span: 900_000, keptMs: 8 * 24 * HOUR_MS },
];

/** When the slot of an instant began. */
export function slotAt(now: number, span: StatisticsSpan): number {
  return Math.floor(now / span) * span;
}
