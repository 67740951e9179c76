import type { EventOf } from "../event.ts";
import type { NewLogEntry } from "../log.ts";
import type { Plugin } from "./plugin.ts";

/**
 * A plugin that keeps what jobs log, so that `engine.getLogs()` answers it: `engine.use(persistLogs())`.
 *
 * A line is kept no later than the end of its run. Logs never change how a run goes: a line that the store could not
 * take is lost, and `worker:error` tells of it.
 */
export function persistLogs(): Plugin {
  return {
    name: "persist-logs",
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
