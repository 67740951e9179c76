import type { ScheduleSkip } from "../../model/event.ts";
import type { ChangeWatch } from "../../events/change_watch.ts";
import type { ExecutionDeps } from "../../execution/execution.ts";
import { Throttle } from "../../events/throttle.ts";
import { retryStoreCall } from "../../events/retry_store_call.ts";
import { InterruptibleSleep, nextTurn } from "../../model/host.ts";
import { isoTime } from "../../values/iso_time.ts";
import { PRODUCTION, type Surroundings } from "../../execution/surroundings.ts";
import type { Job } from "../../model/job.ts";
import type { Store } from "../../store/store.ts";
import type { Enqueued, NewRun } from "../../store/new_run.ts";
import type { Firing, ScheduleRecord } from "../../store/schedule_record.ts";
import type { AroundHooks } from "../../model/around.ts";
import { addAround } from "../triggers/add_around.ts";
import { toFailure } from "../../model/to_failure.ts";
import type { TriggerOptions } from "../triggers/new_run.ts";
import { Calendar, toSlot } from "./calendar.ts";
import { inputAt, type InputOf, readOptions, SCHEDULE_KEYS, type StoredOptions } from "./schedule_options.ts";

/** The dependencies of {@linkcode Scheduler}. */
interface SchedulerDeps extends Pick<ExecutionDeps, "store" | "hub" | "host"> {
  /** Reports changes, if the store does. */
  watch: ChangeWatch;
  /** The job of a name or an alias; `undefined`: the engine has none. */
  findJob: (name: string) => Job | undefined;
  /** What makes the inputs of the schedules that the code declares, by their names. */
  declared: ReadonlyMap<string, InputOf | null>;
  /** Checks a trigger and builds the run that it asks for. */
  requestRun: (job: Job, input: unknown, options: TriggerOptions<unknown>) => Promise<NewRun>;
  /** Publishes what became of a run that was asked for. */
  publishTrigger: (enqueued: Enqueued, asked: NewRun) => void;
  /** What plugins do around triggers. */
  around: AroundHooks;
  /** Creates a calendar. Default: {@linkcode Calendar}. */
  newCalendar?: (cron: string, timezone: string) => SlotSource;
  /** Whether others change schedules without notice. Default: yes. */
  surroundings?: Pick<Surroundings, "polls">;
}

// How soon an engine notices what others have changed. It only reads.
const LOOK_EVERY_MS = 1_000;
// While the store reports changes: a report can be missing, and the clock of the store can be set forward.
const LOOK_EVERY_WHEN_LIVE_MS = 10_000;
// How long a schedule with an error is left alone.
const RETRY_MS = 60_000;
// With `none`, a slot that is found later is skipped. Clocks that differ by less are not considered to be set back.
const LATE_MS = 60_000;
// With `all`, older slots are skipped.
const MAX_CAUGHT_UP = 100;
// How many schedules are looked at without a break for the event loop: a new calendar takes some 0.2 ms.
const SLICE = 50;

/**
 * Fires the slots of schedules. Every engine does: the store lets one of them fire each slot.
 *
 * It reads the schedules when the next slot is due, and every second. While the store reports changes, it reads them
 * instead after a change, at most once a second, and every ten seconds. It writes only to fire or to skip a slot, to
 * show an error, and when the clock was set back.
 */
export class Scheduler {
  readonly #deps: SchedulerDeps;
  readonly #newCalendar: NonNullable<SchedulerDeps["newCalendar"]>;
  readonly #idle: InterruptibleSleep;
  #known: ReadonlyMap<string, Known> = new Map();

  constructor(deps: SchedulerDeps) {
    this.#deps = deps;
    this.#newCalendar = deps.newCalendar ?? ((cron, timezone) => new Calendar(cron, timezone));
    this.#idle = new InterruptibleSleep(deps.host);
  }

  /** Looks for due slots at once. */
  wake(): void {
    this.#idle.wake();
  }

