/**
 * Checks a duration that came from outside.
 *
 * @param subject Names the duration in the message: `The timeout of step "read"`.
 * @param least The smallest valid value, in milliseconds. Default 0.
 * @throws {TypeError} It is not a number: strings such as `"2d"` are not parsed.
 * @throws {RangeError} It is shorter than `least`, or `NaN`.
 */
export function checkDuration(ms: unknown, subject: string, least = 0): asserts ms is number {
  if (typeof ms !== "number") {
    throw new TypeError(`${subject} must be a number of milliseconds, not ${typeof ms === "string" ? `"${ms}"` : ms}`);
  }
  if (ms >= least) return;
  const range = least === -Infinity ? "a number of" : `${least} or more`;
  throw new RangeError(`${subject} must be ${range} milliseconds, not ${ms}`);
}
