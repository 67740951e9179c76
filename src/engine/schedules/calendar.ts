import { Cron } from "croner";
import { kindOf } from "../../values/unknown_values.ts";
import { countSlots } from "./slot_count.ts";
import type { ScheduleSlot } from "../../model/job/step_calls.ts";
import { isoTime } from "../../values/iso_time.ts";

/** The slots that passed while nobody looked. */
interface MissedSlots {
  /** The newest of them, oldest first. */
  newest: number[];
  /** How many there were in all. */
  count: number;
}

/** The part of croner that a {@linkcode Calendar} asks. */
type CronClock = Pick<Cron, "nextRun" | "previousRuns">;

const NICKNAMES: ReadonlyMap<string, string> = new Map([
  ["@yearly", "0 0 1 1 *"],
  ["@annually", "0 0 1 1 *"],
  ["@monthly", "0 0 1 * *"],
  ["@weekly", "0 0 * * 0"],
  ["@daily", "0 0 * * *"],
  ["@midnight", "0 0 * * *"],
  ["@hourly", "0 * * * *"],
]);
// As many slots are counted one by one; more of them with arithmetic.
const MAX_STEPS = 10;

/**
 * Works out the slots of a schedule: instants, in milliseconds since 1970, at whole seconds.
 *
 * A pattern that names one time of day has one slot a day: a time that comes twice, because clocks are set back, counts
 * the first time; one that is skipped counts at the end of the gap. Any other pattern has a slot whenever the wall clock
 * of its zone reads so: twice in a repeated hour, never in a skipped one. The zone of the process does not matter.
 */
export class Calendar {
  readonly #cron: CronClock;
  readonly #pattern: string;
  readonly #timezone: string;

  /**
   * Creates a calendar; `cron` works out the slots, unless a test replaces it.
   *
   * @throws {RangeError} The pattern is not valid or has no slot at all, or the zone is unknown.
   */
  constructor(pattern: string, timezone: string, cron?: CronClock) {
    checkTimezone(timezone);
    this.#pattern = readPattern(pattern);
    this.#timezone = timezone;
    this.#cron = cron ?? newCron(this.#pattern, timezone);
    if (cron === undefined && this.next(0) === null) {
      throw new RangeError(`cron "${pattern}" has no slot: no such date exists`);
    }
  }

  /**
   * The first slot after an instant; `null` if there is none.
   *
   * @throws {Error} The calendar is wrong: its answer is not later.
   */
  next(after: number): number | null {
    const at = this.#cron.nextRun(new Date(after))?.getTime() ?? null;
    if (at === null || at > after) return at;
    throw new Error(
      `The slot after ${new Date(after).toISOString()} cannot be worked out: ${
        new Date(at).toISOString()
      } is not later`,
    );
  }

  /** The last slot before an instant; `null` if there is none. */
  previous(before: number): number | null {
    return this.#cron.previousRuns(1, new Date(before))[0]?.getTime() ?? null;
  }

  /** The first slots after an instant. */
  upcoming(after: number, count: number): number[] {
    const slots: number[] = [];
    while (slots.length < count) {
      const at = this.next(slots.at(-1) ?? after);
      if (at === null) break;
      slots.push(at);
    }
    return slots;
  }

  /**
   * The slots from one slot to an instant, both included. Its time does not depend on their number.
   *
   * @param limit The maximum number of slots in `newest`.
   */
  missed(from: number, until: number, limit: number): MissedSlots {
    const first: number[] = [];
    for (let at: number | null = from; at !== null && at <= until; at = this.next(at)) {
      first.push(at);
      if (first.length > MAX_STEPS) return this.#manyMissed(from, until, limit);
    }
    return { newest: first.slice(-limit), count: first.length };
  }

  #manyMissed(from: number, until: number, limit: number): MissedSlots {
    // A slot at the very instant of the reference counts only if the reference is a moment later.
    const reference = new Date(Math.floor(until / 1_000) * 1_000 + 1);
    const newest = this.#cron.previousRuns(limit, reference).map((date) => date.getTime())
      .filter((at) => at >= from).sort((one, other) => one - other);
    const count = countSlots({ pattern: this.#pattern, timezone: this.#timezone, cron: this.#cron }, from, until);
    return newest.length === 0 ? { newest: [from], count: 1 } : { newest, count: Math.max(count, newest.length) };
  }
}

/** A pattern without a function: it has no timer. */
function newCron(pattern: string, timezone: string): Cron {
  return new Cron(pattern, { timezone, paused: true });
}

function readPattern(pattern: unknown): string {
  if (typeof pattern !== "string") {
    throw new RangeError(`cron must be a string like "30 2 * * *", not ${kindOf(pattern)}`);
  }
  const fields = (NICKNAMES.get(pattern.trim().toLowerCase()) ?? pattern).trim().split(/\s+/);
  // croner would also take a date.
  if (fields.length < 5 || fields.length > 7) {
    throw new RangeError(
      `cron must have 5 fields (minute, hour, day, month, weekday), 6 with seconds in front, or 7 with the year at the end, not "${pattern}"`,
    );
  }
  const complete = fields.length === 5 ? ["0", ...fields] : fields;
  try {
    newCron(complete.join(" "), "UTC");
  } catch (error) {
    throw new RangeError(`cron "${pattern}" is not valid: ${reasonOf(error)}`);
  }
  return complete.join(" ");
}

/** What croner says of a pattern. It counts days and months from 0: the reason says what the pattern says. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.message.replace(/^CronPattern: /, "")
    .replace(/^(Invalid value for (?:day|month): )(-?\d+)$/, (_, text, value) => `${text}${Number(value) + 1}`);
}

function checkTimezone(timezone: unknown): void {
  if (typeof timezone !== "string") {
    throw new RangeError(`timezone must be a string like "Europe/Berlin", not ${kindOf(timezone)}`);
  }
  try {
    // croner takes an empty name for the zone of the process.
    if (timezone !== "") return void new Intl.DateTimeFormat("en", { timeZone: timezone });
  } catch {
    // Explained below.
  }
  throw new RangeError(`timezone "${timezone}" is unknown: it must be a name like "Europe/Berlin" or "UTC"`);
}

/** The slot of a schedule at an instant. */
export function toSlot(at: number, { cron, timezone }: { cron: string; timezone: string }): ScheduleSlot {
  return {
    at: isoTime(at),
    timezone,
    localDate: localDate(at, timezone),
    previousAt: isoTime(new Calendar(cron, timezone).previous(at)),
  };
}

function localDate(at: number, timeZone: string): string {
  const options = { timeZone, calendar: "iso8601", year: "numeric", month: "2-digit", day: "2-digit" } as const;
  const parts = new Intl.DateTimeFormat("en", options).formatToParts(at);
  const valueOf = (name: string) => parts.find(({ type }) => type === name)!.value; // the options ask for it
  return `${valueOf("year").padStart(4, "0")}-${valueOf("month")}-${valueOf("day")}`;
}
