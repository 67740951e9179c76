import type { NewLogEntry } from "../log.ts";
import type { Listen } from "../events/hub.ts";

/** Adds something to an engine: `engine.use(plugin)`. */
export interface Plugin {
  /** Says which it is; an engine uses one of a name once. */
  name: string;
  /** Called once, when the engine begins to use it. */
  install(context: PluginContext): void;
}

/** What a plugin is given. */
export interface PluginContext {
  /** Hears events, as `engine.on()` does. */
  on: Listen;
  /** Keeps log lines. The engine waits for it when it stops, and tells of an error by `worker:error`. */
  appendLogs(entries: readonly NewLogEntry[]): void;
  /** A new UUIDv7. */
  newId(): string;
}
