import type { Held } from "../model/hold.ts";
import type { RunStatus, StoredRun } from "../model/run.ts";
import { actorOf, type OriginText } from "../model/origin.ts";
import { isoTime } from "../values/iso_time.ts";
import type { JsonText } from "../values/json.ts";
import { endRunIdOf } from "./end_runs.ts";
import { jobNameOf, versionOf } from "./queue_name.ts";
import { type IdentityRow, toFailure, toLabels } from "./rows.ts";

/** The columns of a run in both stores. */
export interface RunColumns extends IdentityRow {
  status: RunStatus;
  payload: JsonText | null;
  output: JsonText | null;
  error: string | null;
  failed_step: string | null;
  failure: JsonText | null;
  progress: JsonText | null;
  idempotency_key: string | null;
  /** The key, after another run has taken it. */
  former_key: string | null;
  concurrency_key: string | null;
  lease_owner: string | null;
  lease_expires_at: number | null;
  lease_generation: number;
  created_at: number;
  updated_at: number;
  started_at: number | null;
  completed_at: number | null;
  retrigger_of: string | null;
  retriggered_as: string | null;
  schedule_name: string | null;
  slot_at: number | null;
  start_at: number | null;
  /** `null`: 0. */
  priority: number | null;
  fairness_key: string | null;
  start_by: number | null;
  finish_by: number | null;
  parent_id: string | null;
  /** See `toOnEnd()`. */
  on_end: JsonText | null;
  end_of: string | null;
  completed_as: string | null;
  /** The origin of its trigger. */
  trace: OriginText | null;
  /** The request that cancelled it, and who sent it. */
  ended_by: string | null;
}

/**
 * The columns of a run as a run, with its values as stored JSON.
 *
 * @param held Its hold; `null`: it is not held.
 */
export function readRunColumns(row: RunColumns, held: Held | null): StoredRun {
  const failure = toFailure(row.failure);
  // No spread: an object of so many members takes twice as long with one.
  return {
    id: row.id,
    jobName: jobNameOf(row.job),
    labels: toLabels(row.labels),
    status: row.status,
    payload: row.payload,
    output: row.output,
    error: row.error,
    failedStepName: row.failed_step,
    failure,
    progress: row.progress === null ? null : JSON.parse(row.progress),
    idempotencyKey: row.idempotency_key ?? row.former_key,
    concurrencyKey: row.concurrency_key,
    leaseOwner: row.lease_owner,
    leaseExpiresAt: isoTime(row.lease_expires_at),
    leaseGeneration: row.lease_generation,
    createdAt: isoTime(row.created_at),
    updatedAt: isoTime(row.updated_at),
    startedAt: isoTime(row.started_at),
    completedAt: isoTime(row.completed_at),
    startAt: isoTime(row.start_at),
    priority: row.priority ?? 0,
    fairnessKey: row.fairness_key,
    startBy: isoTime(row.start_by),
    finishBy: isoTime(row.finish_by),
    failureKind: failure?.kind ?? null,
    parentRunId: row.parent_id,
    scheduleName: row.schedule_name,
    slotAt: isoTime(row.slot_at),
    version: versionOf(row.job),
    held,
    endOf: row.end_of,
    endRunId: endRunIdOf(row.on_end, row.status),
    retriggerOf: row.retrigger_of,
    retriggeredAs: row.retriggered_as,
    completedAs: row.completed_as,
    triggeredBy: actorOf(row.trace),
    cancelledBy: actorOf(row.ended_by),
  };
}
