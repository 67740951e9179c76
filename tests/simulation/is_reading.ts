/** Whether a method of a store only reads. */
export function isReading(method: string): boolean {
  return /^(get|read|find|has)[A-Z]/.test(method);
}
