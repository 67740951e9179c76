import type { ScheduleSlot } from "../../model/job.ts";
import { isoTime } from "../../values/iso_time.ts";
import { Calendar } from "./calendar.ts";

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
