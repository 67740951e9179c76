import type { FailureKind } from "./failure.ts";
import type { HoldCode, RecordName, StrandedJob } from "./hold.ts";
import type { Json } from "../values/json.ts";
import type { LogLevel } from "./log.ts";
import type { Labels, Progress, RunStatus } from "./run.ts";

/**
 * What happened to a run. An event about a write is published after the write is committed, never before.
 *
 * `by` is who did it; `null`: nobody said so.
 *
 * `thrown` is the thrown value itself. It is set only in the process that executed the run, and never leaves it.
 */
export type RunHappening =
  | {
    type: "run:trigger";
    input: Json;
    startAt: string | null;
    parentRunId: string | null;
    scheduleName: string | null;
    slotAt: string | null;
    by: string | null;
  }
  | { type: "run:coalesced"; status: RunStatus; skippedInput: Json; skippedLabels: Labels }
  | { type: "run:leased"; leaseOwner: string; leaseExpiresAt: string }
  | { type: "run:lease-renewed"; leaseOwner: string; leaseExpiresAt: string }
  | { type: "run:start"; execution: number }
  | { type: "run:waiting"; waitId: string | null; waitName: string; deadlineAt: string | null }
  | { type: "run:hold"; code: HoldCode; message: string }
  | { type: "run:resume"; by: string | null }
  | { type: "run:diverged"; isNew: readonly RecordName[]; unasked: readonly RecordName[] }
  | { type: "run:progress"; progress: Progress; of?: "children" }
  | { type: "run:complete"; output: Json; duration: number }
  | { type: "run:fail"; error: string; failedStepName: string | null; failureKind: FailureKind; thrown?: unknown }
  | { type: "run:cancel"; by: string | null }
  | { type: "run:retry"; newRunId: string; by: string | null }
  | { type: "run:delete"; by: string | null }
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

/** The fields of every event of a run. */
export interface RunEventBase {
  /** The run. */
  runId: string;
  /** The name of its job. */
  jobName: string;
  /** Its labels. */
  labels: Labels;
  /** When it happened: ISO 8601 in UTC. */
  timestamp: string;
  /**
   * Increases from one event to the next, in each stream and in what `engine.on()` publishes. The numbers of the two
   * differ, and neither is a cursor.
   */
  sequence: number;
}

/** Something that happened to a run. Durations are in milliseconds. */
export type RunEvent = RunEventBase & RunHappening;

/** An error in the worker itself, not in a run; the worker continues. Published in this process only. */
export interface WorkerErrorEvent {
  /** The event's name. */
  type: "worker:error";
  /** What was thrown. */
  error: unknown;
  /** When it happened: ISO 8601 in UTC. */
  timestamp: string;
  /** Increases from one event of the engine to the next. */
  sequence: number;
}

/** Slots of a schedule that passed without a run. */
export interface ScheduleSkip {
  /** The name of the schedule. */
  scheduleName: string;
  /** The slot, or the first of several: ISO 8601 in UTC. */
  slotAt: string;
  /** A run of the schedule had not ended (`overlap`), or the slots were found too late (`late`). */
  reason: "overlap" | "late";
  /** How many slots were skipped. */
  skipped: number;
}

/** This engine has skipped slots of a schedule. Published in this process only. */
export interface ScheduleSkipEvent extends ScheduleSkip {
  /** The event's name. */
  type: "schedule:skip";
  /** When it happened: ISO 8601 in UTC. */
  timestamp: string;
  /** Increases from one event of the engine to the next. */
  sequence: number;
}

/** What happened to a job: it was paused, by whom and why (`null`: nobody said so), or its pause ended. */
export type JobHappening =
  | { type: "job:pause"; jobName: string; by: string | null; note: string | null }
  | { type: "job:resume"; jobName: string };

/** Something that this engine did to a job. Published in this process only. */
export type JobEvent = JobHappening & {
  /** When it happened: ISO 8601 in UTC. */
  timestamp: string;
  /** Increases from one event of the engine to the next. */
  sequence: number;
};

/** Open runs have a job or version that no live worker knows. Published in this process only, once a minute. */
export interface WorkerStrandedEvent {
  /** The event's name. */
  type: "worker:stranded";
  /** The jobs and versions. */
  jobs: readonly StrandedJob[];
  /** When they were found: ISO 8601 in UTC. */
  timestamp: string;
  /** Increases from one event of the engine to the next. */
  sequence: number;
}

/** Any event that an engine publishes. */
export type EngineEvent = RunEvent | WorkerStrandedEvent | JobEvent | ScheduleSkipEvent | WorkerErrorEvent;

/** The name of any event. */
export type EventType = EngineEvent["type"];

/** The event with a given name. */
export type EventOf<T extends EventType> = Extract<EngineEvent, { type: T }>;

/** Whether this is the last event of its run. */
export function isLastEvent({ type }: Pick<RunEvent, "type">): boolean {
  return type === "run:complete" || type === "run:fail" || type === "run:cancel" || type === "run:delete";
}
