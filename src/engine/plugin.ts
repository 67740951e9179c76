import type { NewLogEntry } from "../log.ts";
import type { Listen } from "../events/hub.ts";

/** Adds something to an engine: `engine.use(plugin)`. */
export interface Plugin {
  /** The plugin's name; an engine uses a plugin of the same name only once. */
  name: string;
  /** Called once, by `engine.use()`. */
  install(context: PluginContext): void;
}

/** The API for a plugin. */
export interface PluginContext {
  /** Subscribes to events, as `engine.on()` does. */
  on: Listen;
  /** Stores log lines. The engine waits for it when it stops, and publishes an error as `worker:error`. */
  appendLogs(entries: readonly NewLogEntry[]): void;
  /** A new UUIDv7. */
  newId(): string;
}
