import type { Host } from "../../model/host.ts";
import type { Enqueued, NewRun } from "../../store/new_run.ts";
import type { Firing, ScheduleRecord } from "../../store/schedule_record.ts";
import { type ScheduleRow, toSchedule } from "../rows.ts";
import { findRunRow, toRunText } from "./rows.ts";
import type { SqliteDatabase } from "./sqlite_database.ts";
import { sql } from "./statement.ts";
import { enqueueRuns } from "./writes/enqueue.ts";

const STATE = sql`job, options, declared, paused_at, paused_by, next_at, last_slot_at, last_run_id, skipped, error`;
const COLUMNS = sql`name, version, ${STATE}`;

/** All schedules in the order of their names, or the one with a name. See `Store.getSchedules()`. */
export function readSchedules(db: SqliteDatabase, name: string | undefined): ScheduleRecord[] {
  const rows = name === undefined
    ? db.all<ScheduleRow>`SELECT ${COLUMNS} FROM holdfast_schedules ORDER BY name`
    : db.all<ScheduleRow>`SELECT ${COLUMNS} FROM holdfast_schedules WHERE name = ${name}`;
  return rows.map(toSchedule);
}

/** Adds or replaces a schedule. See `Store.setSchedule()`. */
export function setSchedule(
  db: SqliteDatabase,
  schedule: Omit<ScheduleRecord, "version">,
  version: number | null,
  now: number,
): ScheduleRecord | null {
  const { name, jobName, options, declared, pausedAt, pausedBy, nextAt, lastSlotAt, lastRunId, skipped, error } =
    schedule;
  const state =
    sql`${jobName}, ${options}, ${declared}, ${pausedAt}, ${pausedBy}, ${nextAt}, ${lastSlotAt}, ${lastRunId},
    ${skipped}, ${error}`;
  const row = version === null
    ? db.get<ScheduleRow>`INSERT INTO holdfast_schedules (${STATE}, name, version) VALUES (${state}, ${name}, ${now})
      ON CONFLICT DO NOTHING RETURNING ${COLUMNS}`
    : db.get<ScheduleRow>`UPDATE holdfast_schedules SET (${STATE}) = (${state}), version = version + 1
      WHERE name = ${name} AND version = ${version} RETURNING ${COLUMNS}`;
  return row === undefined ? null : toSchedule(row);
}

/** Deletes a schedule. See `Store.deleteSchedule()`. */
export function deleteSchedule(db: SqliteDatabase, name: string): boolean {
  return db.run`DELETE FROM holdfast_schedules WHERE name = ${name}` > 0;
}

/** Fires or skips a slot. See `Store.fireSchedule()`. */
export function fireSchedule(
  db: SqliteDatabase,
  { schedule: { name, version }, next, run, skipsOverlap, skipped }: Firing,
  host: Pick<Host, "newId">,
  now: number,
): { schedule: ScheduleRecord; run: Enqueued | null } | null {
  const known = db.get<ScheduleRow>`SELECT ${COLUMNS} FROM holdfast_schedules WHERE name = ${name}`;
  if (known === undefined) return null;
  const added = run === null ? undefined : findRunRow(db, run.id);
  if (added !== undefined) {
    return { schedule: toSchedule(known), run: { run: toRunText(added), disposition: "created" } };
  }
  if (known.version !== version) return null;
  const overlap = run !== null && skipsOverlap ? findOverlap(db, name) : { isOpen: false, openFrom: null };
  const enqueued = run === null || overlap.isOpen ? null : enqueue(db, run, host, now);
  const row = db.one<ScheduleRow>`
    UPDATE holdfast_schedules SET next_at = ${next.nextAt}, last_slot_at = ${next.lastSlotAt}, error = ${next.error},
      last_run_id = coalesce(${enqueued?.run.id ?? null}, last_run_id),
      skipped = skipped + ${skipped + (enqueued === null ? 1 : 0)},
        open_from = coalesce(${overlap.openFrom}, open_from), version = version + 1
    WHERE name = ${name} RETURNING ${COLUMNS}`;
  return { schedule: toSchedule(row), run: enqueued };
}

function enqueue(db: SqliteDatabase, run: NewRun, host: Pick<Host, "newId">, now: number): Enqueued {
  return enqueueRuns(db, [run], host, now)[0]!; // one for each request
}

/**
 * Whether a run of a schedule has not ended. `open_from` is the first that may not have: those before it, which have
 * ended, are not looked at again.
 */
function findOverlap(db: SqliteDatabase, name: string): { isOpen: boolean; openFrom: number | null } {
  const open = db.get<{ seq: number }>`SELECT seq FROM holdfast_runs INDEXED BY holdfast_runs_by_schedule
    WHERE schedule_name = ${name} AND seq >= (SELECT open_from FROM holdfast_schedules WHERE name = ${name})
      AND completed_at IS NULL ORDER BY seq LIMIT 1`;
  if (open !== undefined) return { isOpen: true, openFrom: open.seq };
  const { last } = db.one<{ last: number | null }>`
    SELECT max(seq) AS last FROM holdfast_runs WHERE schedule_name = ${name}`;
  return { isOpen: false, openFrom: last === null ? null : last + 1 };
}
