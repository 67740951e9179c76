import type { JsonText } from "../../values/json.ts";
import type { Enqueued } from "../../store/new_run.ts";
import type { Firing, ScheduleRecord } from "../../store/schedule_record.ts";
import { toNewRunParameter } from "./writes/parameters.ts";
import { type RunRow, toRun } from "./rows.ts";

/** A row of `schedules`. */
export interface ScheduleRow {
  name: string;
  job: string;
  options: JsonText;
  declared: JsonText | null;
  paused_at: number | null;
  next_at: number | null;
  last_slot_at: number | null;
  last_run_id: string | null;
  skipped: number;
  error: string | null;
  version: number;
}

/** A row of `schedules` as a schedule. */
export function toSchedule(row: ScheduleRow): ScheduleRecord {
  return {
    name: row.name,
    jobName: row.job,
    options: row.options,
    declared: row.declared,
    pausedAt: row.paused_at,
    nextAt: row.next_at,
    lastSlotAt: row.last_slot_at,
    lastRunId: row.last_run_id,
    skipped: row.skipped,
    error: row.error,
    version: row.version,
  };
}

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
  return { schedule: toSchedule(schedule), run: run === null ? null : { ...run, run: toRun(run.run) } };
}
