/**
 * The milliseconds of an instant.
 *
 * @throws {RangeError} It is none.
 */
export function toInstant(date: Date | string | number): number {
  const instant = new Date(date).getTime();
  if (Number.isNaN(instant)) throw new RangeError(`${JSON.stringify(date)} is no instant: a Date, or ISO 8601`);
  return instant;
}