  /** Fires slots until `abortSignal` fires. */
  async run(abortSignal: AbortSignal): Promise<void> {
    const { host, hub, watch, surroundings: { polls } = PRODUCTION } = this.#deps;
    const wake = () => this.wake();
    abortSignal.addEventListener("abort", wake);
    const throttle = new Throttle(host, LOOK_EVERY_MS, wake);
    const stopWatching = watch.on(() => throttle.call());
    while (!abortSignal.aborted) {
      let idleMs = LOOK_EVERY_MS;
      try {
        const longestMs = !polls ? Infinity : watch.isLive ? LOOK_EVERY_WHEN_LIVE_MS : LOOK_EVERY_MS;
        idleMs = Math.min((await this.#look(abortSignal)).idleMs, longestMs);
      } catch (error) {
        if (!abortSignal.aborted) hub.publishError(error);
      }
      if (abortSignal.aborted) break;
      if (idleMs > 0) await this.#idle.sleep(idleMs);
      else await nextTurn(host);
    }
    stopWatching();
    throttle.cancel();
    abortSignal.removeEventListener("abort", wake);
  }

  /**
   * Fires what is due now.
   *
   * @returns When the next slot is due, by the store's clock; `null`: there is none, or it was ended before it knew.
   */
  async fireDue(abortSignal: AbortSignal): Promise<number | null> {
    while (!abortSignal.aborted) {
      const { idleMs, nextAt } = await this.#look(abortSignal);
      if (idleMs > 0) return nextAt === Infinity ? null : nextAt;
    }
    return null;
  }

  /** Fires what is due. Returns when the next slot is due, and after how many milliseconds; 0 if something has changed. */
  async #look(abortSignal: AbortSignal): Promise<{ idleMs: number; nextAt: number }> {
    const { host, store } = this.#deps;
    const { schedules, now } = await store.getSchedules();
    const readAt = host.monotonic();
    const mine = schedules.filter((record) => this.#mayFire(record))
      .map((record) => ({ record, known: this.#knownOf(record) }));
    this.#known = new Map(mine.map(({ record, known }) => [record.name, known]));
    let nextAt = Infinity;
    for (let from = 0; from < mine.length && !abortSignal.aborted; from += SLICE) {
      if (from > 0) await nextTurn(host);
      const slice = mine.slice(from, from + SLICE);
      const instants = await Promise.all(slice.map(({ record, known }) => this.#care(record, known, now, abortSignal)));
      nextAt = Math.min(nextAt, ...instants);
    }
    const idleMs = nextAt <= now ? 0 : Math.max(1, nextAt - now - (host.monotonic() - readAt));
    return { idleMs, nextAt };
  }

  /**
   * A schedule that is declared in code stops when it is removed from the code, and engines of another service do not
   * fire it.
   */
  #mayFire({ name, jobName, declared, pausedAt }: ScheduleRecord): boolean {
    return pausedAt === null && this.#deps.findJob(jobName) !== undefined &&
      (declared === null || this.#deps.declared.has(name));
  }

  /** What is known of the schedule, unless it has changed. */
  #knownOf(record: ScheduleRecord): Known {
    const known = this.#known.get(record.name);
    if (known?.version === record.version) return known;
    const isSame = known !== undefined && known.text === record.options;
    return {
      version: record.version,
      text: record.options,
      options: isSame ? known.options : readOptions(record.options),
      calendar: isSame ? known.calendar : null,
      retryAt: isSame && known.error === record.error ? known.retryAt : -Infinity,
      error: record.error,
      checked: { from: Infinity, until: -Infinity },
    };
  }

  /**
   * Does what a schedule needs: fires what is due, or checks when it is due next.
   *
   * @returns When it needs something again; `now` if that may be at once.
   */
  async #care(record: ScheduleRecord, known: Known, now: number, abortSignal: AbortSignal): Promise<number> {
    const { host, hub } = this.#deps;
    const restMs = known.retryAt - host.monotonic();
    if (restMs > 0) return now + restMs;
    try {
      const { cron, timezone } = known.options;
      const calendar = known.calendar ??= this.#newCalendar(cron, timezone);
      const { nextAt } = record;
      if (nextAt === null || nextAt > now) return await this.#checkNext(record, known, calendar, now, abortSignal);
      await this.#fire(record, nextAt, known.options, calendar, now, abortSignal);
      return now;
    } catch (error) {
      if (abortSignal.aborted) return Infinity;
      known.error = toFailure(error).message;
      if (known.error !== record.error) {
        await this.#write(record, { error: known.error }, abortSignal).catch((error) => hub.publishError(error));
      }
      return this.#rest(known, now);
    }
  }

  /** Leaves a schedule alone for a minute. */
  #rest(known: Known, now: number): number {
    known.retryAt = this.#deps.host.monotonic() + RETRY_MS;
    return now + RETRY_MS;
  }

  /** Fires the slots up to now, as far as they are to be caught up; the others are skipped. */
  async #fire(
    { name, version }: ScheduleRecord,
    from: number,
    options: StoredOptions,
    calendar: SlotSource,
    now: number,
    abortSignal: AbortSignal,
  ): Promise<void> {
    const { catchUp, overlap } = options;
    const { newest, count } = calendar.missed(from, now, catchUp === "all" ? MAX_CAUGHT_UP : 1);
    const isLate = catchUp === "none" && now - (newest.at(-1) ?? now) > LATE_MS;
    let schedule = { name, version };
    for (const [index, slot] of newest.entries()) {
      const run = isLate ? null : await this.#runAt(name, options, slot);
      const skipped = index === 0 ? count - newest.length : 0;
      const firing: Firing = {
        schedule,
        next: { nextAt: newest[index + 1] ?? calendar.next(slot), lastSlotAt: slot, error: null },
        run,
        skipsOverlap: overlap === "skip",
        skipped,
      };
      const fired = await this.#fireOne(firing, abortSignal);
      if (fired === null) return; // somebody else has changed or fired it
      const late = skipped + (isLate ? 1 : 0);
      if (late > 0) this.#publishSkip(name, from, "late", late);
      if (fired.run !== null && run !== null) this.#deps.publishTrigger(fired.run, run);
      else if (run !== null) this.#publishSkip(name, slot, "overlap", 1);
      // A repeated call answers with the schedule of that moment: somebody else may have changed it since.
      const hasChanged = fired.schedule.version !== schedule.version + 1;
      if (abortSignal.aborted || hasChanged) return;
      schedule = fired.schedule;
    }
  }

  /** Fires a slot. `null`: another engine has done so, or the schedule was changed. */
  #fireOne(firing: Firing, abortSignal: AbortSignal): Promise<Fired | null> {
    const { store } = this.#deps;
    const fire = (run: NewRun | null) =>
      retryStoreCall(() => store.fireSchedule({ ...firing, run }), this.#deps, abortSignal);
    if (firing.run === null) return fire(null);
    const toEnqueued = (fired: Fired | null) => fired === null || fired.run === null ? null : [fired.run];
    return addAround([firing.run], ([run]) => fire(run!), toEnqueued, this.#deps); // one for each request
  }

  async #runAt(name: string, options: StoredOptions, slotAt: number): Promise<NewRun> {
    const { jobName, trigger } = options;
    const slot = toSlot(slotAt, options);
    // If the clock is set back, the slot leads to the same run.
    const idempotencyKey = `${SCHEDULE_KEYS}${name}/${slot.at}`;
    const job = this.#deps.findJob(jobName)!; // only schedules of known jobs are fired
    const input = inputAt(slot, name, options, this.#deps.declared.get(name));
    const run = await this.#deps.requestRun(job, input, { ...trigger, idempotencyKey });
    return { ...run, schedule: { name, slotAt: slot.at, slot: JSON.stringify(slot) } };
  }

  #publishSkip(scheduleName: string, slot: number, reason: ScheduleSkip["reason"], skipped: number): void {
    this.#deps.hub.publishSkip({ scheduleName, slotAt: isoTime(slot), reason, skipped });
  }

  /**
   * Checks that the next slot is not too far in the future: it is, if it was worked out before the clock was set back.
   * Clears an error that is over.
   */
  async #checkNext(
    record: ScheduleRecord,
    known: Known,
    calendar: SlotSource,
    now: number,
    abortSignal: AbortSignal,
  ): Promise<number> {
    const { nextAt, error } = record;
    const { checked } = known;
    if (nextAt !== null && error === null && checked.from <= now && now < checked.until) return nextAt;
    const latest = calendar.next(now + LATE_MS);
    const isPlausible = nextAt !== null && (latest === null || nextAt <= latest);
    const right = isPlausible ? nextAt : calendar.next(now);
    if (right !== nextAt || error !== null) {
      await this.#write(record, { nextAt: right, error: null }, abortSignal);
      return now;
    }
    if (nextAt === null) return this.#rest(known, now);
    known.checked = { from: now, until: (latest ?? Infinity) - LATE_MS };
    return nextAt;
  }

  /** Changes a schedule, unless somebody else has changed it. */
  async #write(
    { version, ...record }: ScheduleRecord,
    change: Partial<Pick<ScheduleRecord, "nextAt" | "error">>,
    abortSignal: AbortSignal,
  ): Promise<void> {
    const { store } = this.#deps;
    await retryStoreCall(() => store.setSchedule({ ...record, ...change }, version), this.#deps, abortSignal);
  }
}

type Fired = NonNullable<Awaited<ReturnType<Store["fireSchedule"]>>>;

type SlotSource = Pick<Calendar, "next" | "missed">;

/** What an engine knows of a schedule that it may fire. */
interface Known {
  /** The version that it has read. */
  version: number;
  /** The options as stored. */
  text: string;
  /** The options. */
  options: StoredOptions;
  /** The calendar; `null` until it is needed. */
  calendar: SlotSource | null;
  /** The error that the schedule shows. */
  error: string | null;
  /** When it is looked at again after an error, on the monotonic clock. */
  retryAt: number;
  /** Between which instants the next slot is known to be right. */
  checked: { from: number; until: number };
}
