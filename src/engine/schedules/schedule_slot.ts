import { isoTime } from "../../values/iso_time.ts";
import { Calendar } from "./calendar.ts";

/** A slot of a schedule: an instant at which it is due. */
export interface ScheduleSlot {
  /** The instant: ISO 8601 in UTC. */
  readonly at: string;
  /** The zone of the schedule, such as `Europe/Berlin`. */
  readonly timezone: string;
  /** The date of the slot in that zone, such as `2040-01-31`. In UTC it may be the day before or after. */
  readonly localDate: string;
  /** The slot before this one by the pattern, whether it was fired or not: ISO 8601 in UTC. `null`: there is none. */
  readonly previousAt: string | null;
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
