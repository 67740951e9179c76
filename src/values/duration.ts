/**
 * A duration: milliseconds, or a number with a unit, such as `"500ms"`, `"30s"`, `"5m"`, `"2h"`, `"3d"`, `"2w"`,
 * `"5 minutes"` or `"1d12h"`. A day has 24 hours.
 */
export type Duration =
  | number
  | `${number}${"ms" | "s" | "m" | "min" | "h" | "d" | "w"}`
  | `${number}${"d" | "h" | "m"}${number}${"h" | "m" | "s"}`
  | `${number} ${"millisecond" | "second" | "minute" | "hour" | "day" | "week"}${"" | "s"}`;

const UNITS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  min: 60_000,
  h: 3_600_000,
  d: 86_400_000,
  w: 604_800_000,
  millisecond: 1,
  second: 1_000,
  minute: 60_000,
  hour: 3_600_000,
  day: 86_400_000,
  week: 604_800_000,
};

const PART = /(\d{1,15}(?:\.\d{1,9})?) ?(milliseconds?|seconds?|minutes?|hours?|days?|weeks?|ms|min|[smhdw])/;
const DURATION = new RegExp(`^(?:${PART.source} ?)*${PART.source}$`);

/** The rule of {@linkcode Duration}, for messages. */
const DURATION_RULE = 'milliseconds, or a duration such as "30s", "5m", "2h" or "3 days"';

/** The milliseconds of a duration that is a string; any other value as it is. */
export function toMs(duration: unknown): unknown {
  if (typeof duration !== "string" || duration.length > 100 || !DURATION.test(duration)) return duration;
  const parts = [...duration.matchAll(new RegExp(PART, "g"))];
  const unitOf = (unit: string) => UNITS[unit.replace(/(?<=...)s$/, "")]!;
  return Math.round(parts.reduce((sum, [, count, unit]) => sum + Number(count) * unitOf(unit!), 0));
}

/**
 * Reads a duration that came from outside, in milliseconds.
 *
 * @param subject Names the duration in the message: `The timeout of step "read"`.
 * @param least The smallest valid value, in milliseconds. Default 0.
 * @throws {TypeError} It is not a duration.
 * @throws {RangeError} It is shorter than `least`, or `NaN`.
 */
export function readDuration(duration: unknown, subject: string, least = 0): number {
  const ms = toMs(duration);
  if (typeof ms !== "number") {
    throw new TypeError(`${subject} must be ${DURATION_RULE}, not ${typeof ms === "string" ? JSON.stringify(ms) : ms}`);
  }
  if (ms >= least) return ms;
  const range = least === -Infinity ? "a number of" : `${least} or more`;
  throw new RangeError(`${subject} must be ${range} milliseconds, not ${ms}`);
}

const DESCRIBED: readonly [ms: number, name: string][] = [
  [86_400_000, "d"],
  [3_600_000, "h"],
  [60_000, "min"],
  [1_000, "s"],
];

/** A duration in words, with its two largest units: `2 h 29 min`, `4 min`, `41 s`, `350 ms`. A negative one is 0. */
export function describeDuration(ms: number): string {
  let left = Math.max(0, Math.round(ms));
  if (left < 1_000) return `${left} ms`;
  const parts: string[] = [];
  for (const [unit, name] of DESCRIBED) {
    const count = Math.floor(left / unit);
    left -= count * unit;
    if (count > 0) parts.push(`${count} ${name}`);
    else if (parts.length > 0) break;
    if (parts.length === 2 || name === "s") break;
  }
  return parts.join(" ");
}
