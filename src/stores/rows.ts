import type { FactValue } from "../model/fact.ts";
import type { Failure } from "../model/failure.ts";
import { firstResumed } from "./record_rules.ts";
import type { JobPause } from "../store/operate.ts";
import type { OpenWaitRecord } from "../store/operator_reads.ts";
import type { ScheduleRecord } from "../store/schedule_record.ts";
import { isoTime } from "../values/iso_time.ts";
import type { JsonText } from "../values/json.ts";
import type { LogLevel, LogText } from "../model/log.ts";
import { type MessageRecord, messageStatus, type MessageText } from "../model/message.ts";
import type { Labels, RunIdentity } from "../model/run.ts";
import { retryTime, stepId, type StepRecord, type StepStatus, type StepText } from "../model/step.ts";
import { actorOf, type OriginText } from "../model/origin.ts";
import {
  type ChildResult,
  parseWait,
  type PauseKind,
  type PauseRecord,
  type ResumedPause,
  type Wait,
  type WaitStatus,
  type WaitText,
} from "../model/wait.ts";
import { jobNameOf, versionOf } from "./queue_name.ts";
import type { WaitOfJob } from "../store/transaction.ts";

// What the tables of `SqliteStore` and of `PostgresStore` have in common. The names of their columns are the same; those
// of the tables have no prefix here.

/** The columns of a run's identity. */
export interface IdentityRow {
  id: string;
  /** The queue of the version of its job. */
  job: string;
  labels: JsonText;
}

/** The id, job and labels of a row of `runs` as a run's identity. */
export function toRunIdentity({ id, job, labels }: IdentityRow): RunIdentity {
  return { id, jobName: jobNameOf(job), labels: toLabels(labels) };
}

/** Labels that cannot be parsed are read as none: one damaged row must not block the others. The object is frozen. */
export function toLabels(text: JsonText): Labels {
  if (text === "{}") return NO_LABELS;
  try {
    return Object.freeze(JSON.parse(text));
  } catch {
    return NO_LABELS;
  }
}

const NO_LABELS: Labels = Object.freeze({});

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
  outcome: Wait["outcome"] | "children" | "messages";
  payload: JsonText | null;
  signal_id: string | null;
  created_at: number;
  deadline_at: number | null;
  suspended_at: number | null;
  resolved_at: number | null;
  first_resumed_at: number | null;
  payload_schema: JsonText | null;
  trace: OriginText | null;
}

/** A row of `pauses` as a wait of the run. */
export function toWait(runId: string, row: WaitRow): Wait {
  return parseWait(toWaitText(runId, row));
}

/** A row of `pauses` that is an open wait, with columns of its run. */
export interface OpenWaitRow extends WaitRow, Omit<IdentityRow, "id"> {
  seq: number;
  run_id: string;
}

/** Such a row as a list of open waits shows it. */
export function toOpenWait(row: OpenWaitRow): OpenWaitRecord {
  return {
    wait: toWait(row.run_id, row),
    run: toRunIdentity({ ...row, id: row.run_id }),
    payloadSchema: row.payload_schema,
    place: { deadlineAt: row.deadline_at, seq: row.seq },
  };
}

/** A row of `pauses` with the id and the queue of its run. */
export function toWaitOfJob(row: WaitRow & { run_id: string; job: string }): WaitOfJob {
  return { wait: toWait(row.run_id, row), jobName: jobNameOf(row.job), version: versionOf(row.job) };
}

/** A row of `pauses` as a wait of the run, with its values as stored JSON. */
export function toWaitText(runId: string, row: WaitRow): WaitText {
  return {
    id: row.id,
    runId,
    name: row.name,
    metadata: row.metadata,
    status: row.status,
    outcome: row.outcome === "signal" || row.outcome === "timeout" ? row.outcome : null,
    payload: row.payload,
    signalId: row.signal_id,
    signalledBy: actorOf(row.trace),
    createdAt: isoTime(row.created_at),
    deadlineAt: isoTime(row.deadline_at),
    suspendedAt: isoTime(row.suspended_at),
    resolvedAt: isoTime(row.resolved_at),
    firstResumedAt: isoTime(row.first_resumed_at),
    ...(row.payload_schema === null ? {} : { payloadSchema: JSON.parse(row.payload_schema) }),
  };
}

/** A row of `pauses` as a replay needs it. */
export type ReplayedPauseRow =
  & Omit<WaitRow, "status" | "payload_schema">
  & { seq: number; kind: PauseKind; prepared_no: number | null; total: number | null; added: number | null }
  & (
    | { outcome: "signal"; payload: JsonText; signal_id: string; recorded_no: number }
    | { outcome: "timeout" | "children" | "messages"; recorded_no: number }
    | { outcome: null }
  );

/** The columns of a pause in both stores. */
export type PauseColumns =
  & WaitRow
  & ReplayedPauseRow
  & { run_seq: number; unfinished: number | null }
  /** `receive`: what a receive takes, as JSON (`Receive`); `"closed"` once it has closed the inbox. */
  & { receive: JsonText | null };

/**
 * The columns of a pause as a replay needs it.
 *
 * @param child How its only child ended; `null`: it is not over, or has no child or several ones.
 * @param messages What it took, if it is a receive that messages ended.
 */
