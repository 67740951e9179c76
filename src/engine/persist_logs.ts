import type { EventOf } from "../model/event.ts";
import type { NewLogEntry } from "../model/log.ts";
import type { Plugin } from "./plugin.ts";

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
