import { NotFoundError } from "../../model/error.ts";
import type { FailureKind } from "../../model/failure.ts";
import type { Claim, ClaimResult } from "../../store/claim.ts";
import type { CopiedHistory } from "../../store/hold_record.ts";
import type { Enqueued } from "../../store/new_run.ts";
import type { CreatedChild, PauseResult } from "../../store/pause_request.ts";
import type { ScheduleRecord } from "../../store/schedule_record.ts";
import { isoTime } from "../../values/iso_time.ts";
import type { JsonText } from "../../values/json.ts";
import { nextDeadlineInMs, type PauseRecord } from "../../model/wait.ts";
import { type ClaimedColumns, toClaim } from "../claimed_row.ts";
import {
  type ChildRow,
  fromInput,
  type IdentityRow,
  type PauseColumns,
  readPauseColumns,
  type ReplayedStepRow,
  type ScheduleRow,
  type TakenMessageRow,
  toChildResult,
  toResumedPauses,
  toRunIdentity,
  toSchedule,
  toStepRecord,
} from "../rows.ts";
import {
  describeTarget,
  isSameMessage,
  messageIdError,
  runEndedError,
  tooManyMessagesError,
} from "../../model/message.ts";
import { isTerminal, type RunStatus, type StoredRun } from "../../model/run.ts";
import type { SendOutcome, SendRequest } from "../../store/send_request.ts";
import { toNewRunParameter } from "./writes/parameters.ts";
import type { HoldCode } from "../../model/hold.ts";
import { readRunColumns, type RunColumns } from "../run_columns.ts";

/** What `fn.claim()` returns. */
export interface ClaimAnswer extends Pick<ClaimResult, "nextTimerAt" | "hasMore" | "aloneSince" | "hasHeld" | "now"> {
  claims: ClaimedRow[];
  failed: (IdentityRow & { error: string; kind: FailureKind })[];
  cancelled: IdentityRow[];
}

/** What `fn.bounded_claim()` returns: the claimed runs, or, if their histories are large, what they are without them. */
export type BoundedClaimAnswer =
  | ClaimAnswer & { heads: null }
  | Omit<ClaimAnswer, "claims"> & { claims: null; heads: ClaimedHead[] };

/** A claimed run without its input and its history. */
export type ClaimedHead = Omit<ClaimedRow, keyof InputColumns | "steps" | "pauses">;

/** The input of a claimed run. */
export type InputColumns = Pick<ClaimedColumns, "payload" | "input" | "schema_print">;

/** A claimed run with its history. */
export interface ClaimedRow extends ClaimedColumns {
  /** Its last hold; `null`: it was never held. */
  hold: { continues: boolean; generation: number } | null;
  copied: CopiedHistory | null;
  steps: ReplayedStepRow[];
  pauses: PauseRow[];
}

/** What `fn.claim()` returns, as the result of a claim. */
export function toClaimResult(answer: ClaimAnswer): ClaimResult {
  const { claims, failed, cancelled, nextTimerAt, hasMore, aloneSince, hasHeld, now } = answer;
  return {
    claims: claims.map((row) => readClaim(row, now)),
    failed: failed.map((row) => ({ run: toRunIdentity(row), error: row.error, failureKind: row.kind })),
    cancelled: cancelled.map(toRunIdentity),
    nextTimerAt,
    hasMore,
    aloneSince,
    hasHeld,
    now,
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

/** What `fn.fire_schedule()` returns. */
export interface FiringAnswer {
  schedule: ScheduleRow;
  run: { run: RunRow; disposition: Enqueued["disposition"] } | null;
}

/** What `fn.fire_schedule()` returns, as the result of a firing. */
export function toFiringResult({ schedule, run }: FiringAnswer): { schedule: ScheduleRecord; run: Enqueued | null } {
  return { schedule: toSchedule(schedule), run: run === null ? null : { ...run, run: toRunText(run.run) } };
}

/** A message to send. */
export function toSendParameter({ to, message, start, expect }: SendRequest): object {
  return {
    ...("runId" in to ? to : { names: to.jobNames, key: to.key }),
    ...message,
    input: fromInput(message.payload, message.input),
    start: start === null ? null : toNewRunParameter(start),
    ...(expect === undefined ? {} : { expect }),
  };
}

/** What `fn.send()` returns. */
export type SendAnswer =
  | { state: "none" | "changed"; run: null }
  | {
    state: "known";
    run: InboxRow;
    message: { name: string; payload: JsonText };
    started: RunRow | null;
  }
  | { state: "accepted"; run: InboxRow; started?: RunRow }
  | { state: "ended" | "full" | "changed"; run: InboxRow };

/** A run to which a message was sent. */
interface InboxRow extends IdentityRow {
  status: RunStatus;
  retriggered_as: string | null;
}

/** What `fn.send()` returns, as the outcome; throws if it was refused. */
export function toSendOutcome(answer: SendAnswer, { to, message, expect }: SendRequest): SendOutcome {
  const run = answer.run === null ? null : toRunIdentity(answer.run);
  if (run === null || answer.run === null) {
    if (answer.state === "changed") return { changed: true, found: null };
    throw new NotFoundError(`There is no ${describeTarget(to)}`);
  }
  if (answer.state === "known") {
    if (isSameMessage(answer.message, message)) {
      return { run, disposition: "duplicate", started: toStarted(answer.started) };
    }
    if (expect === undefined || expect === run.id) throw messageIdError(run.id, message.id);
    return { changed: true, found: run };
  }
  const { status, retriggered_as: retriggeredAs } = answer.run;
  if (answer.state === "ended") throw runEndedError({ runId: run.id, status, retriggeredAs }, isTerminal(status));
  if (answer.state === "full") throw tooManyMessagesError(run.id);
  return answer.state === "changed"
    ? { changed: true, found: run }
    : { run, disposition: "accepted", started: toStarted(answer.state === "accepted" ? answer.started ?? null : null) };
}

function toStarted(row: RunRow | null): Enqueued | null {
  return row === null ? null : { run: toRunText(row), disposition: "created" };
}

/** What `fn.run_json()` returns of a run. */
export interface RunRow extends RunColumns {
  seq: number;
  interruptions: number;
  slot: JsonText | null;
  origin_id: string | null;
  /** Its hold; `null`: it is not held. */
  held: { code: HoldCode; message: string; since: number } | null;
}

/** What `fn.run_json()` returns, as a run with its values as stored JSON. */
export function toRunText(row: RunRow): StoredRun {
  return readRunColumns(row, row.held === null ? null : { ...row.held, since: isoTime(row.held.since) });
}

/** What `fn.pause_json()` returns of a pause. */
export type PauseRow = PauseColumns & {
  awaited: boolean;
  /** How its only child ended; `null`: it is not over, or has no child or several ones. */
  child: ChildRow | null;
  /** The messages that it took; `null`: none have ended it. */
  messages: TakenMessageRow[] | null;
};

/** What `fn.pause_json()` returns, as a replay needs it. */
export function toPauseRecord(row: PauseRow): PauseRecord {
  return readPauseColumns(row, row.child === null ? null : toChildResult(row.child), row.messages);
}
