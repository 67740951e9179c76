import type { Failure } from "../../failure.ts";
import type { HoldCode } from "../../hold.ts";
import { isoTime } from "../../iso_time.ts";
import type { JsonText } from "../../json.ts";
import type { LogLevel, LogText } from "../../log.ts";
import { type Labels, parseRun, type Run, type RunIdentity, type RunStatus, type RunText } from "../../run.ts";
import { retryTime, stepId, type StepRecord, type StepStatus, type StepText } from "../../step.ts";
import {
  type ChildResult,
  parseWait,
  type PauseKind,
  type PauseRecord,
  type Wait,
  type WaitStatus,
  type WaitText,
} from "../../wait.ts";
import { jobNameOf, versionOf } from "../queue_name.ts";

/** The columns of a run's identity. */
export interface IdentityRow {
  id: string;
  /** The queue of the version of its job. */
  job: string;
  labels: JsonText;
}

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

/** A row of `runs` with its id, job and labels as a run's identity. */
export function toRunIdentity({ id, job, labels }: IdentityRow): RunIdentity {
  return { id, jobName: jobNameOf(job), labels: toLabels(labels) };
}

/** Labels that cannot be parsed are read as none: one damaged row must not block the others. The object is frozen. */
function toLabels(text: JsonText): Labels {
  try {
    return Object.freeze(JSON.parse(text));
  } catch {
    return Object.freeze({});
  }
}

/** A row of `steps` as a list shows it. */
export interface StepRow {
  name: string;
  position: number;
  status: StepStatus | "retrying";
  output: JsonText | null;
  failure: JsonText | null;
  attempts: number;
  started_at: number;
  completed_at: number | null;
}

/** A row of `steps` as a step of the run, with its output as stored JSON. */
export function toStepText(runId: string, row: StepRow): StepText {
  const failed = toFailure(row.failure);
  return {
    id: stepId(runId, row.name),
    runId,
    name: row.name,
    index: row.position,
    status: row.status === "retrying" ? "failed" : row.status,
    output: row.output,
    error: failed?.message ?? null,
    failure: failed,
    attempts: row.attempts,
    startedAt: isoTime(row.started_at),
    completedAt: isoTime(row.completed_at),
  };
}

/** A row of `steps` as a replay needs it. */
export type ReplayedStepRow =
  & { name: string; position: number; attempts: number; recorded_no: number }
  & (
    | { status: "completed"; output: JsonText | null }
    | { status: "failed"; failure: JsonText }
    | { status: "retrying"; failure: JsonText; retry_at: number }
  );

/** Reads a row of `steps` for a replay. */
export function toStepRecord(row: ReplayedStepRow, now: number): StepRecord {
  return {
    name: row.name,
    index: row.position,
    attempts: row.attempts,
    result: row.status === "completed"
      ? { status: "completed", output: row.output }
      : row.status === "failed"
      ? { status: "failed", failure: JSON.parse(row.failure) }
      : { status: "retrying", failure: JSON.parse(row.failure), retry: retryTime(row.retry_at, now) },
    recordedNo: row.recorded_no,
  };
}

/** A row of `pauses` as a list shows it. */
export interface WaitRow {
  id: string;
  name: string;
  metadata: JsonText | null;
  status: WaitStatus;
  outcome: Wait["outcome"] | "children";
  payload: JsonText | null;
  signal_id: string | null;
  created_at: number;
  deadline_at: number | null;
  suspended_at: number | null;
  resolved_at: number | null;
  first_resumed_at: number | null;
}

/** What `fn.pause_json()` returns of a pause. */
export type PauseRow =
  & WaitRow
  & { seq: number; run_seq: number; kind: PauseKind; awaited: boolean; prepared_no: number | null }
  & { total: number | null; added: number | null; unfinished: number | null }
  /** How its only child ended; `null`: it is not over, or has no child or several ones. */
  & { child: ChildRow | null }
  & (
    | { outcome: "signal"; payload: JsonText; signal_id: string; recorded_no: number }
    | { outcome: "timeout" | "children"; recorded_no: number }
    | { outcome: null }
  );

/** A row of `pauses` as a wait of the run. */
export function toWait(runId: string, row: WaitRow): Wait {
  return parseWait(toWaitText(runId, row));
}

/** A row of `pauses` as a wait of the run, with its values as stored JSON. */
export function toWaitText(runId: string, row: WaitRow): WaitText {
  return {
    id: row.id,
    runId,
    name: row.name,
    metadata: row.metadata,
    status: row.status,
    outcome: row.outcome === "children" ? null : row.outcome,
    payload: row.payload,
    signalId: row.signal_id,
    createdAt: isoTime(row.created_at),
    deadlineAt: isoTime(row.deadline_at),
    suspendedAt: isoTime(row.suspended_at),
    resolvedAt: isoTime(row.resolved_at),
    firstResumedAt: isoTime(row.first_resumed_at),
  };
}

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

/**
 * The column `input` of `inputs`. An input that is equal to the payload is not stored twice: NULL says that they are
 * equal, and an empty string that the input is `undefined`.
 */
export function fromInput(payload: JsonText | null, input: JsonText | null): JsonText | null {
  return input === payload ? null : input ?? "";
}

/** Reads the input that {@linkcode fromInput} wrote. */
export function toInput(row: { payload: JsonText | null; input: JsonText | null }): JsonText | null {
  if (row.input === null) return row.payload;
  return row.input === "" ? null : row.input;
}

/** A row of `logs`. */
export interface LogRow {
  id: string;
  no: number;
  step_name: string | null;
  level: LogLevel;
  message: string;
  data: JsonText | null;
  written_at: number;
}

/** A row of `logs` as a log line of the run, with its data as stored JSON. */
export function toLogText(runId: string, row: LogRow): LogText {
  return {
    id: row.id,
    runId,
    stepName: row.step_name,
    level: row.level,
    message: row.message,
    data: row.data,
    timestamp: isoTime(row.written_at),
  };
}

function toFailure(column: JsonText | null): Failure | null {
  return column === null ? null : JSON.parse(column);
}
