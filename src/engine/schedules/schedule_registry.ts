import { ConflictError, NotFoundError, ValidationError } from "../../model/error.ts";
import { nextTurn } from "../../model/host.ts";
import { type ActorOptions, checkActor } from "../../model/origin.ts";
import type { Labels } from "../../model/run.ts";
import type { ScheduleRecord } from "../../store/schedule_record.ts";
import { toTriggerResult, type TriggerResult } from "../triggers/new_run.ts";
import { Calendar, toSlot } from "./calendar.ts";
import { type Schedule, toSchedule } from "./schedule.ts";
import {
  type CheckedSchedule,
  checkSchedule,
  checkScheduleName,
  inputAt,
  readOptions,
  type ScheduleOptions,
} from "./schedule_options.ts";
import type { ExecutionDeps } from "../../execution/execution.ts";
import type { Triggers } from "../triggers/triggers.ts";

/** The schedules of a store. Methods for one schedule throw {@linkcode NotFoundError} if there is none of that name. */
export interface Schedules<L = Labels> {
  /**
   * Adds a schedule, or changes the options of the one with this name; its pause and its counters stay. One that was
   * declared keeps these options until the code declares others.
   *
   * If the pattern and the zone stay the same, slots that are due already are fired with the new options. Otherwise the
   * first slot is the next one from now. There must be one.
   *
   * @throws {NotFoundError} This engine has no job of that name.
   * @throws {ValidationError} The name (1 to 200 characters), the pattern, the input or another option is not valid.
   * @throws {TypeError} An option is unknown, or `job` is neither a job nor a name.
   */
  set<Input>(name: string, options: ScheduleOptions<Input, L>): Promise<Schedule>;
  /** A schedule, or `null` if there is none of that name. */
  get(name: string): Promise<Schedule | null>;
  /** All schedules, in the order of their names. */
  list(): Promise<Schedule[]>;
  /** Pauses a schedule: it fires no slot until it is resumed. One that is paused already keeps its pause. */
  pause(name: string, options?: ActorOptions): Promise<Schedule>;
  /** Ends the pause of a schedule. Slots that passed meanwhile are neither fired nor counted as skipped. */
  resume(name: string, options?: ActorOptions): Promise<Schedule>;
  /** Deletes a schedule; its runs stay. One that the code still declares is added again by the next start. */
  delete(name: string): Promise<void>;
  /** Asks for a run now, without a slot, also while the schedule is paused or a run of it has not ended. */
  trigger(name: string, options?: ActorOptions): Promise<TriggerResult>;
}

type ScheduleRegistryDeps = Pick<ExecutionDeps, "store" | "host" | "maxValueBytes"> & {
  /** The schedules that the code declares. */
  declared: readonly CheckedSchedule[];
  triggers: Triggers;
  /** Called after a schedule was changed. */
  onChange: () => void;
};

type Fields = Omit<ScheduleRecord, "version">;

// How many schedules are shown without a break for the event loop: the next slots of one take some 0.2 ms.
const SLICE = 50;
// Each lost attempt is a change by somebody else.
const MAX_ATTEMPTS = 20;

/** Sets, shows, pauses and triggers schedules. */
export class ScheduleRegistry<L> implements Schedules<L> {
  readonly #deps: ScheduleRegistryDeps;

  constructor(deps: ScheduleRegistryDeps) {
    this.#deps = deps;
  }

