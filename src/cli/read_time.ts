import { isInstant, readInstant } from "../values/instant.ts";
import { UsageError } from "./usage_error.ts";

const UNITS: { readonly [unit: string]: number } = {
  s: 1_000,
  m: 60_000,
  min: 60_000,
  h: 3_600_000,
  d: 86_400_000,
  w: 604_800_000,
};

/**
 * Reads a duration such as `90s`, `15m`, `1h`, `1h30m`, `30d` or `2w`, in milliseconds.
 *
 * @throws {UsageError} It is none.
 */
export function readDuration(text: string, option: string): number {
  const parts = [...text.matchAll(/(\d{1,9})(s|min|m|h|d|w)/g)];
  if (parts.length === 0 || parts.map(([part]) => part).join("") !== text) {
    throw new UsageError(`--${option} must be a duration such as 90s, 15m, 1h, 30d or 2w, not "${text}"`);
  }
  return parts.reduce((sum, [, count, unit]) => sum + Number(count) * UNITS[unit!]!, 0);
}

/**
 * Reads an instant: ISO 8601, or a duration before now.
 *
 * @returns ISO 8601 in UTC.
 * @throws {UsageError} It is neither.
 */
export function readSince(text: string, option: string, now: number): string {
  if (/^\d{4}-/.test(text)) {
    if (!isInstant(text)) throw new UsageError(`--${option} is no instant: ${text}`);
    return new Date(readInstant(text, option)).toISOString();
  }
  return new Date(now - readDuration(text, option)).toISOString();
}
