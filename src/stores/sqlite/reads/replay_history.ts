import type { Lease } from "../../../model/lease.ts";
import { isoTime } from "../../../values/iso_time.ts";
import type { Claim } from "../../../store/claim.ts";
import { versionOf } from "../../queue_name.ts";
import { startDelay } from "../../start_delay.ts";
import { readCopied } from "../changed_code/copies.ts";
import { readHoldOfClaim } from "../changed_code/holds.ts";
import { readPauseRecord } from "../children/child_results.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import type { ClaimedRow } from "../writes/claim.ts";
import { type ReplayedStepRow, toInput, toResumedPauses, toRunIdentity, toStepRecord } from "../../rows.ts";
import type { PauseRow } from "../rows.ts";

// How many steps are read without a break.
const SLICE = 2_000;

/**
 * Reads the histories of claimed runs. It yields during long reads, so that the event loop stays free. A run that lost
 * its lease meanwhile is left out if its history may be incomplete: it may have been deleted.
 */
export function* readClaims(
  db: SqliteDatabase,
  rows: readonly ClaimedRow[],
  claimId: string,
  clock: () => number,
): Generator<void, Claim[]> {
  const claims: Claim[] = [];
  const doubtful = new Set<ClaimedRow>();
  let read = 0;
  for (const [at, row] of rows.entries()) {
    const steps: ReplayedStepRow[] = [];
    let page = row.recorded === 0 ? [] : readSteps(db, row, "");
    while (page.length > 0) {
      steps.push(...page);
      read += page.length;
      if (read >= SLICE) {
        read = 0;
        for (const other of rows.slice(0, at + 1)) doubtful.add(other);
        yield;
      }
      page = page.length < SLICE ? [] : readSteps(db, row, page.at(-1)!.name); // a full page has a last row
    }
    const pauses = row.has_pauses === 0
      ? []
      : db.all<PauseRow>("SELECT * FROM holdfast_pauses WHERE run_seq = ? ORDER BY seq", row.seq);
    if (row.recorded !== 0 && steps.length === 0 && pauses.length === 0) doubtful.add(row);
    claims.push(toClaim(db, row, claimId, steps, pauses, clock()));
  }
  return claims.filter((_, at) => {
    const row = rows[at]!; // there is one claim for each row
    return !doubtful.has(row) || isHeld(db, row);
  });
}

function readSteps(db: SqliteDatabase, { seq }: ClaimedRow, after: string): ReplayedStepRow[] {
  return db.all<ReplayedStepRow>(
    `SELECT name, position, status, output, failure, attempts, retry_at, recorded_no
     FROM holdfast_steps WHERE run_seq = ? AND name > ? AND status <> 'cancelled' ORDER BY name LIMIT ?`,
    seq,
    after,
    SLICE,
  );
}

function isHeld(db: SqliteDatabase, { seq, lease_generation: generation }: ClaimedRow): boolean {
  const held = db.get(
    "SELECT 1 FROM holdfast_runs WHERE seq = ? AND lease_generation = ? AND status = 'running'",
    seq,
    generation,
  );
  return held !== undefined;
}

/** The lease that a claim has given. */
export function toLease(row: ClaimedRow, claimId: string): Lease {
  return {
    runId: row.id,
    generation: row.lease_generation,
    claimId,
    recorded: row.recorded,
    concurrencyKey: row.concurrency_key,
  };
}

function toClaim(
  db: SqliteDatabase,
  row: ClaimedRow,
  claimId: string,
  steps: readonly ReplayedStepRow[],
  pauses: readonly PauseRow[],
  now: number,
): Claim {
  return {
    run: toRunIdentity(row),
    lease: toLease(row, claimId),
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
    ...readHoldOfClaim(db, row),
    copied: row.origin_id === null ? null : readCopied(db, row.seq),
    originId: row.origin_id ?? row.id,
    steps: steps.map((step) => toStepRecord(step, now)),
    pauses: pauses.map((pause) => readPauseRecord(db, pause)),
    resumed: toResumedPauses(pauses),
  };
}
