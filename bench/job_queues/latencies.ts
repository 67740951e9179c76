// Values are counted by microseconds up to this, and above it by a power of two of them: three significant figures.
const EXACT = 2_048;
const HALF = EXACT / 2;
const MAX_US = 2 ** 32 - 1;
const BUCKETS = bucketOf(MAX_US) + 1;
const SLICES = 6;

/** The percentiles of what was recorded within the last seconds. */
export interface Percentiles {
  p50: number;
  p95: number;
  p99: number;
}

/** Durations of the last seconds, in as much memory for a million as for one. They are counted in slices of the window. */
export class Latencies {
  readonly #sliceMs: number;
  readonly #slices = Array.from({ length: SLICES + 1 }, () => ({ no: -1, counts: new Uint32Array(BUCKETS), total: 0 }));

  /** @param windowS For how many seconds they count. */
  constructor(windowS: number) {
    this.#sliceMs = windowS * 1_000 / SLICES;
  }

  /**
   * Counts a duration.
   *
   * @param ms The duration.
   * @param now The instant, in milliseconds.
   * @param times How many of them.
   */
  record(ms: number, now: number, times = 1): void {
    const no = Math.floor(now / this.#sliceMs);
    const slice = this.#slices[no % this.#slices.length]!; // there are so many
    if (slice.no !== no) {
      slice.no = no;
      slice.counts.fill(0);
      slice.total = 0;
    }
    slice.counts[bucketOf(Math.min(MAX_US, Math.max(0, Math.round(ms * 1_000))))]! += times;
    slice.total += times;
  }

  /** The percentiles, in milliseconds; 0 if nothing was recorded. */
  percentiles(now: number): Percentiles {
    const newest = Math.floor(now / this.#sliceMs);
    const slices = this.#slices.filter(({ no }) => no > newest - SLICES - 1 && no <= newest);
    const total = slices.reduce((sum, slice) => sum + slice.total, 0);
    const wanted = [0.5, 0.95, 0.99].map((part) => Math.max(1, Math.ceil(part * total)));
    const found: number[] = [];
    let count = 0;
    for (let bucket = 0; bucket < BUCKETS && found.length < wanted.length && total > 0; bucket++) {
      for (const { counts } of slices) count += counts[bucket]!; // each has all buckets
      while (found.length < wanted.length && count >= wanted[found.length]!) found.push(middleOf(bucket) / 1_000);
    }
    const [p50 = 0, p95 = 0, p99 = 0] = found;
    return { p50, p95, p99 };
  }
}

function bucketOf(us: number): number {
  if (us < EXACT) return us;
  const shift = Math.floor(Math.log2(us)) - Math.log2(HALF);
  return shift * HALF + Math.floor(us / 2 ** shift);
}

function middleOf(bucket: number): number {
  if (bucket < EXACT) return bucket;
  const shift = Math.floor(bucket / HALF) - 1;
  return (bucket - shift * HALF + 0.5) * 2 ** shift;
}
