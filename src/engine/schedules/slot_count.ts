import { Cron } from "croner";

const SECOND = 1_000;
const DAY = 86_400_000;
// Shorter than the time between any two changes of a zone's offset that concern the present.
const PROBE_EVERY = 7 * DAY;

/** What slots are counted of. */
interface CountedSlots {
  /** Six or seven fields. */
  pattern: string;
  /** The zone whose clock the pattern reads. */
  timezone: string;
  /** Works out single slots. */
  cron: Pick<Cron, "nextRun">;
}

/**
 * Counts the slots from one instant to another, both included, without working out each of them: a year of seconds has
 * 31 million.
 */
export function countSlots({ pattern, timezone, cron }: CountedSlots, from: number, until: number): number {
  const times = timesOf(pattern);
  if (times.perDay === 1) return countSteps(cron, from, until);
  // While the offset of the zone stays the same, its wall clock is a clock without leaps.
  const parts = segments(timezone, Math.floor((from - 1) / SECOND) * SECOND, until);
  const walls = parts.flatMap(({ after, end, offset }) => [after + offset, end + offset]);
  const countBefore = counterOf(pattern, times, Math.min(...walls), Math.max(...walls));
  return parts.reduce(
    (count, { after, end, offset }) => count + countBefore(end + offset) - countBefore(after + offset),
    0,
  );
}

/** One slot a day: 366 steps for a year. */
function countSteps(cron: Pick<Cron, "nextRun">, from: number, until: number): number {
  let count = 0;
  let at = cron.nextRun(new Date(from - 1));
  while (at !== null && at.getTime() <= until) {
    count += 1;
    const next = cron.nextRun(at);
    if (next !== null && next.getTime() <= at.getTime()) break; // never, unless the calendar is wrong
    at = next;
  }
  return count;
}

/** The times of day of a pattern. */
interface Times {
  /** How many there are in a day. */
  perDay: number;
  /** How many there are up to a time of day, in milliseconds, included. */
  countUpTo(msOfDay: number): number;
}

function timesOf(pattern: string): Times {
  const [second, minute, hour] = pattern.split(" ");
  const seconds = valuesOf(`${second} * * * * *`, SECOND, 60);
  const minutes = valuesOf(`0 ${minute} * * * *`, 60 * SECOND, 60);
  const hours = valuesOf(`0 0 ${hour} * * *`, 3_600 * SECOND, 24);
  const perMinute = seconds.length;
  const perHour = minutes.length * perMinute;
  return {
    perDay: hours.length * perHour,
    countUpTo(msOfDay) {
      const [h, m, s] = [
        Math.floor(msOfDay / 3_600_000),
        Math.floor(msOfDay / 60_000 % 60),
        Math.floor(msOfDay / SECOND % 60),
      ] as const;
      let count = below(hours, h) * perHour;
      if (!hours.includes(h)) return count;
      count += below(minutes, m) * perMinute;
      return minutes.includes(m) ? count + below(seconds, s + 1) : count;
    },
  };
}

/** The values of one field: when it fires in its first cycle. */
function valuesOf(pattern: string, unit: number, cycle: number): number[] {
  return inUtc(pattern).nextRuns(cycle, new Date(-1)).map((at) => at.getTime() / unit).filter((value) => value < cycle);
}

function below(values: readonly number[], limit: number): number {
  return values.filter((value) => value < limit).length;
}

/**
 * Counts the slots on a clock without leaps up to an instant, included, since a fixed day before `first`. Instants may be
 * up to `last`.
 */
function counterOf(pattern: string, times: Times, first: number, last: number): (wall: number) => number {
  const fields = pattern.split(" ").slice(3);
  if (fields.every((field) => field === "*")) {
    return (wall) => Math.floor(wall / DAY) * times.perDay + times.countUpTo(modulo(wall, DAY));
  }
  const days: number[] = [];
  const cron = inUtc(["0", "0", "0", ...fields].join(" "));
  let day = cron.nextRun(new Date(first - DAY));
  while (day !== null && day.getTime() <= last) {
    days.push(day.getTime());
    day = cron.nextRun(day);
  }
  return (wall) => {
    const day = wall - modulo(wall, DAY);
    const before = lowerBound(days, day);
    return before * times.perDay + (days[before] === day ? times.countUpTo(wall - day) : 0);
  };
}

/** The index of the first of sorted values that is not below a limit. */
function lowerBound(values: readonly number[], limit: number): number {
  let [low, high] = [0, values.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle]! < limit) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** A time during which the offset of a zone stays the same: after the one instant, up to the other. */
interface Segment {
  after: number;
  end: number;
  offset: number;
}

function segments(timezone: string, from: number, until: number): Segment[] {
  const offsetAt = offsetOf(timezone);
  const parts: Segment[] = [];
  let after = from;
  let offset = offsetAt(from + SECOND);
  for (let probe = from + SECOND; probe < until;) {
    const next = Math.min(probe + PROBE_EVERY, Math.floor(until / SECOND) * SECOND);
    if (next <= probe) break;
    if (offsetAt(next) !== offset) {
      const change = firstWithout(offset, probe, next, offsetAt);
      parts.push({ after, end: change - SECOND, offset });
      after = change - SECOND;
      offset = offsetAt(change);
      probe = change;
    } else probe = next;
  }
  parts.push({ after, end: until, offset });
  return parts;
}

/** The first second at which a zone no longer has an offset. */
function firstWithout(offset: number, has: number, hasNot: number, offsetAt: (at: number) => number): number {
  let [low, high] = [has, hasNot];
  while (high - low > SECOND) {
    const middle = low + Math.floor((high - low) / 2 / SECOND) * SECOND;
    if (offsetAt(middle) === offset) low = middle;
    else high = middle;
  }
  return high;
}

/** How far the wall clock of a zone is ahead of UTC at an instant, in milliseconds. */
function offsetOf(timezone: string): (at: number) => number {
  const format = new Intl.DateTimeFormat("en-US", {
    timeZone: timezone,
    hourCycle: "h23",
    year: "numeric",
    month: "numeric",
    day: "numeric",
    hour: "numeric",
    minute: "numeric",
    second: "numeric",
  });
  return (at) => {
    const parts = format.formatToParts(at);
    const read = (type: string) => Number(parts.find((part) => part.type === type)?.value);
    const wall = Date.UTC(read("year"), read("month") - 1, read("day"), read("hour"), read("minute"), read("second"));
    return wall - Math.floor(at / SECOND) * SECOND;
  };
}

function inUtc(pattern: string): Cron {
  return new Cron(pattern, { timezone: "UTC", paused: true });
}

function modulo(value: number, divisor: number): number {
  return ((value % divisor) + divisor) % divisor;
}
