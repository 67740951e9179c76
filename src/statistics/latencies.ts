import type { LatencyCounts } from "../store/operate.ts";

// Bucket n has durations from 2^(n/2) ms up to 2^((n+1)/2) ms: from 1 ms to 4.6 h. Shorter ones are in the first bucket,
// longer ones in the last. The middle of a bucket, as a ratio, is at most a factor 2^(1/4) from all of it: 19 %.
const BUCKETS = 48;

/** What is measured: how long runs were due before they started, and how long runs and attempts at steps took. */
export type Histogram = "startDelay" | "duration" | "stepDuration";

/** The first bucket of each. */
const FIRST: Record<Histogram, number> = { startDelay: 0, duration: BUCKETS, stepDuration: 2 * BUCKETS };

/** The number of the bucket of a duration among those of all histograms. */
export function bucketOf(histogram: Histogram, ms: number): number {
  return FIRST[histogram] + (ms < 1 ? 0 : Math.min(BUCKETS - 1, Math.floor(2 * Math.log2(ms))));
}

/** Durations of one kind, in milliseconds. Each percentile is at most 19 % off, up to 4.6 hours. */
export interface Latency {
  /** How many were measured. */
  count: number;
  /** Half of them took at most this long. */
  p50: number;
  /** 95 % of them took at most this long. */
  p95: number;
  /** 99 % of them took at most this long. */
  p99: number;
}

/** Sums of counts in buckets. */
export class LatencySums {
  readonly #counts = new Float64Array(3 * BUCKETS);

  /** Adds the counts of all histograms. */
  add(latencies: LatencyCounts): void {
    for (const bucket in latencies) this.#counts[bucket as unknown as number]! += latencies[bucket]!; // an index
  }

  /** Adds other sums. */
  addAll(other: LatencySums): void {
    for (const [bucket, count] of other.#counts.entries()) this.#counts[bucket]! += count;
  }

  /** The percentiles of a histogram; `null` if nothing was measured. */
  latency(histogram: Histogram): Latency | null {
    const first = FIRST[histogram];
    const counts = this.#counts.subarray(first, first + BUCKETS);
    const count = counts.reduce((sum, one) => sum + one, 0);
    if (count === 0) return null;
    const percentile = (share: number) => middleAt(counts, Math.ceil(count * share));
    return { count, p50: percentile(0.5), p95: percentile(0.95), p99: percentile(0.99) };
  }
}

/** The middle of the bucket that has the value of a rank, the smallest value having rank 1. */
function middleAt(counts: Float64Array, rank: number): number {
  let seen = 0;
  const bucket = counts.findIndex((count) => (seen += count) >= rank);
  return Math.round(2 ** ((bucket + 0.5) / 2) * 1_000) / 1_000;
}
