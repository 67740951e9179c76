import type { Json } from "../values/json.ts";
import type { LogLevel } from "./log.ts";
import type { Progress } from "./run.ts";

/**
 * Something that an execution reports without recording it: the start of a step, progress, a log line. It is sent
 * with the next write under the lease, so that nothing is published after the lease is lost or the run has ended.
 */
export type Report =
  & {
    /** Its number among the reports of this execution, from 1: a store keeps each once, even if it is sent again. */
    no: number;
    /** When it was made, by the worker's clock. */
    at: number;
  }
  & (
    | { kind: "start"; stepName: string; stepIndex: number; attempt: number }
    | { kind: "progress"; progress: Progress }
    | { kind: "log"; stepName: string | null; level: LogLevel; message: string; data: Json }
  );

/** The latest progress among reports; `null` if there is none. */
export function latestProgress(reports: readonly Report[]): Progress | null {
  const latest = reports.findLast((report) => report.kind === "progress");
  return latest?.kind === "progress" ? latest.progress : null;
}
