// An HTTP-date in its three forms (RFC 9110, section 5.6.7): IMF-fixdate, that of RFC 850, and that of asctime().
const MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)";
const TIME = String.raw`\d\d:\d\d:\d\d`;
const IMF_FIXDATE = new RegExp(String.raw`^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d ${MONTH} \d{4} ${TIME} GMT$`);
const RFC_850 = new RegExp(String.raw`^(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, \d\d-${MONTH}-\d\d ${TIME} GMT$`);
const ASCTIME = new RegExp(String.raw`^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) ${MONTH} [ \d]\d ${TIME} \d{4}$`);

/** When to try again: after a number of milliseconds, or at an instant. */
export type RetryDelay = { afterMs: number } | { at: number };

/**
 * Reads the value of a `Retry-After` header (RFC 9110, section 10.2.3): a number of seconds, or an HTTP-date.
 *
 * @returns `null` if it is neither.
 */
export function readRetryAfter(header: string): RetryDelay | null {
  const text = header.trim();
  if (/^\d+$/.test(text)) return { afterMs: Number(text) * 1_000 };
  const isDate = IMF_FIXDATE.test(text) || RFC_850.test(text) || ASCTIME.test(text);
  if (!isDate) return null;
  // The form of asctime() names no zone; it is in UTC, like the others.
  const at = Date.parse(text.endsWith("GMT") ? text : `${text} GMT`);
  return Number.isNaN(at) ? null : { at };
}
