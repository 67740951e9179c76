import type { NewLogEntry } from "../model/log.ts";
import type { Around } from "../model/around.ts";
import type { Listen } from "../events/hub.ts";
import { kindOf, propertyOf } from "../values/unknown_values.ts";
import type { EventOf } from "../model/event.ts";

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

/** The name of the plugin that keeps log lines. */
export const PERSIST_LOGS = "persist-logs";

/**
 * A plugin that stores the log lines of jobs, so that `engine.getLogs()` returns them: `engine.use(persistLogs())`.
 *
 * A line is stored no later than the end of its run. Logs never affect a run: a line that could not be stored is
 * lost, and `worker:error` is published.
 *
 * @example
 * ```ts
 * import { createEngine, defineJob, MemoryStore, persistLogs } from "@holdfast/jobs";
 * import { z } from "zod";
 *
 * const count = defineJob({
 *   name: "count",
 *   input: z.object({ rows: z.number() }),
 *   run: (step, { rows }) => step.log.info("counted", { rows }),
 * });
 *
 * await using engine = createEngine({ store: new MemoryStore(), jobs: { count } });
 * engine.use(persistLogs());
 * const { id } = await engine.jobs.count.trigger({ rows: 3 });
 * await engine.runUntilIdle();
 * console.log((await engine.getLogs(id)).map(({ message }) => message)); // ["counted"]
 * ```
 */
export function persistLogs(): Plugin {
  return {
    name: PERSIST_LOGS,
    install: ({ on, appendLogs, newId }) => {
      on("log:write", (event) => appendLogs([toEntry(event, newId())]));
    },
  };
}

function toEntry(event: EventOf<"log:write">, id: string): NewLogEntry {
  const { runId, stepName, level, message, data, timestamp } = event;
  return {
    id,
    runId,
    stepName,
    level,
    message,
    data: data === null ? null : JSON.stringify(data),
    writtenAt: Date.parse(timestamp),
  };
}
