import type { EngineParts } from "./assemble_engine.ts";

/** The key of the parts of an engine: a symbol private to this package. */
export const INTERNALS: unique symbol = Symbol("internals");

/**
 * The parts of an engine, for the other parts of this package.
 *
 * @throws {TypeError} It was not created by `createEngine()`.
 */
export function internalsOf(engine: object): EngineParts {
  const internals = (engine as { [INTERNALS]?: EngineParts } | null | undefined)?.[INTERNALS]; // only an engine can have this symbol
  if (internals === undefined) throw new TypeError("The engine was not created by createEngine()");
  return internals;
}
