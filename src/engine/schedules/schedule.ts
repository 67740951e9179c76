import { isoTime } from "../../values/iso_time.ts";
import type { Json } from "../../values/json.ts";
import type { Labels } from "../../model/run.ts";
import type { ScheduleRecord } from "../../store/schedule_record.ts";
import { Calendar } from "./calendar.ts";
import { readOptions, type ScheduledTriggerOptions, type ScheduleTiming } from "./schedule_options.ts";

/** A schedule and its state. Times are ISO 8601 in UTC; `null` means that there is no value. */
export interface Schedule extends Required<ScheduleTiming>, ScheduledTriggerOptions<Labels> {
  /** Its name. */
  name: string;
  /** The name of its job. */
  jobName: string;
  /** The input of its runs; `null` for `undefined`. */
  input: Json;
  /** Whether an engine has declared it in its code: then it fires only through engines that do. */
  declared: boolean;
  /** Since when it is paused. */
  pausedAt: string | null;
  /** Who has paused it; `null`: it is not paused, or nobody said so. */
  pausedBy: string | null;
  /** The next five slots; empty while it is paused, or if it has no more. */
  nextRuns: string[];
  /** Its next slot, if that is due: an engine that runs fires it at once. `null`: none is due. */
  dueSince: string | null;
  /** The newest slot that was fired or skipped. */
  lastSlotAt: string | null;
  /** The run of the newest slot that was fired. */
  lastRunId: string | null;
  /** How many slots were skipped: because of a run that had not ended, or because they were found too late. */
  skipped: number;
  /** Why its slots cannot be worked out, or its job cannot be triggered. An engine tries again every minute. */
  error: string | null;
}

const NEXT_RUNS = 5;

/** A stored schedule for callers, at an instant of the store's clock. */
export function toSchedule(record: ScheduleRecord, now: number): Schedule {
  const { jobName, cron, timezone, catchUp, overlap, input = null, trigger } = readOptions(record.options);
  return {
    name: record.name,
    jobName,
    input,
    cron,
    timezone,
    catchUp,
    overlap,
    ...trigger as ScheduledTriggerOptions<Labels>, // checked when it was set
    declared: record.declared !== null,
    pausedAt: isoTime(record.pausedAt),
    pausedBy: record.pausedBy,
    nextRuns: record.pausedAt === null ? nextRuns(cron, timezone, now) : [],
    dueSince: isoTime(record.pausedAt === null && (record.nextAt ?? Infinity) <= now ? record.nextAt : null),
    lastSlotAt: isoTime(record.lastSlotAt),
    lastRunId: record.lastRunId,
    skipped: record.skipped,
    error: record.error,
  };
}

function nextRuns(cron: string, timezone: string, now: number): string[] {
  try {
    return new Calendar(cron, timezone).upcoming(now, NEXT_RUNS).map((at) => isoTime(at));
  } catch {
    return []; // the schedule shows an error, or will soon
  }
}