export function readPauseColumns(
  row: ReplayedPauseRow,
  child: ChildResult | null,
  messages?: readonly TakenMessageRow[] | null,
): PauseRecord {
  return {
    id: row.id,
    kind: row.kind,
    name: row.name,
    metadata: row.metadata,
    childCount: row.added ?? 0,
    childTotal: row.total ?? 0,
    child,
    deadlineAt: row.deadline_at,
    ...firstResumed(row.kind, row.outcome, row.first_resumed_at),
    createdAt: row.created_at,
    preparedNo: row.prepared_no,
    ...(messages ? { messages: messages.map(toMessageRecord) } : {}),
    resolution: row.outcome === "signal"
      ? { outcome: "signal", payload: row.payload, signalId: row.signal_id, recordedNo: row.recorded_no }
      : row.outcome === null
      ? null
      : { outcome: row.outcome, recordedNo: row.recorded_no },
  };
}

/** A child that has ended. Of a deleted one `labels` and `job` are those it had. */
export interface ChildRow extends IdentityRow {
  status: ChildResult["status"];
  output: JsonText | null;
  failure: JsonText | null;
  failed_step: string | null;
}

/** A child that has ended, as the result of a child. */
export function toChildResult(row: ChildRow, toIdentity = toRunIdentity): ChildResult {
  return {
    run: toIdentity(row),
    status: row.status,
    output: row.output,
    failure: toFailure(row.failure),
    failedStepName: row.failed_step,
  };
}

/** A row of `messages` that a receive took. */
export interface TakenMessageRow {
  id: string;
  name: string;
  payload: JsonText;
  input: JsonText | null;
  accepted_at: number;
}

function toMessageRecord(row: TakenMessageRow): MessageRecord {
  return { id: row.id, name: row.name, input: toInput(row), acceptedAt: row.accepted_at };
}

/** A row of `messages` as a list shows it, with what took it. */
export interface MessageRow extends Omit<TakenMessageRow, "input"> {
  trace: OriginText | null;
  pause_seq: number | null;
  received_at: number | null;
  received_by: string | null;
  /** Whether its run has ended. */
  has_ended: boolean | number;
}

/** A row of `messages` as a message of the run, with its value as stored JSON. */
export function toMessageText(row: MessageRow): MessageText {
  return {
    id: row.id,
    name: row.name,
    payload: row.payload,
    status: messageStatus(row.pause_seq !== null, Boolean(row.has_ended)),
    acceptedAt: isoTime(row.accepted_at),
    sentBy: actorOf(row.trace),
    receivedAt: isoTime(row.received_at),
    receivedBy: row.received_by,
  };
}

/**
 * The rows of `pauses` that runs have resumed after, and the records that were made of them.
 *
 * A column of a row of `node:sqlite` takes several times as long to read as a member of a record.
 */
export function toResumedPauses(
  rows: readonly Pick<WaitRow, "suspended_at" | "resolved_at" | "first_resumed_at" | "trace">[],
  records: readonly PauseRecord[],
): ResumedPause[] {
  return rows.flatMap(
    ({ suspended_at: suspendedAt, resolved_at: resolvedAt, first_resumed_at: firstResumedAt, trace }, at) => {
      const { id, kind, name, resolution } = records[at]!; // there is one for each row
      if (resolution === null || suspendedAt === null || resolvedAt === null || firstResumedAt === null) return [];
      return [{ id, kind, name, outcome: resolution.outcome, suspendedAt, resolvedAt, firstResumedAt, trace }];
    },
  );
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

/** A row of the table of schedules, in both stores. */
export interface ScheduleRow {
  name: string;
  job: string;
  options: JsonText;
  declared: JsonText | null;
  paused_at: number | null;
  paused_by: string | null;
  next_at: number | null;
  last_slot_at: number | null;
  last_run_id: string | null;
  skipped: number;
  error: string | null;
  version: number;
}

/** A row of the table of schedules as a schedule. */
export function toSchedule(row: ScheduleRow): ScheduleRecord {
  return {
    name: row.name,
    jobName: row.job,
    options: row.options,
    declared: row.declared,
    pausedAt: row.paused_at,
    pausedBy: row.paused_by,
    nextAt: row.next_at,
    lastSlotAt: row.last_slot_at,
    lastRunId: row.last_run_id,
    skipped: row.skipped,
    error: row.error,
    version: row.version,
  };
}

/** A row of the table of paused jobs, in both stores. */
export interface JobPauseRow {
  job: string;
  paused_at: number;
  paused_by: string | null;
  note: string | null;
}

/** A row of the table of paused jobs as the pause of a job. */
export function toJobPause({ job, paused_at, paused_by, note }: JobPauseRow): JobPause {
  return { jobName: job, since: isoTime(paused_at), by: paused_by, note };
}

/** The columns of a value that a fact leaves out; those are left out that it does not have. */
export interface FactValueRow {
  json?: JsonText | null;
  error?: string | null;
  failure?: JsonText | null;
  failed_step?: string | null;
}

/** The columns of a value that a fact leaves out, as the value. */
export function toFactValue({ json = null, error = null, failure = null, failed_step }: FactValueRow): FactValue {
  return { json, error: toFailure(failure)?.message ?? error, failedStepName: failed_step ?? null };
}

/** Parses a stored failure. */
export function toFailure(column: JsonText | null): Failure | null {
  return column === null ? null : JSON.parse(column);
}
