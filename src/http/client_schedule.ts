import type { Schedule } from "../engine/schedules/schedule.ts";

/** A schedule as `/schedules` shows it: without its keys. */
export type ClientSchedule = Omit<Schedule, "concurrencyKey" | "fairnessKey">;

/** Converts a schedule for clients. */
export function toClientSchedule(schedule: Schedule): ClientSchedule {
  const shown = Object.entries(schedule).filter(([name]) => name !== "concurrencyKey" && name !== "fairnessKey");
  return Object.fromEntries(shown) as unknown as ClientSchedule; // all other fields
}
