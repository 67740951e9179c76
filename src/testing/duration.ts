const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** A duration: milliseconds, or text such as `2d`, `90m` or `1d12h`. Units: `d`, `h`, `m`, `s`, `ms`. */
export type Duration = number | string;

/**
 * The milliseconds of a duration.
 *
 * @throws {RangeError} It is none, or negative.
 */
export function toMilliseconds(duration: Duration): number {
  if (typeof duration === "number" && duration >= 0 && Number.isFinite(duration)) return Math.round(duration);
  if (typeof duration === "string" && /^(\d+(ms|[dhms]))+$/.test(duration)) {
    const parts = [...duration.matchAll(/(\d+)(ms|[dhms])/g)];
    return parts.reduce((sum, [, count, unit]) => sum + Number(count) * UNITS[unit!]!, 0);
  }
  throw new RangeError(`${JSON.stringify(duration)} is no duration: 2d, 90m, 1d12h or milliseconds`);
}
