import type { Json } from "./json.ts";
import type { LogLevel } from "./log.ts";
import type { Progress } from "./run.ts";

/**
 * Something that an execution says and does not record: that a step begins, how far it has come, a log line. It is
 * written together with the next write under the lease, so that nothing is said after the lease was lost or the run has
 * ended.
 */
export type Report =
  & {
    /** Its number among the reports of this execution, from 1: a store keeps each once, however often it is sent. */
    no: number;
    /** When it was made: an instant of the worker's clock. */
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
