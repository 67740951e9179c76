import { firstResumed } from "../first_resumed.ts";
import type { HoldCode } from "../../hold.ts";
import { isoTime } from "../../values/iso_time.ts";
import type { JsonText } from "../../values/json.ts";
import { parseRun, type Run, type RunStatus, type RunText } from "../../run.ts";
import type { ChildResult, PauseKind, PauseRecord } from "../../wait.ts";
import type { TraceText } from "../../trace_context.ts";
import { versionOf } from "../queue_name.ts";
import { type IdentityRow, toFailure, toRunIdentity, type WaitRow } from "../rows.ts";

/** What `fn.run_json()` returns of a run. */
export interface RunRow extends IdentityRow {
  seq: number;
  status: RunStatus;
  payload: JsonText | null;
  output: JsonText | null;
  error: string | null;
  failed_step: string | null;
  failure: JsonText | null;
  progress: JsonText | null;
  idempotency_key: string | null;
  concurrency_key: string | null;
  lease_owner: string | null;
  lease_expires_at: number | null;
  lease_generation: number;
  interruptions: number;
  created_at: number;
  updated_at: number;
  started_at: number | null;
  completed_at: number | null;
  retrigger_of: string | null;
  retriggered_as: string | null;
  schedule_name: string | null;
  slot_at: number | null;
  start_at: number | null;
  priority: number;
  fairness_key: string | null;
  start_by: number | null;
  finish_by: number | null;
  parent_id: string | null;
  /** Its hold; `null`: it is not held. */
  held: { code: HoldCode; message: string; since: number } | null;
}

/** What `fn.run_json()` returns, as a run. */
export function toRun(row: RunRow): Run {
  return parseRun(toRunText(row));
}

/** What `fn.run_json()` returns, as a run with its values as stored JSON. */
export function toRunText(row: RunRow): RunText {
  const failure = toFailure(row.failure);
  return {
    ...toRunIdentity(row),
    status: row.status,
    payload: row.payload,
    output: row.output,
    error: row.error,
    failedStepName: row.failed_step,
    failure,
    progress: row.progress === null ? null : JSON.parse(row.progress),
    idempotencyKey: row.idempotency_key,
    concurrencyKey: row.concurrency_key,
    leaseOwner: row.lease_owner,
    leaseExpiresAt: isoTime(row.lease_expires_at),
    leaseGeneration: row.lease_generation,
    createdAt: isoTime(row.created_at),
    updatedAt: isoTime(row.updated_at),
    startedAt: isoTime(row.started_at),
    completedAt: isoTime(row.completed_at),
    startAt: isoTime(row.start_at),
    priority: row.priority,
    fairnessKey: row.fairness_key,
    startBy: isoTime(row.start_by),
    finishBy: isoTime(row.finish_by),
    failureKind: failure?.kind ?? null,
    parentRunId: row.parent_id,
    scheduleName: row.schedule_name,
    slotAt: isoTime(row.slot_at),
    version: versionOf(row.job),
    held: row.held === null ? null : { ...row.held, since: isoTime(row.held.since) },
    retriggerOf: row.retrigger_of,
    retriggeredAs: row.retriggered_as,
  };
}

/** What `fn.pause_json()` returns of a pause. */
export type PauseRow =
  & WaitRow
  & { seq: number; run_seq: number; kind: PauseKind; awaited: boolean; prepared_no: number | null }
  & { trace: TraceText | null }
  & { total: number | null; added: number | null; unfinished: number | null }
  /** How its only child ended; `null`: it is not over, or has no child or several ones. */
  & { child: ChildRow | null }
  & (
    | { outcome: "signal"; payload: JsonText; signal_id: string; recorded_no: number }
    | { outcome: "timeout" | "children"; recorded_no: number }
    | { outcome: null }
  );

/** What `fn.pause_json()` returns, as a replay needs it. */
export function toPauseRecord(row: PauseRow): PauseRecord {
  return {
    id: row.id,
    kind: row.kind,
    name: row.name,
    metadata: row.metadata,
    childCount: row.added ?? 0,
    childTotal: row.total ?? 0,
    child: row.child === null ? null : toChildResult(row.child),
    deadlineAt: row.deadline_at,
    ...firstResumed(row.kind, row.outcome, row.first_resumed_at),
    createdAt: row.created_at,
    preparedNo: row.prepared_no,
    resolution: row.outcome === "signal"
      ? { outcome: "signal", payload: row.payload, signalId: row.signal_id, recordedNo: row.recorded_no }
      : row.outcome === null
      ? null
      : { outcome: row.outcome, recordedNo: row.recorded_no },
  };
}

/** What `fn.child_json()` returns: a child that has ended. Of a deleted one `labels` and `job` are those it had. */
export interface ChildRow extends IdentityRow {
  status: ChildResult["status"];
  output: JsonText | null;
  failure: JsonText | null;
  failed_step: string | null;
}

/** What `fn.child_json()` returns, as the result of a child. */
export function toChildResult(row: ChildRow): ChildResult {
  return {
    run: toRunIdentity(row),
    status: row.status,
    output: row.output,
    failure: toFailure(row.failure),
    failedStepName: row.failed_step,
  };
}
