import { undoneAs } from "./end.ts";
import type { Failure } from "./failure.ts";
import type { Chunk } from "./stream.ts";
import { type Json, type JsonText, parseValue, type Stored } from "../values/json.ts";

/** How a recorded step ended. A step between two attempts is `failed` without a `completedAt`. */
export type StepStatus = "completed" | "failed" | "cancelled";

/** A recorded step. Times are ISO 8601 in UTC. */
export interface Step {
  /** The run's id and the step's name: the same for every attempt. */
  id: string;
  /** The run that it belongs to. */
  runId: string;
  /** Its name, with its occurrence from the second on (`fetch#2`). */
  name: string;
  /** Its index among the run's steps, in the order of their first start, from 0. */
  index: number;
  /** How it ended. */
  status: StepStatus;
  /** What its function returned; `null` also for `undefined`. */
  output: Json;
  /** The message of what its function threw. */
  error: string | null;
  /** Its failure, with the stack; `null` if it has not failed. It never leaves the process. */
  failure: Failure | null;
  /** How many attempts have ended. */
  attempts: number;
  /** When its first recorded attempt began. */
  startedAt: string;
  /** When it ended. */
  completedAt: string | null;
}

/** The fields of a step that hold JSON values. */
export const STEP_VALUES = ["output"] as const;

/** A recorded step with its output as stored JSON. */
export type StepText = Stored<Step, "output">;

/** Parses the output of a stored step. */
export function parseStep(step: StepText): Step {
  return { ...step, output: parseValue(step.output) };
}

/** A recorded step as `/steps` shows it: {@linkcode toClientStep} makes it. */
export type ClientStep = Omit<Step, "failure">;

/** Converts a step for clients: leaves out the stack. */
export function toClientStep(step: Step): ClientStep {
  const { id, runId, name, index, status, output, error, attempts, startedAt, completedAt } = step;
  return { id, runId, name, index, status, output, error, attempts, startedAt, completedAt };
}

/** How one attempt at a step ended, as a worker records it. */
export interface StepWrite {
  /** Its name, with its occurrence. */
  name: string;
  /** Its index among the run's steps. */
  index: number;
  /** How many attempts have ended, including this one. */
  attempts: number;
  /** How long ago this attempt began, in milliseconds: clocks differ, so the store computes the instant. */
  startedAgoMs: number;
  /** How it ended. After `retrying` another attempt follows, not before `delayMs` have passed. */
  result:
    | { status: "completed"; output: JsonText | null }
    | { status: "failed"; failure: Failure }
    | { status: "retrying"; failure: Failure; delayMs: number };
  /** What the attempt has written to streams and no other write has stored, and what its end changes in them. */
  chunks?: readonly Chunk[];
}

/** The store's answer to a recorded attempt. */
export interface SavedStep {
  /** Its position among all records of the run. */
  recordedNo: number;
  /** When the next attempt may begin; `null` if there is none. */
  retry: RetryTime | null;
}

/** When another attempt at a step may begin. Clocks differ, so a worker uses the remaining time. */
export interface RetryTime {
  /** By the store's clock: for display, and for later calls to the store. */
  at: number;
  /** The remaining time, in milliseconds. */
  inMs: number;
}

/** A step that is being executed now. */
export type ExecutingStep = Pick<StepWrite, "name" | "index" | "attempts" | "startedAgoMs">;

/** A recorded step, as a replay needs it. */
export interface StepRecord extends Pick<StepWrite, "name" | "index" | "attempts"> {
  /** How the last attempt ended. */
  result:
    | { status: "completed"; output: JsonText | null }
    | { status: "failed"; failure: Failure }
    | { status: "retrying"; failure: Failure; retry: RetryTime };
  /** Its position among all records of the run: a replay delivers results in this order. */
  recordedNo: number;
}

/** The remaining time until an instant of the store's clock. */
export function retryTime(at: number, now: number): RetryTime {
  return { at, inMs: Math.max(0, at - now) };
}

/** When an attempt that is recorded `now` began, by the store's clock. */
export function startedAt({ startedAgoMs }: Pick<StepWrite, "startedAgoMs">, now: number): number {
  return now - Math.round(startedAgoMs);
}

/** The id of a step. */
export function stepId(runId: string, name: string): string {
  return `${runId}/${name}`;
}

/**
 * The idempotency key of a step for external systems: the same in every attempt, every execution and every retry from
 * the failure, until an end run has undone the step.
 *
 * @param originId The first run of the chain of retries.
 * @param undone The end run that has undone a step, by its name; left out: none was undone.
 */
export function idempotencyKeyOf(
  name: string,
  originId: string,
  undone?: { readonly [name: string]: string },
): string {
  if (undone === undefined) return stepId(originId, name);
  const known = undoneAs(name);
  return stepId(Object.hasOwn(undone, known) ? undone[known]! : originId, name);
}
