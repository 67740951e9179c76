import type { Store } from "../store.ts";
import type { JournalReader } from "../events/journal_reader.ts";
import type { TriggerGuard, TriggerOptions, TriggerResult } from "./trigger.ts";

/** What an engine shows to the other parts of this package alone. */
export interface EngineInternals {
  /** Publishes what happens to runs, in all processes. */
  reader: JournalReader;
  /** The store with its tables made, for what is read without going through the engine. */
  store(): Promise<Store>;
  /** Whether the engine has stopped: event streams that are opened now end at once. */
  isStopped(): boolean;
  /** Calls back each time that the engine has stopped. */
  onStop(listener: () => void): void;
  /** Asks for a run, as `Engine.trigger()` does, if a guard lets it. */
  trigger(jobName: string, input: unknown, options: TriggerOptions, guard: TriggerGuard): Promise<TriggerResult>;
}

/** Under which name an engine keeps its {@linkcode EngineInternals}: no other package can have it. */
export const INTERNALS: unique symbol = Symbol("internals");

/**
 * The internals of an engine.
 *
 * @throws {TypeError} It is none that `createEngine()` has made.
 */
export function internalsOf(engine: object): EngineInternals {
  const internals = (engine as { [INTERNALS]?: EngineInternals })[INTERNALS];
  if (internals === undefined) throw new TypeError("The engine must be one that createEngine() has made");
  return internals;
}
