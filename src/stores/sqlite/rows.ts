import type { Failure } from "../../failure.ts";
import { decode, type Json, type JsonText } from "../../json.ts";
import type { LogLevel, LogText } from "../../log.ts";
import { type Labels, parseRun, type Run, type RunIdentity, type RunStatus, type RunText } from "../../run.ts";
import {
  parseStep,
  retryTime,
  type Step,
  stepId,
  type StepRecord,
  type StepStatus,
  type StepText,
} from "../../step.ts";
import type { AwaitedPause } from "../../store.ts";
import { isoTime } from "../../iso_time.ts";
import { parseWait, type PauseKind, type PauseRecord, type Wait, type WaitStatus, type WaitText } from "../../wait.ts";
import type { SqliteRow } from "./sqlite_database.ts";
import type { HeldRun } from "./writes/lease_cache.ts";

/** Reads what {@linkcode toRun} needs; a WHERE on `r` or `i` follows. */
export const SELECT_RUN = "SELECT r.*, i.payload FROM holdfast_runs r JOIN holdfast_inputs i ON i.run_seq = r.seq";

/** A row of {@linkcode SELECT_RUN} as a run. */
export function toRun(row: SqliteRow): Run {
  return parseRun(toRunText(row));
}

/** A row of {@linkcode SELECT_RUN} as a run, with its values as stored JSON. */
export function toRunText(row: SqliteRow): RunText {
  return {
    ...toRunIdentity(row),
    status: row.status as RunStatus,
    payload: text(row.payload),
    output: text(row.output),
    error: text(row.error),
    failedStepName: text(row.failed_step),
    failure: failure(row.failure),
    progress: json(row.progress) as Run["progress"],
    idempotencyKey: text(row.idempotency_key),
    concurrencyKey: text(row.concurrency_key),
    leaseOwner: text(row.lease_owner),
    leaseExpiresAt: isoTime(integer(row.lease_expires_at)),
    leaseGeneration: Number(row.lease_generation),
    createdAt: isoTime(Number(row.created_at)),
    updatedAt: isoTime(Number(row.updated_at)),
    startedAt: isoTime(integer(row.started_at)),
    completedAt: isoTime(integer(row.completed_at)),
    startAt: null,
    priority: 0,
    fairnessKey: null,
    startBy: null,
    finishBy: null,
    failureKind: failure(row.failure)?.kind ?? null,
    parentRunId: null,
    scheduleName: null,
    slotAt: null,
    retriggerOf: text(row.retrigger_of),
    retriggeredAs: text(row.retriggered_as),
  };
}

/** A row of `holdfast_runs` with its id, job and labels as a run's identity. */
export function toRunIdentity(row: SqliteRow): RunIdentity {
  return { id: row.id as string, jobName: row.job as string, labels: toLabels(row.labels as string) };
}

/** A claimed row of `holdfast_runs` as an entry of the lease cache. */
export function toHeldRun(row: SqliteRow): HeldRun {
  return {
    generation: Number(row.lease_generation),
    seq: Number(row.seq),
    job: row.job as string,
    recorded: Number(row.recorded),
    lastReportNo: Number(row.last_report_no),
  };
}

/** Labels that cannot be parsed are read as none: one damaged row must not block the others. The object is frozen. */
function toLabels(text: string): Labels {
  try {
    return Object.freeze(JSON.parse(text));
  } catch {
    return Object.freeze({});
  }
}

/** A row of `holdfast_steps` as a step of the run. */
export function toStep(runId: string, row: SqliteRow): Step {
  return parseStep(toStepText(runId, row));
}

/** A row of `holdfast_steps` as a step of the run, with its output as stored JSON. */
export function toStepText(runId: string, row: SqliteRow): StepText {
  const failed = failure(row.failure);
  return {
    id: stepId(runId, row.name as string),
    runId,
    name: row.name as string,
    index: Number(row.position),
    status: (row.status === "retrying" ? "failed" : row.status) as StepStatus,
    output: text(row.output),
    error: failed?.message ?? null,
    failure: failed,
    attempts: Number(row.attempts),
    startedAt: isoTime(Number(row.started_at)),
    completedAt: isoTime(integer(row.completed_at)),
  };
}

