import assert from "node:assert/strict";
import type { Latency } from "../../src/statistics/latencies.ts";

/** The smallest value of which at least a share of all are at most as large. */
export function exactPercentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((one, other) => one - other);
  return sorted[Math.ceil(sorted.length * share) - 1]!;
}

/** Checks that percentiles are those of some durations, 19 % off at most; what is shorter than 1 ms counts as 1 ms. */
export function isNear({ count, p50, p95, p99 }: Latency, values: readonly number[]): void {
  assert.equal(count, values.length);
  for (const [share, percentile] of [[0.5, p50], [0.95, p95], [0.99, p99]] as const) {
    const ratio = percentile / Math.max(1, exactPercentile(values, share));
    assert.ok(ratio > 0.84 && ratio < 1.19, `${percentile} is ${ratio} of the exact value`);
  }
}
