import { ConflictError, NotFoundError, WaitExpiredError } from "../../model/error.ts";
import type { FailureKind } from "../../model/failure.ts";
import type { HoldCode, StrandedJob } from "../../model/hold.ts";
import type { Claim, ClaimResult } from "../../store/claim.ts";
import type { CopiedHistory, HoldRecord, NewHold, RunHistory } from "../../store/hold_record.ts";
import type { Enqueued } from "../../store/new_run.ts";
import type { CreatedChild, PauseResult } from "../../store/pause_request.ts";
import type { Firing, ScheduleRecord } from "../../store/schedule_record.ts";
import { isoTime } from "../../values/iso_time.ts";
import { isSameJson, type JsonText } from "../../values/json.ts";
import { nextDeadlineInMs, type Signal, type SignalOutcome } from "../../model/wait.ts";
import { byNameAndVersion, namesOfPrints } from "../holds.ts";
import { type ClaimedColumns, toClaim } from "../claimed_row.ts";
import { jobNameOf, versionOf } from "../queue_name.ts";
import {
  type IdentityRow,
  type ReplayedStepRow,
  type ScheduleRow,
  toInput,
  toResumedPauses,
  toRunIdentity,
  toSchedule,
  toStepRecord,
  toWait,
  type WaitRow,
} from "../rows.ts";
import { type PauseRow, type RunRow, toPauseRecord, toRunText } from "./rows.ts";
import { toNewRunParameter } from "./writes/parameters.ts";

/** What `fn.claim()` returns. */
export interface ClaimAnswer extends Pick<ClaimResult, "nextTimerAt" | "hasMore" | "aloneSince" | "hasHeld" | "now"> {
  claims: ClaimedRow[];
  failed: (IdentityRow & { error: string; kind: FailureKind })[];
  cancelled: IdentityRow[];
}

/** What `fn.bounded_claim()` returns. */
export interface BoundedClaimAnswer extends Omit<ClaimAnswer, "claims"> {
  /** `null`: they are large, and a repeated call of `fn.claim()` returns them. */
  claims: ClaimedRow[] | null;
}

/** A claimed run with its history. */
interface ClaimedRow extends ClaimedColumns {
  /** Its last hold; `null`: it was never held. */
  hold: { continues: boolean; generation: number } | null;
  copied: CopiedHistory | null;
  steps: ReplayedStepRow[];
  pauses: PauseRow[];
}

/** What `fn.claim()` returns, as the result of a claim. */
export function toClaimResult({ claims, failed, cancelled, ...answer }: ClaimAnswer): ClaimResult {
  return {
    claims: claims.map((row) => readClaim(row, answer.now)),
    failed: failed.map((row) => ({ run: toRunIdentity(row), error: row.error, failureKind: row.kind })),
    cancelled: cancelled.map(toRunIdentity),
    ...answer,
  };
}

function readClaim({ steps, pauses, copied, hold, ...row }: ClaimedRow, now: number): Claim {
  const pauseRecords = pauses.map(toPauseRecord);
  const records = {
    steps: steps.map((step) => toStepRecord(step, now)),
    pauses: pauseRecords,
    resumed: toResumedPauses(pauses, pauseRecords),
    copied,
    isResumed: hold?.generation === row.lease_generation,
    continues: hold?.continues ?? false,
  };
  return toClaim(row, records, now);
}

/** A request to hold a run. */
export function toHoldParameter({ details, ...hold }: NewHold): object {
  return { ...hold, details: JSON.stringify(details) };
}

/** What `fn.get_hold()` returns. */
export interface HoldRow {
  code: HoldCode;
  message: string;
  details: JsonText;
  since: number;
  prints: string[];
}

/** What `fn.get_hold()` returns, as a hold. */
export function toHoldRecord({ code, message, details, since, prints }: HoldRow): HoldRecord {
  return { code, message, since: isoTime(since), details: JSON.parse(details), prints: namesOfPrints(prints) };
}

/** What `fn.get_history()` returns. */
export interface HistoryAnswer {
  run: RunRow;
  input: JsonText | null;
  schema_print: string | null;
  steps: ReplayedStepRow[];
  pauses: PauseRow[];
  copied: CopiedHistory | null;
  now: number;
}

