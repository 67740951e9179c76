import { kindOf } from "../values/unknown_values.ts";
import { type Duration, toMs } from "../values/duration.ts";
import { checkOptionNames } from "../values/option_names.ts";
import type { Deadline } from "./wait.ts";

/** At most `limit` runs start in any `period`. A start is the first claim of a run. */
export interface Rate {
  /** The number of starts: an integer from 1. */
  limit: number;
  /** The length of the window, in milliseconds: an integer from 1. */
  period: number;
}

/** A rate, as the definition of a job has it. */
export interface RateLimit extends Omit<Rate, "period"> {
  /** The length of the window. */
  period: Duration;
}

/** Limits of a job, over all workers. A worker applies those of its own code. */
export interface JobLimits {
  /** The maximum number of runs of the job that are executed at the same time. Default: no limit. */
  concurrency?: number;
  /** The maximum rate of starts. Default: no limit. */
  rate?: RateLimit;
  /** Limits for the runs of each concurrency key. */
  perKey?: KeyLimits;
}

/** Limits for the runs that share a concurrency key. */
export interface KeyLimits {
  /** The maximum number of runs of the key that are executed at the same time. Default 1. */
  concurrency?: number;
  /** The maximum rate of starts. Default: no limit. */
  rate?: RateLimit;
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

/** A version of a job that a worker knows, with the limits in its code. */
export interface KnownJob {
  /** The job's name, or one of its aliases. */
  name: string;
  /** All names of the job: limits and rates count the runs of all of them. The first one identifies the job. */
  names: readonly [string, ...string[]];
  /** The version of the runs that the worker takes: an integer from 1. */
  version: number;
  /** The print of the code that executes them. */
  print: string;
  /** How many runs may be executed at the same time, over all workers; `null`: without limit. */
  concurrency: number | null;
  /** The rate of starts, over all workers; `null`: without limit. */
  rate: Rate | null;
}

/** The rule of {@linkcode isPriority}, for messages. */
export const PRIORITY_RULE = "must be an integer from -1,000 to 1,000";

/** Whether a value can be a priority. */
export function isPriority(value: unknown): value is number {
  return Number.isInteger(value) && Math.abs(value as number) <= MAX_PRIORITY; // an integer is a number
}

// About 100 years: the sum of an instant and a few durations is still a date.
const LONGEST_MS = 3_155_760_000_000;

/** The rule of {@linkcode isPeriod}, for messages. */
export const PERIOD_RULE = `must be an integer from 1 to ${
  LONGEST_MS.toLocaleString("en-US")
}, in milliseconds, or a duration such as "30s", "5m" or "2 days"`;

/** What the option `idempotencyUntil` of a trigger can be, for messages. */
export const IDEMPOTENCY_UNTIL_RULE = `must be "forever", "ended" or "failed", or it ${PERIOD_RULE}`;

/** Whether a value can be the length of a window, or the time within which a run has to start or to end. */
export function isPeriod(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= 1 && (value as number) <= LONGEST_MS; // an integer is a number
}

/** The rule of {@linkcode isDelay}, for messages. */
export const DELAY_RULE = PERIOD_RULE.replace("from 1", "from 0");

/** Whether a value can be the delay of a start. */
export function isDelay(value: unknown): value is number {
  return value === 0 || isPeriod(value);
}

/** What a job says about the flow of its runs. Durations are in milliseconds. */
export interface JobFlow {
  /** The priority of its triggers that have none. */
  readonly priority: number;
  /** The `startWithin` of its triggers that have none; `null`: without limit. */
  readonly startWithin: number | null;
  /** The `finishWithin` of its triggers that have none; `null`: without limit. */
  readonly finishWithin: number | null;
  /** How many of its runs may be executed at the same time, over all workers; `null`: without limit. */
  readonly concurrency: number | null;
  /** The rate of its starts, over all workers; `null`: without limit. */
  readonly rate: Rate | null;
  /** How many runs may hold the concurrency key of one of its runs while that one is executed. */
  readonly keyConcurrency: number;
  /** The rate of starts of the concurrency keys of its runs; `null`: without limit. */
  readonly keyRate: Rate | null;
}

/** What the definition of a job can say about the flow of its runs. */
export interface FlowDefinition {
  /** The priority of its runs, from -1,000 to 1,000: higher ones are claimed first. Default 0. */
  priority?: number;
  /**
   * A run that has not started this long after it was due fails as `expired`. Default: no limit.
   */
  startWithin?: Duration;
  /**
   * A run that has not ended this long after its first start fails as `timeout`; pauses count. Default:
   * no limit.
   */
  finishWithin?: Duration;
  /** How many runs may be executed at the same time, and how many may start in a period. Default: no limits. */
  limits?: JobLimits;
}

const LIMITS: Record<keyof JobLimits, true> = { concurrency: true, rate: true, perKey: true };
const KEY_LIMITS: Record<keyof KeyLimits, true> = { concurrency: true, rate: true };
const RATE: Record<keyof RateLimit, true> = { limit: true, period: true };

/**
 * Checks and copies what the definition of a job says about flow.
 *
 * @param job The job, for messages: `job "resize"`.
 * @throws {TypeError} An option is unknown, or has the wrong type.
 * @throws {RangeError} A number is out of range.
 */
export function readJobFlow(
  { priority, startWithin, finishWithin, limits = {} }: FlowDefinition,
  job: string,
): JobFlow {
  const within = { start: toMs(startWithin), finish: toMs(finishWithin) };
  checkOptionNames(limits, LIMITS, `limits of ${job}`);
  const { concurrency, rate, perKey = {} } = limits;
  checkOptionNames(perKey, KEY_LIMITS, `limits.perKey of ${job}`);
  check(priority, `The priority of ${job}`, isPriority, PRIORITY_RULE);
  check(within.start, `startWithin of ${job}`, isPeriod, PERIOD_RULE);
  check(within.finish, `finishWithin of ${job}`, isPeriod, PERIOD_RULE);
  check(concurrency, `limits.concurrency of ${job}`, isCount, COUNT_RULE);
  check(perKey.concurrency, `limits.perKey.concurrency of ${job}`, isCount, COUNT_RULE);
  return Object.freeze({
    priority: (priority ?? 0) + 0, // never -0, which JSON does not keep
    startWithin: within.start as number | undefined ?? null, // checked above, like the other
    finishWithin: within.finish as number | undefined ?? null,
    concurrency: concurrency ?? null,
    rate: readRate(rate, `limits.rate of ${job}`),
    keyConcurrency: perKey.concurrency ?? 1,
    keyRate: readRate(perKey.rate, `limits.perKey.rate of ${job}`),
  });
}

function readRate(rate: RateLimit | undefined, subject: string): Rate | null {
  if (rate === undefined) return null;
  checkOptionNames(rate, RATE, subject);
  const { limit } = rate;
  const period = toMs(rate.period) as number; // checked below
  for (const [name, value] of Object.entries({ limit, period })) {
    if (value === undefined) throw new TypeError(`${subject} needs ${name}`);
  }
  check(limit, `${subject}: limit`, isCount, COUNT_RULE);
  check(period, `${subject}: period`, isPeriod, PERIOD_RULE);
  return Object.freeze({ limit, period });
}

const COUNT_RULE = "must be an integer from 1";

function isCount(value: unknown): boolean {
  return Number.isSafeInteger(value) && (value as number) >= 1; // an integer is a number
}

function check(value: unknown, subject: string, isValid: (value: unknown) => boolean, rule: string): void {
  if (value === undefined || isValid(value)) return;
  if (typeof value !== "number") throw new TypeError(`${subject} ${rule}, not ${kindOf(value)}`);
  throw new RangeError(`${subject} ${rule}, not ${value}`);
}
