/** Names a value of an unknown kind for a message: `a string`, `null`, `an object`, `a Promise`. */
export function kindOf(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  if (typeof value !== "object") return `a ${typeof value}`;
  const kind = Object.prototype.toString.call(value).slice("[object ".length, -1);
  return kind === "Object" ? "an object" : `${/^[AEIO]/.test(kind) ? "an" : "a"} ${kind}`;
}

/** Whether a value is an object, and no array. */
export function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Reads a member of a value of unknown type; `undefined` if there is none. */
export function propertyOf(value: unknown, name: PropertyKey): unknown {
  return value === null || value === undefined ? undefined : Object(value)[name];
}

/** The message of what was thrown: that of an error, or anything else as a string. */
export function errorMessage(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}

/** Whether something is an instance of a class. Never throws, as `instanceof` may for a proxy. */
export function isInstance<T>(value: unknown, type: abstract new (...parameters: never[]) => T): value is T {
  try {
    return value instanceof type;
  } catch {
    return false;
  }
}
