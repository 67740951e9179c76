/** The fields that are always there stay so. */
type Defined<T> =
  & { [K in keyof T as undefined extends T[K] ? never : K]: T[K] }
  & { [K in keyof T as undefined extends T[K] ? K : never]?: Exclude<T[K], undefined> };

/** A copy of an object without the fields that are `undefined`. */
export function withoutUndefined<T extends object>(fields: T): Defined<T> {
  // A T without some of its fields.
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Defined<T>;
}
