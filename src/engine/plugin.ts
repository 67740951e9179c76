import type { NewLogEntry } from "../model/log.ts";
import type { Around } from "../model/around.ts";
import type { Listen } from "../events/hub.ts";
import { kindOf } from "../values/kind_of.ts";
import { propertyOf } from "../values/property_of.ts";

/** Adds something to an engine: `engine.use(plugin)`. */
export interface Plugin {
  /** The plugin's name; an engine uses a plugin of the same name only once. */
  name: string;
  /** Called once, by `engine.use()`. */
  install(context: PluginContext): void;
}

/**
 * Checks what `engine.use()` is given.
 *
 * @throws {TypeError} It is no plugin.
 */
export function checkPlugin(value: unknown): void {
  if (typeof propertyOf(value, "name") === "string" && typeof propertyOf(value, "install") === "function") return;
  throw new TypeError(`use() needs a plugin: an object with a name and a function install, not ${kindOf(value)}`);
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
