/** Whether something is an instance of a class. Never throws, as `instanceof` may for a proxy. */
export function isInstance<T>(value: unknown, type: abstract new (...parameters: never[]) => T): value is T {
  try {
    return value instanceof type;
  } catch {
    return false;
  }
}
