import type { Claim } from "../store.ts";
import type { SqliteDatabase, SqliteRow } from "./sqlite_database.ts";
import { toInput, toPauseRecord, toRunIdentity, toStepRecord } from "./sqlite_rows.ts";

// How many steps are read without a break.
const SLICE = 2_000;

/**
 * Reads the histories of runs that were claimed. It yields wherever there is much to read, so that the event loop stays
 * free. A run that was cancelled or deleted meanwhile is left out: its history may be gone, or part of it.
 */
export function* readClaims(db: SqliteDatabase, rows: readonly SqliteRow[]): Generator<void, Claim[]> {
  const claims: Claim[] = [];
  let read = 0;
  for (const row of rows) {
    const steps: SqliteRow[] = [];
    let page = row.recorded === 0 ? [] : readSteps(db, row, "");
    let isWhole = true;
    while (page.length > 0) {
      steps.push(...page);
      read += page.length;
      if (read >= SLICE) {
        read = 0;
        isWhole = false;
        yield;
      }
      page = page.length < SLICE ? [] : readSteps(db, row, page.at(-1)!.name as string);
    }
    const pauses = row.has_pauses === 0
      ? []
      : db.all("SELECT * FROM holdfast_pauses WHERE run_seq = ? ORDER BY seq", row.seq!);
    const hasNone = row.recorded !== 0 && steps.length === 0 && pauses.length === 0;
    if ((isWhole && !hasNone) || isHeld(db, row)) claims.push(toClaim(row, steps, pauses));
  }
  return claims;
}

function readSteps(db: SqliteDatabase, { seq }: SqliteRow, after: string): SqliteRow[] {
  return db.all(
    `SELECT name, position, status, output, error_name, error_message, attempts, retry_at, recorded_no
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

function toClaim(row: SqliteRow, steps: readonly SqliteRow[], pauses: readonly SqliteRow[]): Claim {
  return {
    run: toRunIdentity(row),
    lease: {
      runId: row.id as string,
      generation: Number(row.lease_generation),
      concurrencyKey: row.concurrency_key as string | null,
    },
    leaseExpiresAt: Number(row.lease_expires_at),
    input: toInput(row),
    execution: Number(row.interruptions) + 1,
    startedAt: Number(row.started_at),
    steps: steps.map(toStepRecord),
    pauses: pauses.map(toPauseRecord),
  };
}
