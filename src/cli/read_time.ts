import { isInstant, readInstant } from "../values/instant.ts";
import { toMs } from "../values/duration.ts";
import { UsageError } from "./usage_error.ts";

const MAX_MS = 3_155_760_000_000; // 100 years: the instant so long ago is a date

/**
 * Reads a duration such as `90s`, `15m`, `1h`, `1h30m`, `30d` or `2w`, in milliseconds.
 *
 * @throws {UsageError} It is none.
 */
export function readDuration(text: string, option: string): number {
  const ms = toMs(text);
  if (typeof ms === "number" && ms <= MAX_MS) return ms;
  throw new UsageError(
    `--${option} must be a duration such as 90s, 15m, 1h, 30d or 2w, of at most 100 years, not "${text}"`,
  );
}

/**
 * Reads an instant: ISO 8601, or a duration before now.
 *
 * @returns ISO 8601 in UTC.
 * @throws {UsageError} It is neither.
 */
export function readSince(text: string, option: string, now: number): string {
  if (isInstant(text)) return new Date(readInstant(text, option)).toISOString();
  const ms = toMs(text);
  if (typeof ms === "number" && ms <= MAX_MS) return new Date(now - ms).toISOString();
  throw new UsageError(
    `--${option} must be a duration of at most 100 years before now such as 90s, 1h or 2d, or an instant such as 2026-11-22T18:00:00Z, not "${text}"`,
  );
}
