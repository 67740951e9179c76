import type { Schema } from "../../mod.ts";

/** A schema that accepts anything, and has the type that it is asked to have. */
export function anything<T = unknown>(): Schema<T> {
  return { "~standard": { version: 1, vendor: "tests", validate: (value) => ({ value: value as T }) } };
}
