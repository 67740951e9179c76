import type { Claim } from "../../../store/claim.ts";
import { toClaim } from "../../claimed_row.ts";
import { readCopied } from "../changed_code/copies.ts";
import { readHoldOfClaim } from "../changed_code/holds.ts";
import { readPauseRecords } from "../children/child_results.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { sql } from "../statement.ts";
import type { ClaimedRow } from "../writes/claim.ts";
import { type ReplayedPauseRow, type ReplayedStepRow, toResumedPauses, toStepRecord } from "../../rows.ts";

// How many steps are read without a break.
const SLICE = 2_000;
// Each further column would take a tenth of a microsecond for each pause.
const PAUSE_COLUMNS =
  sql`seq, id, kind, name, metadata, outcome, payload, signal_id, prepared_no, recorded_no, created_at,
  deadline_at, suspended_at, resolved_at, first_resumed_at, total, added, trace`;

/**
 * Reads the histories of claimed runs. It yields during long reads, so that the event loop stays free. A run that lost
 * its lease meanwhile is left out if its history may be incomplete: it may have been deleted.
 */
export function* readClaims(
  db: SqliteDatabase,
  rows: readonly ClaimedRow[],
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
    const pauses = row.has_pauses === 0 ? [] : db.all<ReplayedPauseRow>`
      SELECT ${PAUSE_COLUMNS} FROM holdfast_pauses WHERE run_seq = ${row.seq} ORDER BY seq`;
    const pauseRecords = readPauseRecords(db, pauses);
    if (row.recorded !== 0 && steps.length === 0 && pauses.length === 0) doubtful.add(row);
    const now = clock();
    const records = {
      steps: steps.map((step) => toStepRecord(step, now)),
      pauses: pauseRecords,
      resumed: toResumedPauses(pauses, pauseRecords),
      copied: row.origin_id === null ? null : readCopied(db, row.seq),
      ...readHoldOfClaim(db, row),
    };
    claims.push(toClaim(row, records, now));
  }
  return claims.filter((_, at) => {
    const row = rows[at]!; // there is one claim for each row
    return !doubtful.has(row) || isStillLeased(db, row);
  });
}

function readSteps(db: SqliteDatabase, { seq }: ClaimedRow, after: string): ReplayedStepRow[] {
  return db.all<ReplayedStepRow>`SELECT name, position, status, output, failure, attempts, retry_at, recorded_no
    FROM holdfast_steps WHERE run_seq = ${seq} AND name > ${after} AND status <> 'cancelled'
      ORDER BY name LIMIT ${SLICE}`;
}

function isStillLeased(db: SqliteDatabase, { seq, lease_generation: generation }: ClaimedRow): boolean {
  const run = db.get`
    SELECT 1 FROM holdfast_runs WHERE seq = ${seq} AND lease_generation = ${generation} AND status = 'running'`;
  return run !== undefined;
}
