import type { Deadline } from "./wait.ts";

/** At most `limit` runs start in any `period`. A start is the first claim of a run. */
export interface Rate {
  /** The number of starts: an integer from 1. */
  limit: number;
  /** The length of the window, in milliseconds: an integer from 1. */
  period: number;
}

/** Limits of a job, over all workers. A worker applies those of its own code. */
export interface JobLimits {
  /** The maximum number of runs of the job that are executed at the same time. Default: no limit. */
  concurrency?: number;
  /** The maximum rate of starts. Default: no limit. */
  rate?: Rate;
  /** Limits for the runs of each concurrency key. */
  perKey?: KeyLimits;
}

/** Limits for the runs that share a concurrency key. */
export interface KeyLimits {
  /** The maximum number of runs of the key that are executed at the same time. Default 1. */
  concurrency?: number;
  /** The maximum rate of starts. Default: no limit. */
  rate?: Rate;
}

/** When, in which order and under which limits a run is executed, as a store keeps it. Durations are in milliseconds. */
export interface Flow {
  /** Not claimed before this instant; `null`: at once. */
  start: Deadline;
  /** From -1,000 to 1,000: higher ones are claimed first. */
  priority: number;
  /** Runs with different keys take turns; `null`: the run has none. All runs without one take turns as one key. */
  fairnessKey: string | null;
  /** It fails as `expired` if it has not started this long after it was due; `null`: without limit. */
  startWithin: number | null;
  /** It fails as `timeout` if it has not ended this long after its first start; `null`: without limit. */
  finishWithin: number | null;
  /** How many runs may hold its concurrency key while this one is executed, itself included. */
  keyConcurrency: number;
  /** The rate of starts of its concurrency key; `null`: without limit. */
  keyRate: Rate | null;
}

/** The flow of a run that uses none of it. */
export const PLAIN_FLOW: Flow = Object.freeze({
  start: null,
  priority: 0,
  fairnessKey: null,
  startWithin: null,
  finishWithin: null,
  keyConcurrency: 1,
  keyRate: null,
});

/** The largest priority; the smallest is its negative. */
export const MAX_PRIORITY = 1_000;

/** A priority of one more is a head start of this many numbers of the sequence of triggers. */
export const POSITIONS_PER_PRIORITY = 100_000;

/** The place of a run in the order in which runs are claimed: lower ones first. */
export function positionOf(seq: number, priority: number): number {
  return seq - POSITIONS_PER_PRIORITY * priority;
}

/** A job that a worker knows, with the limits in its code. */
export interface KnownJob {
  /** The job's name. */
  name: string;
  /** How many runs may be executed at the same time, over all workers; `null`: without limit. */
  concurrency: number | null;
  /** The rate of starts, over all workers; `null`: without limit. */
  rate: Rate | null;
}
