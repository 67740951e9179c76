import type { Lease } from "../../../lease.ts";
import type { Claim } from "../../../store.ts";
import type { SqliteDatabase, SqliteRow } from "../sqlite_database.ts";
import { toInput, toPauseRecord, toRunIdentity, toStepRecord } from "../rows.ts";

// How many steps are read without a break.
const SLICE = 2_000;

/**
 * Reads the histories of claimed runs. It yields during long reads, so that the event loop stays free. A run that lost
 * its lease meanwhile is left out if its history may be incomplete: it may have been deleted.
 */
export function* readClaims(
  db: SqliteDatabase,
  rows: readonly SqliteRow[],
  clock: () => number,
): Generator<void, Claim[]> {
  const claims: Claim[] = [];
  const doubtful = new Set<SqliteRow>();
  let read = 0;
  for (const [at, row] of rows.entries()) {
    const steps: SqliteRow[] = [];
    let page = row.recorded === 0 ? [] : readSteps(db, row, "");
    while (page.length > 0) {
      steps.push(...page);
      read += page.length;
      if (read >= SLICE) {
        read = 0;
        for (const other of rows.slice(0, at + 1)) doubtful.add(other);
        yield;
      }
      page = page.length < SLICE ? [] : readSteps(db, row, page.at(-1)!.name as string);
    }
    const pauses = row.has_pauses === 0
      ? []
      : db.all("SELECT * FROM holdfast_pauses WHERE run_seq = ? ORDER BY seq", row.seq!);
    if (row.recorded !== 0 && steps.length === 0 && pauses.length === 0) doubtful.add(row);
    claims.push(toClaim(row, steps, pauses, clock()));
  }
  return claims.filter((_, at) => !doubtful.has(rows[at]!) || isHeld(db, rows[at]!));
}

function readSteps(db: SqliteDatabase, { seq }: SqliteRow, after: string): SqliteRow[] {
  return db.all(
    `SELECT name, position, status, output, failure, attempts, retry_at, recorded_no
     FROM holdfast_steps WHERE run_seq = ? AND name > ? AND status <> 'cancelled' ORDER BY name LIMIT ?`,
    seq!,
    after,
    SLICE,
  );
}

function isHeld(db: SqliteDatabase, { seq, lease_generation: generation }: SqliteRow): boolean {
  const held = db.get(
    "SELECT 1 FROM holdfast_runs WHERE seq = ? AND lease_generation = ? AND status = 'running'",
    seq!,
    generation!,
  );
  return held !== undefined;
}

/** The lease of a claimed run. */
export function toLease(row: SqliteRow): Lease {
  return {
    runId: row.id as string,
    generation: Number(row.lease_generation),
    concurrencyKey: row.concurrency_key as string | null,
  };
}

function toClaim(row: SqliteRow, steps: readonly SqliteRow[], pauses: readonly SqliteRow[], now: number): Claim {
  return {
    run: toRunIdentity(row),
    lease: toLease(row),
    leaseExpiresAt: Number(row.lease_expires_at),
    input: toInput(row),
    execution: Number(row.interruptions) + 1,
    startedAgoMs: Math.max(0, now - Number(row.started_at)),
    priority: 0,
    fairnessKey: null,
    depth: 0,
    slotAt: null,
    finishInMs: null,
    originId: (row.origin_id ?? row.id) as string,
    steps: steps.map((step) => toStepRecord(step, now)),
    pauses: pauses.map(toPauseRecord),
  };
}
