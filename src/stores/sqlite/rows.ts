import type { TraceText } from "../../model/trace_context.ts";
import type { Held, HoldCode } from "../../model/hold.ts";
import { isoTime } from "../../values/iso_time.ts";
import type { JsonText } from "../../values/json.ts";
import type { Labels, RunIdentity, StoredRun } from "../../model/run.ts";
import type { AwaitedPause } from "../../store/run_state.ts";

import { jobNameOf } from "../queue_name.ts";
import { type IdentityRow, type PauseColumns, toLabels } from "../rows.ts";
import { readRunColumns, type RunColumns } from "../run_columns.ts";
import type { HeldRun } from "./writes/lease_cache.ts";

/** A row of {@linkcode SELECT_RUN}. */
export interface RunRow extends RunColumns {
  seq: number;
  lease_claim: string | null;
  recorded: number;
  last_report_no: number;
  interruptions: number;
  ended_by: string | null;
  /** The trace of its trigger. */
  trace: TraceText | null;
  /** 1 if it has a row of `holdfast_flow`. */
  flow: number | null;
  /** Its hold as a JSON array of code, message and instant; NULL: it is not held. */
  held: JsonText | null;
}

/** The columns of {@linkcode RunRow} of other tables: NULL for a run that has no row there. */
export type FlowColumn = "start_at" | "priority" | "fairness_key" | "start_by" | "finish_by" | "parent_id" | "held";

/** The columns of {@linkcode RunRow} that are those of `holdfast_scheduled_runs`: NULL for a run that has no row there. */
export type ScheduleColumn = "schedule_name" | "slot_at";

/** The columns of `holdfast_runs` that {@linkcode toRunText} does not read. */
type Unread = "seq" | "trace" | "lease_claim" | "recorded" | "last_report_no" | "interruptions" | "ended_by" | "flow";

/**
 * The columns of `holdfast_flow`, `holdfast_child_runs` and `holdfast_holds` that {@linkcode toRunText} reads. Only a pending
 * run that is not in a queue of `holdfast_runs` can be held.
 *
 * `|| ''` makes a plain string of the JSON: `jsr:@db/sqlite` parses a column that a JSON function has returned.
 */
export const FLOW_COLUMNS = "f.start_at, f.priority, f.fairness_key, f.start_by, f.finish_by, " +
  "iif(r.has_pauses = 1, (SELECT c.parent_id FROM holdfast_child_runs c WHERE c.run_seq = r.seq), NULL) AS parent_id, " +
  "iif(r.status = 'pending' AND r.queue_state IS NULL, (SELECT json_array(h.code, h.message, h.since) || '' " +
  "FROM holdfast_holds h WHERE h.run_seq = r.seq AND h.since IS NOT NULL), NULL) AS held";

/** The columns of `holdfast_scheduled_runs` that {@linkcode toRunText} reads. */
export const SCHEDULE_COLUMNS = "s.schedule_name, s.slot_at";

/** The tables that {@linkcode toRunText} reads. For a run without flow nothing is looked up in `holdfast_flow`. */
export const RUN_TABLES = "holdfast_runs r JOIN holdfast_inputs i ON i.run_seq = r.seq " +
  "LEFT JOIN holdfast_flow f ON f.run_seq = iif(r.flow = 1, r.seq, NULL) " +
  "LEFT JOIN holdfast_scheduled_runs s ON s.run_seq = r.seq";

/** Reads what {@linkcode toRunText} needs; a WHERE on `r` or `i` follows. */
export const SELECT_RUN = `SELECT r.*, i.payload, ${FLOW_COLUMNS}, ${SCHEDULE_COLUMNS} FROM ${RUN_TABLES}`;

/** A row of {@linkcode SELECT_RUN} as a run, with its values as stored JSON. */
export function toRunText(row: Omit<RunRow, Unread>): StoredRun {
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
export interface HeldRow {
  lease_generation: number;
  lease_claim: string | null;
  seq: number;
  job: string;
  recorded: number;
  last_report_no: number;
}

/** A claimed row of `holdfast_runs` as an entry of the lease cache. */
export function toHeldRun(row: HeldRow): HeldRun {
  return {
    generation: row.lease_generation,
    claimId: row.lease_claim,
    seq: row.seq,
    job: row.job,
    recorded: row.recorded,
    lastReportNo: row.last_report_no,
  };
}

/** A row of `holdfast_pauses`. */
export type PauseRow = PauseColumns & { awaited: number };

/** A row of `holdfast_pauses` that a run waits on. */
export function toAwaitedPause(row: PauseRow): AwaitedPause<number> {
  return { waitId: row.kind === "wait" ? row.id : null, name: row.name, deadlineAt: row.deadline_at };
}

/** A row of `holdfast_steps` whose next attempt a run waits for. */
export function toAwaitedRetry(row: { name: string; retry_at: number }): AwaitedPause<number> {
  return { waitId: null, name: row.name, deadlineAt: row.retry_at };
}
