import type { Run, RunText } from "../../run.ts";
import { parseValue, type StoredValue } from "../../values/json.ts";
import { deepFreeze } from "../deep_freeze.ts";

/** A run for a hook, frozen. */
export function toSeenRun({ payload, output, ...run }: RunText): Readonly<Run> {
  return withLazyValues(run, { input: payload, payload, output }) as Readonly<Run>; // the values complete its fields
}

/** A frozen record with values that are parsed when they are read: most hooks read only labels. */
export function withLazyValues<T extends object>(record: T, values: { readonly [name: string]: StoredValue }): T {
  const lazy = Object.entries(values).map(([name, value]): [string, PropertyDescriptor] => {
    let parsed: { value: unknown } | null = null;
    return [name, {
      enumerable: true,
      get: () => (parsed ??= deepFreeze({ value: parseValue(value) })).value,
    }];
  });
  return Object.freeze(Object.defineProperties({ ...deepFreeze(record) }, Object.fromEntries(lazy)));
}
