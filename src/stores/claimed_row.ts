import type { Lease } from "../model/lease.ts";
import type { OriginText } from "../model/origin.ts";
import type { Claim } from "../store/claim.ts";
import { isoTime } from "../values/iso_time.ts";
import type { JsonText } from "../values/json.ts";
import { versionOf } from "./queue_name.ts";
import { type IdentityRow, toInput, toRunIdentity } from "./rows.ts";

/** The columns of a run that has been claimed, in `SqliteStore` as in `PostgresStore`. */
export interface ClaimedColumns extends IdentityRow {
  concurrency_key: string | null;
  /** 1 under the first lease. */
  lease_generation: number;
  lease_claim: string;
  lease_expires_at: number;
  recorded: number;
  interruptions: number;
  /** When it was triggered. */
  created_at: number;
  /** When its delay ended; `null`: it had none. */
  start_at: number | null;
  /** When it was claimed first. */
  started_at: number;
  finish_by: number | null;
  priority: number;
  fairness_key: string | null;
  depth: number;
  slot_at: number | null;
  slot: JsonText | null;
  trace: OriginText | null;
  /** The run whose steps have the same idempotency keys; `null`: it has its own. */
  origin_id: string | null;
  payload: JsonText | null;
  input: JsonText | null;
  schema_print: string | null;
}

/** What the row of a claimed run does not have: its records, and whether it was held. */
type ClaimedRecords = Pick<Claim, "steps" | "pauses" | "resumed" | "copied" | "isResumed" | "continues">;

/** A row of a claimed run, with its records, as a claim. */
export function toClaim(row: ClaimedColumns, records: ClaimedRecords, now: number): Claim {
  return {
    run: toRunIdentity(row),
    lease: toLease(row),
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
    originId: row.origin_id ?? row.id,
    ...records,
  };
}

/** The lease that a claim has given. */
export function toLease(
  row: Pick<ClaimedColumns, "id" | "lease_generation" | "lease_claim" | "recorded" | "concurrency_key">,
): Lease {
  return {
    runId: row.id,
    generation: row.lease_generation,
    claimId: row.lease_claim,
    recorded: row.recorded,
    concurrencyKey: row.concurrency_key,
  };
}

/** How long a run was due before its first claim, in milliseconds; `null` if this is a later one. */
function startDelay(
  { lease_generation, created_at, start_at, started_at }: Pick<
    ClaimedColumns,
    "lease_generation" | "created_at" | "start_at" | "started_at"
  >,
): number | null {
  return lease_generation > 1 ? null : Math.max(0, started_at - Math.max(created_at, start_at ?? created_at));
}
