import type { Enqueued } from "../../store/new_run.ts";
import type { Firing, ScheduleRecord } from "../../store/schedule_record.ts";
import { toNewRunParameter } from "./writes/parameters.ts";
import { type ScheduleRow, toSchedule } from "../rows.ts";
import { type RunRow, toRunText } from "./rows.ts";

/** The outcome of a slot. */
export function toFiringParameter({ schedule, next, run, skipsOverlap, skipped }: Firing): object {
  const { name, version } = schedule;
  return { name, version, next, run: run === null ? null : toNewRunParameter(run), skipsOverlap, skipped };
}

/** What `fn.fire_schedule()` returns. */
export interface FiringAnswer {
  schedule: ScheduleRow;
  run: { run: RunRow; disposition: Enqueued["disposition"] } | null;
}

/** What `fn.fire_schedule()` returns, as the result of a firing. */
export function toFiringResult({ schedule, run }: FiringAnswer): { schedule: ScheduleRecord; run: Enqueued | null } {
  return { schedule: toSchedule(schedule), run: run === null ? null : { ...run, run: toRunText(run.run) } };
}
