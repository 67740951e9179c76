import { ValidationError } from "../../model/error.ts";
import {
  DELAY_RULE,
  type Flow,
  isDelay,
  isPeriod,
  isPriority,
  type JobFlow,
  PERIOD_RULE,
  PRIORITY_RULE,
} from "../../model/flow.ts";
import { type Duration, toMs } from "../../values/duration.ts";
import { readInstant } from "../../values/instant.ts";
import { checkName } from "../../values/name.ts";
import type { Labels, StoredRun } from "../../model/run.ts";
import type { NewRun } from "../../store/new_run.ts";
import type { Deadline } from "../../model/wait.ts";

/** Options of a trigger that say when and in which order the run is executed. */
export interface FlowOptions {
  /**
   * Not claimed before this instant: a `Date`, or ISO 8601 with a time zone; a date alone is its midnight in UTC. An
   * instant in the past is now. It cannot be combined with `delay` or `coalesce`. Default: at once.
   */
  startAt?: Date | string;
  /** The same as `startAt`, as a duration from now, in whole milliseconds. */
  delay?: Duration;
  /**
   * From -1,000 to 1,000. A run is claimed before runs of a lower priority, unless more than 100,000 runs and steps were
   * stored in between for each point of the difference. Default: that of the job.
   */
  priority?: number;
  /**
   * Runs with different keys take turns; the runs without a key form one group, which takes turns, too. 1 to 255 characters. Default: the
   * value of the label `fairnessLabel` of the engine, if the run has it.
   */
  fairnessKey?: string;
  /**
   * If the run has not started this long after it was due, it fails as `expired`: a duration of at least a millisecond.
   * Default: that of the job.
   */
  startWithin?: Duration;
  /**
   * If the run has not ended this long after its first start, it fails as `timeout`: a duration of at least a millisecond.
   * Pauses count. Default: that of the job.
   */
  finishWithin?: Duration;
}

/** The run that a trigger asks for, as far as its flow depends on it. */
interface Flowing {
  /** The flow of its job. */
  job: JobFlow;
  /** Its labels. */
  labels: Labels;
  /** Whether it has a concurrency key. */
  hasKey: boolean;
  /** The label whose value is its default fairness key; `null`: none. */
  fairnessLabel: string | null;
}

/**
 * Checks the options of a trigger, and completes them with the defaults of the job.
 *
 * @throws {ValidationError} An option is not valid.
 */
export function triggerFlow(options: FlowOptions, { job, labels, hasKey, fairnessLabel }: Flowing): Flow {
  const { priority = job.priority, fairnessKey } = options;
  const startWithin = readPeriod(options.startWithin ?? job.startWithin, "startWithin");
  const finishWithin = readPeriod(options.finishWithin ?? job.finishWithin, "finishWithin");
  check(priority, "priority", isPriority, PRIORITY_RULE);
  if (fairnessKey !== undefined) checkName(fairnessKey, "fairnessKey");
  return {
    start: readStart(options),
    priority: priority + 0, // never -0, which JSON does not keep
    fairnessKey: fairnessKey ?? labelOf(labels, fairnessLabel),
    startWithin,
    finishWithin,
    ...keyLimits(job, hasKey),
  };
}

/** What a host sets of a trigger, instead of what its sender asks for. What is left out stays as it is. */
export interface TriggerKeys {
  /** Runs with this key, of any job, are executed one after another. */
  concurrencyKey?: string;
  /** Runs with different keys take turns. */
  fairnessKey?: string;
  /** From -1,000 to 1,000: higher ones are claimed first. */
  priority?: number;
}

/** The run that a trigger asks for, with what the host has set. */
export function withKeys(run: NewRun, keys: TriggerKeys, job: JobFlow): NewRun {
  const { concurrencyKey = run.concurrencyKey, fairnessKey = run.flow.fairnessKey, priority = run.flow.priority } =
    keys;
  return {
    ...run,
    concurrencyKey,
    flow: { ...run.flow, ...keyLimits(job, concurrencyKey !== null), fairnessKey, priority: priority + 0 },
  };
}

/**
 * The flow of a retry: the priority, the fairness key and the deadlines of the old run, from now on. How long the old run
 * was allowed to take is known once it has started; otherwise the retry has the `finishWithin` of the job. The limits of
 * the key are those of the job's code.
 */
export function retryFlow(old: StoredRun, { job, hasKey }: Pick<Flowing, "job" | "hasKey">): Flow {
  const due = old.startAt === null || old.startAt < old.createdAt ? old.createdAt : old.startAt;
  return {
    start: null,
    priority: old.priority,
    fairnessKey: old.fairnessKey,
    startWithin: msBetween(due, old.startBy),
    finishWithin: old.startedAt === null ? job.finishWithin : msBetween(old.startedAt, old.finishBy),
    ...keyLimits(job, hasKey),
  };
}

function keyLimits({ keyConcurrency, keyRate }: JobFlow, hasKey: boolean): Pick<Flow, "keyConcurrency" | "keyRate"> {
  return hasKey ? { keyConcurrency, keyRate } : { keyConcurrency: 1, keyRate: null };
}

function readStart({ startAt, delay }: FlowOptions): Deadline {
  if (startAt !== undefined && delay !== undefined) throw new ValidationError("startAt and delay exclude each other");
  if (startAt !== undefined) return { at: readInstant(startAt, "startAt") };
  if (delay === undefined) return null;
  const afterMs = toMs(delay) as number; // checked next
  check(afterMs, "delay", isDelay, DELAY_RULE);
  return { afterMs };
}

function readPeriod(duration: Duration | null, name: string): number | null {
  const ms = toMs(duration) as number | null; // checked next
  if (ms !== null) check(ms, name, isPeriod, PERIOD_RULE);
  return ms;
}

/** The value of a label; `null` without it, or if it is empty. */
function labelOf(labels: Labels, label: string | null): string | null {
  if (label === null || !Object.hasOwn(labels, label)) return null;
  return labels[label] || null;
}

/** How long after an instant another one is, in milliseconds; `null` without the other. */
function msBetween(from: string, to: string | null): number | null {
  return to === null ? null : Math.max(1, Date.parse(to) - Date.parse(from));
}

function check(value: unknown, name: string, isValid: (value: unknown) => boolean, rule: string): void {
  if (!isValid(value)) throw new ValidationError(`${name} ${rule}`);
}
