import type { Failure } from "./failure.ts";
import { type Json, type JsonText, parseValue, type Stored } from "./json.ts";

/** How a recorded step ended. One between two attempts shows `failed` and no `completedAt`. */
export type StepStatus = "completed" | "failed" | "cancelled";

/** A recorded step. Times are ISO 8601 in UTC. */
export interface Step {
  /** The run's id and the step's name: the same for every attempt. */
  id: string;
  /** The run that it is a part of. */
  runId: string;
  /** Its name, with its occurrence from the second on (`fetch#2`). */
  name: string;
  /** Its place among the run's steps, in the order in which they were first started, from 0. */
  index: number;
  /** How it ended. */
  status: StepStatus;
  /** What its function returned; `null` also for `undefined`. */
  output: Json;
  /** The message of what its function threw. */
  error: string | null;
  /** What its function threw, with its stack; `null` if it has not failed. It never leaves the process. */
  failure: Failure | null;
  /** How many attempts have ended. */
  attempts: number;
  /** When its first recorded attempt began. */
  startedAt: string;
  /** When it ended. */
  completedAt: string | null;
}

/** The fields of a step that can have any value, of any size. */
export const STEP_VALUES = ["output"] as const;

/** A recorded step whose output is as it is stored. */
export type StepText = Stored<Step, "output">;

/** A recorded step with its output. */
export function parseStep(step: StepText): Step {
  return { ...step, output: parseValue(step.output) };
}

/** A recorded step as `/steps` shows it: {@linkcode toClientStep} makes it. */
export type ClientStep = Omit<Step, "failure">;

/** Leaves out of a step what is not for clients: stacks. */
export function toClientStep(step: Step): ClientStep {
  const { id, runId, name, index, status, output, error, attempts, startedAt, completedAt } = step;
  return { id, runId, name, index, status, output, error, attempts, startedAt, completedAt };
}

/** How one attempt at a step ended, as a worker records it. */
export interface StepWrite {
  /** Its name, with its occurrence. */
  name: string;
  /** Its place among the run's steps. */
  index: number;
  /** How many attempts have ended, with this one. */
  attempts: number;
  /** How long ago this attempt began, in milliseconds: clocks differ, so the store works out when that was. */
  startedAgoMs: number;
  /** How it ended. After `retrying` another attempt follows, not before `delayMs` have passed. */
  result:
    | { status: "completed"; output: JsonText | null }
    | { status: "failed"; failure: Failure }
    | { status: "retrying"; failure: Failure; delayMs: number };
}

/** What became of an attempt that was recorded. */
export interface SavedStep {
  /** Its place among everything that was recorded in the run. */
  recordedNo: number;
  /** When the next attempt may begin, and how long until then; `null` if there is none. */
  retry: RetryTime | null;
}

/** When another attempt at a step may begin. Clocks differ, so a worker goes by the time that is left. */
export interface RetryTime {
  /** An instant of the store's clock: to show, and to hand back to the store. */
  at: number;
  /** How many milliseconds are left. */
  inMs: number;
}

/** A step that is being executed at this moment. */
export type ExecutingStep = Pick<StepWrite, "name" | "index" | "attempts" | "startedAgoMs">;

/** A recorded step, as a replay needs it. */
export interface StepRecord {
  /** Its name, with its occurrence. */
  name: string;
  /** Its place among the run's steps. */
  index: number;
  /** How many attempts have ended. */
  attempts: number;
  /** How the last one ended. */
  result:
    | { status: "completed"; output: JsonText | null }
    | { status: "failed"; failure: Failure }
    | { status: "retrying"; failure: Failure; retry: RetryTime };
  /** Its place among everything that was recorded in the run: a replay delivers results in this order. */
  recordedNo: number;
}

/** The time that is left until an instant of the store's clock. */
export function retryTime(at: number, now: number): RetryTime {
  return { at, inMs: Math.max(0, at - now) };
}

/** When an attempt that is recorded `now` began, by the store's clock. */
export function startedAt({ startedAgoMs }: Pick<StepWrite, "startedAgoMs">, now: number): number {
  return now - Math.round(startedAgoMs);
}

/** Names a step of a run for the outside world: the same in every attempt and every execution. */
export function stepId(runId: string, name: string): string {
  return `${runId}/${name}`;
}
