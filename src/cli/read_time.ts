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
  const ms = toDuration(text);
  if (ms !== null) return ms;
  throw new UsageError(`--${option} must be a duration such as 90s, 15m, 1h, 30d or 2w, not "${text}"`);
}

function toDuration(text: string): number | null {
  const parts = [...text.matchAll(/(\d{1,9})(s|min|m|h|d|w)/g)];
  if (parts.length === 0 || parts.map(([part]) => part).join("") !== text) return null;
  return parts.reduce((sum, [, count, unit]) => sum + Number(count) * UNITS[unit!]!, 0);
}

/**
 * Reads an instant: ISO 8601, or a duration before now.
 *
 * @returns ISO 8601 in UTC.
 * @throws {UsageError} It is neither.
 */
export function readSince(text: string, option: string, now: number): string {
  if (isInstant(text)) return new Date(readInstant(text, option)).toISOString();
  const ms = toDuration(text);
  if (ms !== null) return new Date(now - ms).toISOString();
  throw new UsageError(
    `--${option} must be a duration before now such as 90s, 1h or 2d, or an instant such as 2026-11-22T18:00:00Z, not "${text}"`,
  );
}
