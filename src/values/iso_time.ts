// Most instants are written several times in a row: those of a batch of runs are the same.
let last = { at: 0, text: "1970-01-01T00:00:00.000Z" };

/** Writes an instant (milliseconds since 1970) as ISO 8601 in UTC; `null` stays `null`. */
export function isoTime(at: number): string;
/** Writes an instant that may be unknown. */
export function isoTime(at: number | null): string | null;
/** Writes an instant that may be unknown. */
export function isoTime(at: number | null): string | null {
  if (at === null) return null;
  if (at !== last.at) last = { at, text: new Date(at).toISOString() };
  return last.text;
}
