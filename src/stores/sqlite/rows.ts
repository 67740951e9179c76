import type { Held, HoldCode } from "../../model/hold.ts";
import { isoTime } from "../../values/iso_time.ts";
import type { JsonText } from "../../values/json.ts";
import type { Labels, RunIdentity, StoredRun } from "../../model/run.ts";
import type { AwaitedPause } from "../../store/run_query.ts";
import { jobNameOf } from "../queue_name.ts";
import { type IdentityRow, type PauseColumns, toLabels } from "../rows.ts";
import { readRunColumns, type RunColumns } from "../run_columns.ts";
import type { SqliteDatabase } from "./sqlite_database.ts";
import type { LeasedRun } from "./writes/lease_cache.ts";
import { namesOf, type Words } from "../../values/option_names.ts";
import { raw, type SqlPart } from "./statement.ts";

/** The columns of `holdfast_runs`: see schema.ts. */
interface RunTable extends Omit<RunColumns, "payload" | "priority"> {
  seq: number;
  queue: string;
  position: number;
  queue_state: "R" | "B" | null;
  timer_at: number | null;
  lease_claim: string | null;
  leased_at: number | null;
  last_report_no: number;
  recorded: number;
  parked_no: number;
  has_pauses: number;
  interruptions: number;
  abandonments: number;
  abandonments_alone: number;
  origin_id: string | null;
  priority: number;
  key_concurrency: number;
  key_rate_limit: number | null;
  key_rate_period: number | null;
  due_at: number | null;
  start_within: number | null;
  finish_within: number | null;
  deadline_at: number | null;
  parent_seq: number | null;
  parent_pause: number | null;
}

/** Some columns of a run: their names, with spaces between. */
export type RunWith<Names extends string> = Words<Names> extends keyof RunTable ? Pick<RunTable, Words<Names>> : never;

/** A row of {@linkcode SELECT_RUN}, with its hold as a JSON array of code, message and instant; NULL: it is not held. */
export interface RunRow
  extends
    RunColumns,
    RunWith<"seq queue lease_claim recorded last_report_no interruptions has_pauses parent_seq parent_pause"> {
  held: JsonText | null;
}

const COLUMNS = namesOf<Exclude<keyof RunRow, "payload" | "held">>()(
  "seq id job queue status labels idempotency_key former_key on_end end_of concurrency_key lease_owner lease_claim",
  "lease_expires_at lease_generation last_report_no recorded has_pauses interruptions ended_by retrigger_of",
  "retriggered_as completed_as progress output error failure failed_step created_at updated_at started_at",
  "completed_at trace fairness_key priority start_at start_by finish_by schedule_name slot_at parent_id parent_seq",
  "parent_pause",
);

/** The columns of `holdfast_runs` that are read of a run. */
export const RUN_COLUMNS: readonly string[] = Object.keys(COLUMNS);

/**
 * The hold of a run. Only a pending run that is in no queue, or in that of a print, can be held.
 *
 * `|| ''` makes a plain string of the JSON: `jsr:@db/sqlite` parses a column that a JSON function has returned.
 */
export const HELD = "iif(r.status = 'pending' AND (r.queue_state IS NULL OR r.queue <> r.job), " +
  "(SELECT json_array(h.code, h.message, h.since) || '' " +
  "FROM holdfast_holds h WHERE h.run_seq = r.seq AND h.since IS NOT NULL), NULL) AS held";

/** The tables that {@linkcode toRunText} reads. */
export const RUN_TABLES = "holdfast_runs r JOIN holdfast_inputs i ON i.run_seq = r.seq";

/** The columns of {@linkcode RunRow}, of {@linkcode RUN_TABLES}. */
export const ALL_COLUMNS: string = [...RUN_COLUMNS.map((column) => `r.${column}`), "i.payload", HELD].join(", ");

/** Reads what {@linkcode toRunText} needs; a WHERE on `r` or `i` follows. */
export const SELECT_RUN: SqlPart = raw(`SELECT ${ALL_COLUMNS} FROM ${RUN_TABLES}`);

/** The row of a run. */
export function findRunRow(db: SqliteDatabase, runId: string): RunRow | undefined {
  return db.get<RunRow>`${SELECT_RUN} WHERE r.id = ${runId}`;
}

/** A row of {@linkcode SELECT_RUN} as a run, with its values as stored JSON. */
export function toRunText(row: RunColumns & Pick<RunRow, "held">): StoredRun {
  return readRunColumns(row, toHeld(row.held));
}

function toHeld(column: JsonText | null): Held | null {
  if (column === null) return null;
  const [code, message, since]: [HoldCode, string, number] = JSON.parse(column);
  return { code, message, since: isoTime(since) };
}

/** Returns a function that does the same for many rows: equal labels are parsed once, and shared. */
export function identityReader(): (row: IdentityRow) => RunIdentity {
  const known = new Map<JsonText, Labels>();
  return (row) => {
    const labels = known.get(row.labels) ?? toLabels(row.labels);
    known.set(row.labels, labels);
    return { id: row.id, jobName: jobNameOf(row.job), labels };
  };
}

/** What the lease cache keeps of a row of `holdfast_runs`. */
export type LeasedRow = RunWith<"lease_generation seq job recorded last_report_no"> & {
  lease_claim: string;
  is_plain?: number;
};

/** A claimed row of `holdfast_runs` as an entry of the lease cache. */
export function toLeasedRun(row: LeasedRow): LeasedRun {
  return {
    generation: row.lease_generation,
    claimId: row.lease_claim,
    seq: row.seq,
    job: row.job,
    recorded: row.recorded,
    lastReportNo: row.last_report_no,
    isPlain: row.is_plain === 1,
  };
}

/** A row of `holdfast_pauses`. */
export type PauseRow = PauseColumns & { awaited: number };

/** A row of `holdfast_pauses` that a run waits on. */
export function toAwaitedPause(row: PauseRow): AwaitedPause<number> {
  const { kind, id, name, deadline_at: deadlineAt, total, unfinished } = row;
  const counts = total === null || unfinished === null ? {} : { children: { total, unfinished } };
  return { waitId: kind === "wait" ? id : null, name, deadlineAt, ...counts };
}

/** A row of `holdfast_steps` whose next attempt a run waits for. */
export function toAwaitedRetry(row: { name: string; retry_at: number }): AwaitedPause<number> {
  return { waitId: null, name: row.name, deadlineAt: row.retry_at };
}
