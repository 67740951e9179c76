/** What several measurements of one figure say. */
export interface Summary {
  /** Half of them are less. */
  median: number;
  /** The least. */
  minimum: number;
  /** The most. */
  maximum: number;
}

/** Sums measurements up: at least one. */
export function summarize(samples: readonly number[]): Summary {
  return { median: percentile(samples, 0.5), minimum: Math.min(...samples), maximum: Math.max(...samples) };
}

/**
 * The value that such a part of the samples does not exceed; between two samples by their distances.
 *
 * @param part From 0 to 1: 0.5 is the median.
 */
export function percentile(samples: readonly number[], part: number): number {
  const sorted = samples.toSorted((one, other) => one - other);
  const place = (sorted.length - 1) * part;
  const below = sorted[Math.floor(place)]!;
  const above = sorted[Math.ceil(place)]!;
  return below + (above - below) * (place - Math.floor(place));
}

/**
 * How fast one is, measured by another: 1 is as fast, 0.5 half as fast, whatever the unit.
 *
 * It is the median of the ratios of the rounds, not the ratio of the medians: the two of one round follow each other
 * within seconds, so that a disk which is slow for a while slows both.
 *
 * @param better Which numbers are better: `more` for rates, `less` for durations.
 */
export function speedRatio(ours: readonly number[], others: readonly number[], better: "more" | "less"): number {
  const rounds = Math.min(ours.length, others.length);
  const ratios = Array.from({ length: rounds }, (_, round) => {
    const ratio = ours[round]! / others[round]!;
    return better === "more" ? ratio : 1 / ratio;
  });
  return percentile(ratios, 0.5);
}
