import { isoTime } from "../../values/iso_time.ts";
import type { FailureKind } from "../../failure.ts";
import type { JsonText } from "../../values/json.ts";
import type { Claim, ClaimResult } from "../../store/claim.ts";
import type { CopiedHistory } from "../../store/hold_record.ts";
import type { TraceText } from "../../trace_context.ts";
import { versionOf } from "../queue_name.ts";
import { startDelay } from "../start_delay.ts";
import {
  type IdentityRow,
  type ReplayedStepRow,
  toInput,
  toResumedPauses,
  toRunIdentity,
  toStepRecord,
} from "../rows.ts";
import { type PauseRow, toPauseRecord } from "./rows.ts";

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
interface ClaimedRow extends IdentityRow {
  concurrency_key: string | null;
  lease_generation: number;
  lease_claim: string;
  recorded: number;
  lease_expires_at: number;
  interruptions: number;
  created_at: number;
  start_at: number | null;
  started_at: number;
  priority: number;
  fairness_key: string | null;
  depth: number;
  slot_at: number | null;
  slot: JsonText | null;
  trace: TraceText | null;
  finish_by: number | null;
  origin_id: string | null;
  payload: JsonText | null;
  input: JsonText | null;
  schema_print: string | null;
  /** Its last hold; `null`: it was never held. */
  hold: { continues: boolean; generation: number } | null;
  copied: CopiedHistory | null;
  steps: ReplayedStepRow[];
  pauses: PauseRow[];
}

/** What `fn.claim()` returns, as the result of a claim. */
export function toClaimResult({ claims, failed, cancelled, ...answer }: ClaimAnswer): ClaimResult {
  return {
    claims: claims.map((row) => toClaim(row, answer.now)),
    failed: failed.map((row) => ({ run: toRunIdentity(row), error: row.error, failureKind: row.kind })),
    cancelled: cancelled.map(toRunIdentity),
    ...answer,
  };
}

function toClaim(row: ClaimedRow, now: number): Claim {
  return {
    run: toRunIdentity(row),
    lease: {
      runId: row.id,
      generation: row.lease_generation,
      claimId: row.lease_claim,
      recorded: row.recorded,
      concurrencyKey: row.concurrency_key,
    },
    leaseExpiresAt: row.lease_expires_at,
    input: toInput(row),
    execution: row.interruptions + 1,
    startedAgoMs: Math.max(0, now - row.started_at),
    startDelayMs: startDelay(row),
    priority: row.priority,
    fairnessKey: row.fairness_key,
    depth: row.depth,
    slotAt: isoTime(row.slot_at),
    slot: row.slot,
    trace: row.trace,
    finishInMs: row.finish_by === null ? null : Math.max(0, row.finish_by - now),
    version: versionOf(row.job),
    schemaPrint: row.schema_print,
    isResumed: row.hold?.generation === row.lease_generation,
    continues: row.hold?.continues ?? false,
    copied: row.copied,
    originId: row.origin_id ?? row.id,
    steps: row.steps.map((step) => toStepRecord(step, now)),
    pauses: row.pauses.map(toPauseRecord),
    resumed: toResumedPauses(row.pauses),
  };
}
