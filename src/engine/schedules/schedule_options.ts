import type { Job } from "../../model/job.ts";
import type { ScheduleSlot } from "../../model/job/step_calls.ts";
import { ConflictError } from "../../model/error.ts";
import { decode, encode, type Json, type JsonText } from "../../values/json.ts";
import { kindOf } from "../../values/unknown_values.ts";
import { withoutUndefined } from "../../values/without_undefined.ts";
import { checkName } from "../../values/name.ts";
import { checkOptionNames, namesOf } from "../../values/option_names.ts";
import type { Labels } from "../../model/run.ts";
import type { TriggerOptions } from "../triggers/new_run.ts";
import { Calendar } from "./calendar.ts";

/**
 * Which slots are fired that passed while no engine looked: the newest, however old (`last`); none, but for one that is
 * found within 60 seconds (`none`); the newest 100 (`all`). The others are counted as skipped.
 */
export type CatchUp = "last" | "none" | "all";

/** What a slot does while a run of the schedule has not ended: nothing (`skip`), or it adds a run (`allow`). */
export type Overlap = "skip" | "allow";

/** The options of a trigger that a schedule can have. */
export type ScheduledTriggerOptions<L = Labels> = Omit<
  TriggerOptions<L>,
  "idempotencyKey" | "idempotencyUntil" | "startAt" | "delay" | "by"
>;

/** When a schedule fires. */
export interface ScheduleTiming {
  /**
   * A pattern of five fields (minute, hour, day, month, weekday), of six with seconds in front, or of seven with the
   * year at the end; or a nickname such as `@daily`. If both day and weekday are restricted, either may match.
   */
  cron: string;
  /** The zone whose clock the pattern reads, such as `Europe/Berlin`. Default `UTC`. */
  timezone?: string;
  /** Which slots are fired that passed while no engine looked. Default `last`. */
  catchUp?: CatchUp;
  /** What a slot does while a run of the schedule has not ended. Default `skip`. */
  overlap?: Overlap;
}

/** A schedule: a job, its input, when it is triggered, and options of the trigger. */
export type ScheduleOptions<Input = unknown, L = Labels> = ScheduleTiming & ScheduledTriggerOptions<L> & {
  /** The job, or its name. */
  job: Job<Input> | string;
  /** The input of each run; the job's schema parses it each time. */
  input: Input;
};

/** A schedule that the code declares: its input may depend on the slot. */
export type DeclaredScheduleOptions<Input = unknown, L = Labels> = Omit<ScheduleOptions<Input, L>, "input"> & {
  /**
   * The input of each run, or a function that makes it of the slot. If the schedule is triggered without a slot, the
   * function gets the current instant as `at`.
   */
  input: Input | ((slot: ScheduleSlot) => Input);
};

/** The options of a schedule as they are stored. */
export interface StoredOptions extends Required<ScheduleTiming> {
  /** The name of the job. */
  jobName: string;
  /** The input; left out if it is `undefined`, or a function makes it. */
  input?: Json;
  /** Left out, unless a function makes the input: only code that declares it can. */
  computesInput?: true;
  /** The options of the trigger. */
  trigger: ScheduledTriggerOptions<unknown>;
}

/** A schedule whose options have been checked, but for those that the trigger checks. */
export interface CheckedSchedule {
  /** Its name. */
  name: string;
  /** Its options as they are stored. */
  options: StoredOptions;
  /** The same as JSON. */
  text: JsonText;
  /** Makes the input of a slot; `null`: it is the same each time. */
  inputOf: InputOf | null;
}

/** Makes the input of a slot. */
export type InputOf = (slot: ScheduleSlot) => unknown;

const OPTIONS = namesOf<keyof ScheduleOptions>()(
  "job input cron timezone catchUp overlap concurrencyKey coalesce labels priority fairnessKey startWithin",
  "finishWithin",
);
const CATCH_UPS: readonly CatchUp[] = ["last", "none", "all"];
const OVERLAPS: readonly Overlap[] = ["skip", "allow"];
// The idempotency key of a run has the name, and what goes around it.
const MAX_NAME_LENGTH = 200;

