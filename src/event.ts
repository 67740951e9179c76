import type { Json } from "./json.ts";
import type { LogLevel } from "./log.ts";
import type { Labels, Progress, RunStatus } from "./run.ts";

/**
 * What happened to a run. An event about a write is sent after the write was committed, never before.
 *
 * `thrown` is what was thrown itself. It is there in the process that executed the run, and never leaves it.
 */
export type RunHappening =
  | { type: "run:trigger"; input: Json }
  | { type: "run:coalesced"; status: RunStatus; skippedInput: Json; skippedLabels: Labels }
  | { type: "run:leased"; leaseOwner: string; leaseExpiresAt: string }
  | { type: "run:lease-renewed"; leaseOwner: string; leaseExpiresAt: string }
  | { type: "run:start"; execution: number }
  | { type: "run:waiting"; waitId: string | null; waitName: string; deadlineAt: string | null }
  | { type: "run:progress"; progress: Progress }
  | { type: "run:complete"; output: Json; duration: number }
  | { type: "run:fail"; error: string; failedStepName: string | null; thrown?: unknown }
  | { type: "run:cancel" }
  | { type: "run:retry"; newRunId: string }
  | { type: "run:delete" }
  | { type: "step:start"; stepName: string; stepIndex: number; attempt: number }
  | { type: "step:complete"; stepName: string; stepIndex: number; output: Json; duration: number }
  | {
    type: "step:fail";
    stepName: string;
    stepIndex: number;
    attempt: number;
    error: string;
    retryAt: string | null;
    thrown?: unknown;
  }
  | { type: "step:cancel"; stepName: string; stepIndex: number }
  | { type: "log:write"; stepName: string | null; level: LogLevel; message: string; data: Json };

/** What every event of a run carries. */
export interface RunEventBase {
  /** The run. */
  runId: string;
  /** The name of its job. */
  jobName: string;
  /** Its labels. */
  labels: Labels;
  /** When it was said: ISO 8601 in UTC. */
  timestamp: string;
  /** Rises within one engine; it is no cursor. */
  sequence: number;
}

/** Something that happened to a run. Durations are in milliseconds. */
export type RunEvent = RunEventBase & RunHappening;

/** Something went wrong in the worker itself, not in a run; it goes on trying. Heard in process only. */
export interface WorkerErrorEvent {
  /** Which event it is. */
  type: "worker:error";
  /** What went wrong. */
  error: unknown;
  /** When it was said: ISO 8601 in UTC. */
  timestamp: string;
  /** Rises within one engine. */
  sequence: number;
}

/** Whatever an engine says. */
export type EngineEvent = RunEvent | WorkerErrorEvent;

/** The names of all events. */
export type EventType = EngineEvent["type"];

/** The event of one name. */
export type EventOf<T extends EventType> = Extract<EngineEvent, { type: T }>;

/** Whether nothing more is to come after this event, for whoever follows its run. */
export function isLastEvent(event: RunEvent): boolean {
  return event.type === "run:complete" || event.type === "run:fail" || event.type === "run:cancel" ||
    event.type === "run:delete";
}
