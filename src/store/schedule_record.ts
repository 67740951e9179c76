import type { JsonText } from "../values/json.ts";
import type { NewRun } from "./new_run.ts";

/** A schedule as a store keeps it. */
export interface ScheduleRecord {
  /** Its name. */
  name: string;
  /** The name of the job that it triggers. */
  jobName: string;
  /** Its options as JSON: cron, time zone, input, catch-up, overlap, trigger options. The store does not read them. */
  options: JsonText;
  /** Its options as the code declared them last, as JSON; `null`: it was made by `schedules.set()` alone. */
  declared: JsonText | null;
  /** Since when it is paused; `null`: it is not. Instants are milliseconds by the store's clock. */
  pausedAt: number | null;
  /** Who has paused it; `null`: it is not paused, or nobody said so. */
  pausedBy: string | null;
  /** The next slot; `null`: none is known, because the calendar failed or has no more. */
  nextAt: number | null;
  /** The newest slot that was fired or skipped. */
  lastSlotAt: number | null;
  /** The run of the newest slot that was fired. */
  lastRunId: string | null;
  /** How many slots were skipped. */
  skipped: number;
  /** Why its slots cannot be worked out; `null`: they can. */
  error: string | null;
  /** Rises by one with each change of the schedule. A schedule that is deleted and added again has another one. */
  version: number;
}

/** The schedules of a store. */
export interface ScheduleList {
  /** The schedules, in the order of their names. */
  schedules: ScheduleRecord[];
  /** The current instant of the store's clock, by which slots are due. */
  now: number;
}

/** The outcome of a slot: a run, or nothing. */
export interface Firing {
  /** The schedule as it was read: nothing happens if its `version` has changed. */
  schedule: Pick<ScheduleRecord, "name" | "version">;
  /** The schedule after the firing, without what the store adds: the run and the skipped slots. */
  next: Pick<ScheduleRecord, "nextAt" | "lastSlotAt" | "error">;
  /** The run to add; `null`: the slot is skipped. */
  run: NewRun | null;
  /** Whether no run is added while one of the schedule has not ended; the slot then counts as skipped. */
  skipsOverlap: boolean;
  /** How many other slots were skipped. */
  skipped: number;
}