  /**
   * Writes the schedules that the code declares, if their options differ from those that were declared last.
   *
   * @throws {ValidationError} An input or an option of the trigger is not valid.
   */
  async declare(): Promise<void> {
    const { declared } = this.#deps;
    if (declared.length === 0) return;
    for (const schedule of declared) await this.#checkRun(schedule);
    for (const { name, inputOf: _, ...schedule } of declared) {
      await this.#update(name, (known, now) => {
        return known?.declared === schedule.text
          ? null
          : { ...withOptions(known, { name, ...schedule }, now), declared: schedule.text };
      });
    }
    this.#deps.onChange();
  }

  async set<Input>(name: string, options: ScheduleOptions<Input, L>): Promise<Schedule> {
    const schedule = this.#check(name, options);
    if (schedule.inputOf !== null) {
      throw new TypeError(`Schedule "${name}": only schedules of createEngine() have a function as input`);
    }
    await this.#checkRun(schedule);
    return await this.#change(name, (known, now) => {
      const next = withOptions(known, schedule, now);
      // One that has fired its last slot may keep its pattern: code that sets it at each start goes on.
      if (next.nextAt !== null || (known !== null && isSameCalendar(known, schedule))) return next;
      throw new ValidationError(`Schedule "${name}": cron "${schedule.options.cron}" has no slot from now on`);
    });
  }

  #check(name: string, options: ScheduleOptions<unknown, L>): CheckedSchedule {
    try {
      return checkSchedule(name, options, this.#deps.maxValueBytes);
    } catch (error) {
      // At run time a pattern or a zone may be the input of a user.
      if (error instanceof RangeError) throw new ValidationError(error.message, { cause: error });
      throw error;
    }
  }

  /** Builds a run, to see whether the schedule can be triggered. */
  async #checkRun({ name, options, inputOf }: CheckedSchedule): Promise<void> {
    const { triggers } = this.#deps;
    const job = triggers.findJob(options.jobName);
    if (inputOf !== null) return; // it has an input with its first slot
    try {
      await triggers.request(job, options.input, options.trigger);
    } catch (error) {
      if (!(error instanceof ValidationError)) throw error;
      const { summary, code, issues, issuesLeftOut } = error;
      throw new ValidationError(`Schedule "${name}": ${summary}`, {
        code: code === "invalid_input" ? code : "invalid_request",
        issues,
        issuesLeftOut,
        cause: error,
      });
    }
  }

  async get(name: string): Promise<Schedule | null> {
    const { record, now } = await this.#find(name);
    return record === null ? null : toSchedule(record, now);
  }

  async list(): Promise<Schedule[]> {
    const { schedules, now } = await this.#deps.store.getSchedules();
    const list: Schedule[] = [];
    for (const record of schedules) {
      if (list.length > 0 && list.length % SLICE === 0) {
        await nextTurn(this.#deps.host);
      }
      list.push(toSchedule(record, now));
    }
    return list;
  }

  async pause(name: string, options: ActorOptions = {}): Promise<Schedule> {
    const pausedBy = checkActor(options, "schedules.pause()");
    return await this.#change(name, (known, now) => {
      const record = found(name, known);
      return record.pausedAt === null ? { ...record, pausedAt: now, pausedBy } : null;
    });
  }

  async resume(name: string, options: ActorOptions = {}): Promise<Schedule> {
    checkActor(options, "schedules.resume()"); // nothing keeps who has ended a pause
    return await this.#change(name, (known, now) => {
      const record = found(name, known);
      return record.pausedAt === null
        ? null
        : { ...record, pausedAt: null, pausedBy: null, nextAt: nextSlot(record, now) };
    });
  }

  async delete(name: string): Promise<void> {
    checkScheduleName(name);
    const isDeleted = await this.#deps.store.deleteSchedule(name);
    if (!isDeleted) found(name, null);
    this.#deps.onChange();
  }

  async trigger(name: string, actor: ActorOptions = {}): Promise<TriggerResult> {
    checkActor(actor, "schedules.trigger()");
    const { record, now } = await this.#find(name);
    const options = readOptions(found(name, record).options);
    const { jobName, trigger } = options;
    const inputOf = this.#deps.declared.find((one) => one.name === name)?.inputOf;
    const input = inputAt(toSlot(now, options), name, options, inputOf);
    const run = await this.#deps.triggers.request(this.#deps.triggers.findJob(jobName), input, {
      ...trigger,
      ...actor,
    });
    return toTriggerResult(await this.#deps.triggers.add({ ...run, schedule: { name, slotAt: null } }));
  }

  async #find(name: string): Promise<{ record: ScheduleRecord | null; now: number }> {
    checkScheduleName(name);
    const { schedules, now } = await this.#deps.store.getSchedules(name);
    return { record: schedules.find((schedule) => schedule.name === name) ?? null, now };
  }

  /** Changes a schedule, and returns it for the caller. */
  async #change(name: string, change: Change): Promise<Schedule> {
    const { record, now } = await this.#update(name, change);
    this.#deps.onChange();
    return toSchedule(record, now);
  }

  /** Changes a schedule, again if somebody else has changed it meanwhile. */
  async #update(name: string, change: Change): Promise<{ record: ScheduleRecord; now: number }> {
    for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
      const { record, now } = await this.#find(name);
      const next = change(record, now);
      if (next === null) return { record: record!, now }; // only what exists can stay as it is
      const stored = await this.#deps.store.setSchedule(next, record?.version ?? null);
      if (stored !== null) return { record: stored, now };
    }
    throw new ConflictError(`Cannot change schedule "${name}": others change it all the time`);
  }
}

/** What a schedule becomes; `null`: it stays as it is. */
type Change = (known: ScheduleRecord | null, now: number) => Fields | null;

function found(name: string, record: ScheduleRecord | null): ScheduleRecord {
  if (record === null) throw new NotFoundError(`There is no schedule "${name}"`);
  return record;
}

/** The schedule with other options. A slot that is due already stays due, unless the calendar is another one. */
function withOptions(known: ScheduleRecord | null, schedule: Omit<CheckedSchedule, "inputOf">, now: number): Fields {
  const { name, options, text } = schedule;
  const nextAt = new Calendar(options.cron, options.timezone).next(now);
  if (known === null) {
    return {
      name,
      jobName: options.jobName,
      options: text,
      declared: null,
      pausedAt: null,
      pausedBy: null,
      nextAt,
      lastSlotAt: null,
      lastRunId: null,
      skipped: 0,
      error: null,
    };
  }
  return {
    ...known,
    jobName: options.jobName,
    options: text,
    nextAt: isSameCalendar(known, schedule) ? known.nextAt ?? nextAt : nextAt,
    error: null,
  };
}

function isSameCalendar(known: ScheduleRecord, { options }: Pick<CheckedSchedule, "options">): boolean {
  const { cron, timezone } = readOptions(known.options);
  return cron === options.cron && timezone === options.timezone;
}

/** The first slot from now on; `null` if the calendar fails, which an engine will find out. */
function nextSlot({ options }: ScheduleRecord, now: number): number | null {
  const { cron, timezone } = readOptions(options);
  try {
    return new Calendar(cron, timezone).next(now);
  } catch {
    return null;
  }
}
