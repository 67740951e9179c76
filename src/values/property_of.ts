/** Reads a member of a value of unknown type; `undefined` if there is none. */
export function propertyOf(value: unknown, name: PropertyKey): unknown {
  return value === null || value === undefined ? undefined : Object(value)[name];
}