/** The idempotency keys of the runs of slots begin with this. */
export const SCHEDULE_KEYS = "schedule/";

/**
 * Checks a schedule. The job and the options of the trigger are checked with the first run.
 *
 * @throws {ValidationError} The name is not valid.
 * @throws {TypeError} An option is unknown, or the job is not a job.
 * @throws {RangeError} The pattern, the zone or a mode is not valid.
 * @throws {SerializationError} The input cannot be stored as JSON.
 */
export function checkSchedule(
  name: string,
  given: ScheduleOptions<unknown, unknown>,
  maxBytes: number,
): CheckedSchedule {
  checkScheduleName(name);
  const subject = `Schedule "${name}"`;
  checkOptionNames(given, OPTIONS, subject);
  const { job, input, cron, timezone = "UTC", catchUp = "last", overlap = "skip", ...trigger } = given;
  const jobName = nameOf(job, subject);
  explain(subject, () => new Calendar(cron, timezone));
  checkMode(catchUp, CATCH_UPS, `catchUp of schedule "${name}"`);
  checkMode(overlap, OVERLAPS, `overlap of schedule "${name}"`);
  const inputOf = typeof input === "function" ? input as InputOf : null;
  const stored = inputOf !== null
    ? undefined
    : decode(encode(input, { subject: `The input of schedule "${name}"`, maxBytes }));
  const options: StoredOptions = {
    jobName,
    cron,
    timezone,
    catchUp,
    overlap,
    ...(stored === undefined ? {} : { input: stored }),
    ...(inputOf === null ? {} : { computesInput: true }),
    trigger: sorted(trigger),
  };
  const text = encode(options, { subject: `The options of schedule "${name}"`, maxBytes: Infinity })!;
  return { name, options: readOptions(text), text, inputOf };
}

/**
 * Checks the name of a schedule: 1 to 200 characters.
 *
 * @throws {ValidationError} It is not valid.
 */
export function checkScheduleName(name: unknown): asserts name is string {
  checkName(name, "The name of a schedule", MAX_NAME_LENGTH);
}

function nameOf(job: unknown, subject: string): string {
  if (typeof job === "string") return job;
  const name = typeof job === "object" && job !== null && "name" in job ? job.name : undefined;
  if (typeof name === "string") return name;
  throw new TypeError(`${subject} needs a job: what defineJob() makes, or its name, not ${kindOf(job)}`);
}

/** Names the schedule in what a calendar throws. */
function explain<T>(subject: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (error instanceof RangeError) throw new RangeError(`${subject}: ${error.message}`);
    throw error;
  }
}

function checkMode(value: unknown, modes: readonly string[], subject: string): void {
  if (modes.some((mode) => mode === value)) return;
  throw new RangeError(`${subject} must be one of ${modes.join(", ")}, not ${JSON.stringify(value)}`);
}

/** The options that are given, in the order of their names: the order in the code makes no other text. */
function sorted<T extends object>(options: T): T {
  const given = Object.entries(withoutUndefined(options));
  return Object.fromEntries(given.sort(([one], [other]) => one < other ? -1 : 1)) as T; // the same names and values
}

/**
 * The input of a run of a schedule.
 *
 * @param inputOf Makes it, if a function does; `undefined` or `null`: this engine has none.
 * @throws {ConflictError} The engine lacks the function.
 */
export function inputAt(
  slot: ScheduleSlot,
  name: string,
  options: StoredOptions,
  inputOf: InputOf | null | undefined,
): unknown {
  if (options.computesInput !== true) return options.input;
  if (inputOf) return inputOf(slot);
  throw new ConflictError(`Schedule "${name}" makes its input by a function, which this engine does not declare`);
}

/** Reads the options of a stored schedule. */
export function readOptions(text: JsonText): StoredOptions {
  return decode(text) as unknown as StoredOptions; // what checkSchedule() has written
}
