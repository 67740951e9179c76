/**
 * Checks a duration that came from outside.
 *
 * @param subject What it is for, in the message: `The timeout of step "read"`.
 * @param least The shortest one, in milliseconds. Default 0.
 * @throws {TypeError} It is no number: text such as `"2d"` is not read.
 * @throws {RangeError} It is shorter, or `NaN`.
 */
export function checkDuration(ms: unknown, subject: string, least = 0): asserts ms is number {
  if (typeof ms !== "number") {
    throw new TypeError(`${subject} must be a number of milliseconds, not ${typeof ms === "string" ? `"${ms}"` : ms}`);
  }
  if (ms >= least) return;
  const range = least === -Infinity ? "a number of" : `${least} or more`;
  throw new RangeError(`${subject} must be ${range} milliseconds, not ${ms}`);
}
