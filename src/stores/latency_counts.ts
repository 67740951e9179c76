import type { LatencyCounts } from "../store/statistics.ts";

/** The sums of two lists of counts. */
export function addLatencies(one: LatencyCounts, other: LatencyCounts): LatencyCounts {
  const sum: Record<string, number> = { ...one };
  for (const [bucket, count] of Object.entries(other)) sum[bucket] = (sum[bucket] ?? 0) + count;
  return sum;
}