/** What `fn.get_history()` returns, as the history of a run. */
export function toHistory({ run, input, schema_print, steps, pauses, copied, now }: HistoryAnswer): RunHistory {
  return {
    run: toRunText(run),
    input: toInput({ payload: run.payload, input }),
    schemaPrint: schema_print,
    slot: run.slot,
    steps: steps.map((step) => toStepRecord(step, now)),
    pauses: pauses.map(toPauseRecord),
    copied,
    originId: run.origin_id ?? run.id,
  };
}

/** What `fn.get_stranded_jobs()` returns of a queue. */
export interface StrandedRow {
  job: string;
  runs: number;
  oldest_at: number;
}

/** What `fn.get_stranded_jobs()` returns, by name and version. */
export function toStrandedJobs(rows: readonly StrandedRow[]): StrandedJob[] {
  return rows.map(({ job, runs, oldest_at }) => ({
    jobName: jobNameOf(job),
    version: versionOf(job),
    runs,
    oldestAt: isoTime(oldest_at),
  })).sort(byNameAndVersion);
}

/** What `fn.pause()` returns. */
export interface PauseAnswer {
  parked: boolean;
  pauses: PauseRow[];
  created: (IdentityRow & { start_at: number | null; retry_of: IdentityRow | null })[];
  cancelled: IdentityRow[];
  now: number;
}

/** What `fn.pause()` returns, as the result of a pause. */
export function toPauseResult({ parked, pauses, created, cancelled, now }: PauseAnswer): PauseResult {
  const records = pauses.map(toPauseRecord);
  return {
    parked,
    pauses: records,
    created: created.map((row): CreatedChild => ({
      run: toRunIdentity(row),
      startAt: isoTime(row.start_at),
      retryOf: row.retry_of === null ? null : toRunIdentity(row.retry_of),
    })),
    cancelled: cancelled.map(toRunIdentity),
    nextDeadlineInMs: nextDeadlineInMs(records, now),
  };
}

/** What `fn.enqueue()` returns for one run. */
export interface EnqueuedRow {
  disposition: Enqueued["disposition"];
  run: RunRow;
}

/** What `fn.enqueue()` returns for one run, as its outcome. */
export function toEnqueued({ disposition, run }: EnqueuedRow): Enqueued {
  return { disposition, run: toRunText(run) };
}

/** What `fn.signal()` returns: the wait as the signal has left it, or found it. */
export type SignalAnswer =
  | { state: "none" }
  | { state: "expired" }
  | { state: "accepted" | "over"; run: IdentityRow; wait: WaitRow };

/** What `fn.signal()` returns, as the result of a signal; throws if it was refused. */
export function toSignalOutcome(answer: SignalAnswer, waitId: string, signal: Signal): SignalOutcome {
  if (answer.state === "none") throw new NotFoundError(`There is no wait "${waitId}"`);
  if (answer.state === "expired") throw new WaitExpiredError(`The deadline of wait "${waitId}" has passed`);
  const run = toRunIdentity(answer.run);
  if (answer.state === "accepted") return { wait: toWait(run.id, answer.wait), disposition: "accepted", run };
  if (answer.wait.outcome !== "signal") {
    throw new ConflictError(`Cannot signal wait "${waitId}": it is ${answer.wait.status}`);
  }
  // The receipt of the first acceptance: the run had not resumed by then.
  const wait = toWait(run.id, { ...answer.wait, first_resumed_at: null });
  const isSame = wait.signalId === signal.signalId && isSameJson(wait.payload, signal.payload);
  if (!isSame) throw new ConflictError(`Cannot signal wait "${waitId}": another signal came first`);
  return { wait, disposition: "duplicate", run };
}

/** The outcome of a slot. */
export function toFiringParameter({ schedule, next, run, skipsOverlap, skipped }: Firing): object {
  const { name, version } = schedule;
  return { name, version, next, run: run === null ? null : toNewRunParameter(run), skipsOverlap, skipped };
}

/** What `fn.fire_schedule()` returns. */
export interface FiringAnswer {
  schedule: ScheduleRow;
  run: { run: RunRow; disposition: Enqueued["disposition"] } | null;
}

/** What `fn.fire_schedule()` returns, as the result of a firing. */
export function toFiringResult({ schedule, run }: FiringAnswer): { schedule: ScheduleRecord; run: Enqueued | null } {
  return { schedule: toSchedule(schedule), run: run === null ? null : { ...run, run: toRunText(run.run) } };
}
