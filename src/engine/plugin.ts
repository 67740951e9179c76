import type { NewLogEntry } from "../log.ts";
import type { Around } from "../around.ts";
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
  /**
   * Stores log lines. An error is published as `worker:error`. When the engine stops, it waits half a second at most
   * for lines that are not stored yet.
   */
  appendLogs(entries: readonly NewLogEntry[]): void;
  /** A new UUIDv7. */
  newId(): string;
  /**
   * Does something around triggers, executions, steps and signals: begin a span, for example. The functions of the
   * plugin that was used first are the outermost.
   *
   * @throws {TypeError} A name is unknown, or what it names is no function.
   */
  around(around: Around): void;
}
