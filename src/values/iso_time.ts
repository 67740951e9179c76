/** Writes an instant (milliseconds since 1970) as ISO 8601 in UTC; `null` stays `null`. */
export function isoTime(at: number): string;
/** Writes an instant that may be unknown. */
export function isoTime(at: number | null): string | null;
/** Writes an instant that may be unknown. */
export function isoTime(at: number | null): string | null {
  return at === null ? null : new Date(at).toISOString();
}
