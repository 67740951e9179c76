import { type Json, parseValue, type StoredValue } from "../../values/json.ts";
import type { Run, RunText } from "../../run.ts";
import { deepFreeze } from "../deep_freeze.ts";

/** A run for a hook, frozen. Its values are parsed when the hook reads them: most hooks read only labels. */
export function toSeenRun({ payload: input, output, ...run }: RunText): Readonly<Run> {
  const lazily = (value: StoredValue): PropertyDescriptor => {
    let parsed: { value: Json } | null = null;
    return { enumerable: true, get: () => (parsed ??= deepFreeze({ value: parseValue(value) })).value };
  };
  const values = { payload: lazily(input), output: lazily(output) };
  // A Run: these two values complete its fields.
  return Object.freeze(Object.defineProperties({ ...deepFreeze(run) }, values)) as Readonly<Run>;
}
