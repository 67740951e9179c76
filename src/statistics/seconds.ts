/** The upper bounds of the buckets of histograms for metrics, in seconds. */
export const SECONDS: readonly number[] = [
  0.005,
  0.01,
  0.025,
  0.05,
  0.1,
  0.25,
  0.5,
  1,
  2.5,
  5,
  10,
  30,
  60,
  300,
  1_800,
  3_600,
  86_400,
];

/** Durations in buckets, as a metric shows them. */
export class SecondsHistogram {
  /** How many durations are in each bucket; the last one has those above all bounds. */
  readonly counts: number[] = new Array(SECONDS.length + 1).fill(0);
  /** The sum of the durations, in seconds. */
  sum = 0;

  /** Adds a duration in milliseconds, which counts for `weight` durations. */
  add(ms: number, weight = 1): void {
    const seconds = ms / 1_000;
    let bucket = 0;
    while (bucket < SECONDS.length && seconds > SECONDS[bucket]!) bucket++;
    this.counts[bucket]! += weight;
    this.sum += seconds * weight;
  }

  /** Adds the durations of another one. */
  addAll(other: SecondsHistogram): void {
    for (const [bucket, count] of other.counts.entries()) this.counts[bucket]! += count;
    this.sum += other.sum;
  }
}
