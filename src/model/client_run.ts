import type { FailureKind } from "./failure.ts";
import type { Held } from "./hold.ts";
import { isLeased, isTerminal, type Labels, type Progress, type Run, type RunStatus } from "./run.ts";
import type { Json } from "../values/json.ts";

/** A run as `/run` and `/runs` show it: {@linkcode toClientRun} makes it. */
export interface ClientRun {
  /** The run's id. */
  id: string;
  /** The name of its job. */
  jobName: string;
  /** Its status. */
  status: RunStatus;
  /** The input that was given to the trigger. */
  input: Json;
  /** What the job's function returned; `null` until the run has completed. */
  output: Json;
  /** Why it failed. */
  error?: string;
  /** The step that made it fail, with its occurrence. */
  failedStepName?: string;
  /** The latest stored progress. */
  progress?: Progress;
  /** Its labels. */
  labels: Labels;
  /** When it was triggered. */
  createdAt: string;
  /** Who triggered it, or retried the run of which it is a retry. */
  triggeredBy?: string;
  /** When its function was first called. */
  startedAt?: string;
  /** When it ended. */
  completedAt?: string;
  /** Who cancelled it. */
  cancelledBy?: string;
  /** Not claimed before this instant. */
  startAt?: string;
  /** From -1,000 to 1,000: higher ones are claimed first. Left out if it is 0. */
  priority?: number;
  /** It fails as `expired` if it has not started by then. */
  startBy?: string;
  /** It fails as `timeout` if it has not ended by then; known once it has started. */
  finishBy?: string;
  /** Why it failed. */
  failureKind?: FailureKind;
  /** The run that waits for it, or waited for it. */
  parentRunId?: string;
  /** The schedule that made it. */
  scheduleName?: string;
  /** The slot of its schedule. */
  slotAt?: string;
  /** Why no worker executes it. */
  held?: Held;
  /** The run after which it cleans up. */
  endOf?: string;
  /** The run that cleans up after it. */
  endRunId?: string;
  /** The run of which it is a retry. */
  retriggerOf?: string;
  /** Its newest retry. */
  retriggeredAs?: string;
  /** The first of its retries, or of theirs, that completed. The id stays when that run is deleted. */
  completedAs?: string;
  /** Whether it has ended. */
  isTerminal: boolean;
  /** Whether it is pending, leased or running. */
  isActive: boolean;
  /** Whether it is paused. */
  isWaiting: boolean;
}

/**
 * Converts a run for clients: leaves out its keys, its lease and stacks, and adds flags derived from its status.
 *
 * @example
 * ```ts
 * import { type Engine, notFound, toClientRun } from "@holdfast/jobs";
 *
 * export async function showRun(engine: Engine, runId: string): Promise<Response> {
 *   const run = await engine.getRun(runId);
 *   return run === null ? notFound() : Response.json(toClientRun(run));
 * }
 * ```
 */
export function toClientRun(run: Omit<Run, "input">): ClientRun {
  return {
    id: run.id,
    jobName: run.jobName,
    status: run.status,
    input: run.payload,
    output: run.output,
    ...withoutNull({ error: run.error, failedStepName: run.failedStepName, progress: run.progress }),
    labels: run.labels,
    createdAt: run.createdAt,
    ...withoutNull({
      triggeredBy: run.triggeredBy,
      startAt: run.startAt,
      priority: run.priority === 0 ? null : run.priority,
      startBy: run.startBy,
      startedAt: run.startedAt,
      finishBy: run.finishBy,
      completedAt: run.completedAt,
      cancelledBy: run.cancelledBy,
      failureKind: run.failureKind,
      parentRunId: run.parentRunId,
      scheduleName: run.scheduleName,
      slotAt: run.slotAt,
      held: run.held,
      endOf: run.endOf,
      endRunId: run.endRunId,
      retriggerOf: run.retriggerOf,
      retriggeredAs: run.retriggeredAs,
      completedAs: run.completedAs,
    }),
    isTerminal: isTerminal(run.status),
    isActive: run.status === "pending" || isLeased(run.status),
    isWaiting: run.status === "waiting",
  };
}

/** The fields that have a value. */
function withoutNull<T extends object>(fields: T): { [K in keyof T]?: NonNullable<T[K]> } {
  const known = Object.entries(fields).filter(([, value]) => value !== null && value !== undefined);
  return Object.fromEntries(known) as { [K in keyof T]?: NonNullable<T[K]> }; // the same names and values
}
