import { ValidationError } from "../model/error.ts";

/**
 * Checks an integer that came from outside.
 *
 * @throws {ValidationError} It is not in the range, or not an integer; the message begins with `subject`.
 */
export function checkInteger(value: number, subject: string, least: number, most: number): void {
  if (Number.isInteger(value) && value >= least && value <= most) return;
  throw new ValidationError(`${subject} must be an integer from ${least} to ${most}`);
}