/** A row of `holdfast_steps` as a replay needs it. */
export function toStepRecord(row: SqliteRow, now: number): StepRecord {
  return {
    name: row.name as string,
    index: Number(row.position),
    attempts: Number(row.attempts),
    result: row.status === "completed"
      ? { status: "completed", output: text(row.output) }
      : row.status === "failed"
      ? { status: "failed", failure: failure(row.failure)! }
      : { status: "retrying", failure: failure(row.failure)!, retry: retryTime(Number(row.retry_at), now) },
    recordedNo: Number(row.recorded_no),
  };
}

/** A row of `holdfast_pauses` as a wait of the run. */
export function toWait(runId: string, row: SqliteRow): Wait {
  return parseWait(toWaitText(runId, row));
}

/** A row of `holdfast_pauses` as a wait of the run, with its values as stored JSON. */
export function toWaitText(runId: string, row: SqliteRow): WaitText {
  return {
    id: row.id as string,
    runId,
    name: row.name as string,
    metadata: text(row.metadata),
    status: row.status as WaitStatus,
    outcome: row.outcome as Wait["outcome"],
    payload: text(row.payload),
    signalId: text(row.signal_id),
    createdAt: isoTime(Number(row.created_at)),
    deadlineAt: isoTime(integer(row.deadline_at)),
    suspendedAt: isoTime(integer(row.suspended_at)),
    resolvedAt: isoTime(integer(row.resolved_at)),
    firstResumedAt: isoTime(integer(row.first_resumed_at)),
  };
}

/** A row of `holdfast_pauses` as a replay needs it. */
export function toPauseRecord(row: SqliteRow): PauseRecord {
  const recordedNo = Number(row.recorded_no);
  return {
    id: row.id as string,
    kind: row.kind as PauseKind,
    name: row.name as string,
    metadata: text(row.metadata),
    childCount: 0,
    child: null,
    deadlineAt: integer(row.deadline_at),
    createdAt: Number(row.created_at),
    preparedNo: integer(row.prepared_no),
    resolution: row.outcome === "signal"
      ? {
        outcome: "signal",
        payload: row.payload as JsonText,
        signalId: row.signal_id as string,
        recordedNo,
      }
      : row.outcome === "timeout"
      ? { outcome: "timeout", recordedNo }
      : null,
  };
}

/** A row of `holdfast_pauses` that a run waits on. */
export function toAwaitedPause(row: SqliteRow): AwaitedPause<number> {
  return {
    waitId: row.kind === "wait" ? row.id as string : null,
    name: row.name as string,
    deadlineAt: integer(row.deadline_at),
  };
}

/** A row of `holdfast_steps` whose next attempt a run waits for. */
export function toAwaitedRetry(row: SqliteRow): AwaitedPause<number> {
  return { waitId: null, name: row.name as string, deadlineAt: integer(row.retry_at) };
}

/** A row of `holdfast_logs` as a log line of the run, with its data as stored JSON. */
export function toLogText(runId: string, row: SqliteRow): LogText {
  return {
    id: row.id as string,
    runId,
    stepName: text(row.step_name),
    level: row.level as LogLevel,
    message: row.message as string,
    data: text(row.data),
    timestamp: isoTime(Number(row.written_at)),
  };
}

/**
 * The column `input` of `holdfast_inputs`. An input that is equal to the payload is not stored twice: NULL says that
 * they are equal, and an empty string that the input is `undefined`.
 */
export function fromInput(payload: JsonText | null, input: JsonText | null): JsonText | null {
  return input === payload ? null : input ?? "";
}

/** Reads the input that {@linkcode fromInput} wrote. */
export function toInput(row: SqliteRow): JsonText | null {
  if (row.input === null) return text(row.payload);
  return row.input === "" ? null : text(row.input);
}

function json(column: SqliteRow[string] | undefined): Json {
  return decode((column ?? null) as JsonText | null) ?? null;
}

function failure(column: SqliteRow[string] | undefined): Failure | null {
  return typeof column === "string" ? JSON.parse(column) : null;
}

function text(column: SqliteRow[string] | undefined): string | null {
  return (column ?? null) as string | null;
}

function integer(column: SqliteRow[string] | undefined): number | null {
  return column === null || column === undefined ? null : Number(column);
}
