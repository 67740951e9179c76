import { ValidationError } from "../model/error.ts";

/** The rule of {@linkcode isInstant}, for messages. */
export const INSTANT_RULE =
  'must be a date of the years 0000 to 9999 in ISO 8601 with a time zone, such as "2026-11-01T08:00:00Z"';

const ISO = /^(\d{4}-\d{2}-(\d{2}))(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]\d{2}:\d{2}))?$/;
// Later instants, and the sum of one with any duration of this package, are still dates of ECMAScript.
const [FIRST, LAST] = [Date.parse("0000-01-01T00:00:00.000Z"), Date.parse("9999-12-31T23:59:59.999Z")];

/**
 * Whether a value is an instant: a `Date`, or ISO 8601 with a time zone (`Z` or `+01:00`). A date alone is its
 * midnight in UTC.
 */
export function isInstant(value: unknown): value is Date | string {
  const at = toMs(value);
  return at >= FIRST && at <= LAST;
}

/**
 * Reads an instant that came from outside, as {@linkcode isInstant} describes it.
 *
 * @param subject Names the value in the message: `startAt`.
 * @returns Milliseconds since 1970.
 * @throws {ValidationError} It is not valid.
 */
export function readInstant(value: unknown, subject: string): number {
  if (isInstant(value)) return toMs(value);
  throw new ValidationError(`${subject} ${INSTANT_RULE}`);
}

/** Milliseconds since 1970; `NaN` for what is not an instant. */
function toMs(value: unknown): number {
  if (value instanceof Date) return value.getTime();
  const [, date, day] = typeof value === "string" ? ISO.exec(value) ?? [] : [];
  // Date.parse() accepts the 30th of February, as a day of March.
  if (date === undefined || new Date(date).getUTCDate() !== Number(day)) return NaN;
  return Date.parse(value as string); // matched above
}
