import type { JsonText } from "../../../values/json.ts";
import type { RunHistory } from "../../../store/hold_record.ts";
import { readCopied, RETRY } from "../writes/retry_links.ts";
import { readPauseRecords } from "../children/child_results.ts";
import {
  type ReplayedPauseRow,
  type ReplayedStepRow,
  toInput,
  toResumedPauses,
  toStepRecord,
  toWaitOfJob,
} from "../../rows.ts";
import { findRunRow, type PauseRow, toAwaitedPause, toRunText } from "../rows.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import type { Claim } from "../../../store/claim.ts";
import { toClaim } from "../../claimed_row.ts";
import { newEndOf } from "../../end_runs.ts";
import { readHoldOfClaim } from "../changed_code/holds.ts";
import { isAmong, sql } from "../statement.ts";
import type { ClaimedRow } from "../writes/claim.ts";
import type { RunState } from "../../../store/run_query.ts";
import { isoTime } from "../../../values/iso_time.ts";
import { readEnd } from "../journal/read_journal.ts";
import { readRetries } from "../writes/pauses.ts";
import type { RunOfJob, WaitOfJob } from "../../../store/transaction.ts";
import { jobNameOf, versionOf } from "../../queue_name.ts";

/** All that a replay of a run needs. See `Store.getHistory()`. */
export function readHistory(db: SqliteDatabase, runId: string, now: number): RunHistory | null {
  const row = findRunRow(db, runId);
  if (row === undefined) return null;
  const { seq, payload } = row;
  const { input, schema_print, slot, origin_id } = db.one<
    { input: JsonText | null; schema_print: string | null; slot: JsonText | null; origin_id: string | null }
  >`
    SELECT i.input, i.schema_print, r.slot, r.origin_id FROM holdfast_inputs i JOIN holdfast_runs r
      ON r.seq = i.run_seq
    WHERE i.run_seq = ${seq}`;
  const steps = db.all<ReplayedStepRow>`
    SELECT name, position, status, output, failure, attempts, retry_at, recorded_no
    FROM holdfast_steps WHERE run_seq = ${seq} AND status <> 'cancelled'`;
  const pauses = db.all<PauseRow>`SELECT * FROM holdfast_pauses WHERE run_seq = ${seq} ORDER BY seq`;
  return {
    run: toRunText(row),
    input: toInput({ payload, input }),
    schemaPrint: schema_print,
    slot,
    steps: steps.map((step) => toStepRecord(step, now)),
    pauses: readPauseRecords(db, pauses),
    copied: readCopied(db, seq),
    originId: origin_id ?? runId,
    onEnd: newEndOf(row.on_end),
  };
}

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

/** Reads a run and its position in the journal. See `Store.getRunState()`. */
export function readRunState(db: SqliteDatabase, runId: string): RunState | null {
  const row = findRunRow(db, runId);
  if (row === undefined) return null;
  const { seq } = row;
  const pauses = row.status !== "waiting" ? [] : [
    ...db.all<PauseRow>`SELECT * FROM holdfast_pauses WHERE run_seq = ${seq} AND awaited = 1 ORDER BY seq`
      .map(toAwaitedPause),
    ...readRetries(db, seq),
  ];
  return {
    run: toRunText(row),
    seq,
    place: readEnd(db),
    trace: row.trace,
    execution: row.interruptions + 1,
    pauses: pauses.map(({ deadlineAt, ...pause }) => ({ ...pause, deadlineAt: isoTime(deadlineAt) })),
  };
}

/** The job of a run; `null`: there is none of this id. */
export function findRunOfJob(db: SqliteDatabase, runId: string): RunOfJob | null {
  const row = db.get<{ job: string }>`SELECT job FROM holdfast_runs WHERE id = ${runId}`;
  return row === undefined ? null : { jobName: jobNameOf(row.job), version: versionOf(row.job) };
}

/** A wait with the job of its run; `null`: there is none of this id. */
export function findWait(db: SqliteDatabase, waitId: string): WaitOfJob | null {
  const row = db.get<PauseRow & { run_id: string; job: string }>`
    SELECT p.*, r.id AS run_id, r.job FROM holdfast_pauses p JOIN holdfast_runs r ON r.seq = p.run_seq
    WHERE p.id = ${waitId} AND p.kind = 'wait'`;
  return row === undefined ? null : toWaitOfJob(row);
}

/** The retry from the failure that continues a run. See `Store.findRetry()`. */
export function findRetry(db: SqliteDatabase, runId: string): string | null {
  const row = db.get<{ id: string }>`
    SELECT n.id FROM holdfast_runs r JOIN holdfast_runs n ON n.id = ${RETRY} AND n.origin_id IS NOT NULL
    WHERE r.id = ${runId}`;
  return row?.id ?? null;
}

/**
 * The wait that a signal to this one is for, if it has ended with its run: that of its name, or of one of these names, in
 * the newest retry from the failure that has one, else itself; `null`: there is none of this id.
 */
export function findCurrentWait(db: SqliteDatabase, waitId: string, names: readonly string[]): WaitOfJob | null {
  const row = db.get<PauseRow & { run_id: string; job: string }>`
    WITH RECURSIVE retries (seq, retry, nth, wait_name) AS (
      SELECT r.seq, CASE WHEN p.status IN ('closed', 'cancelled') THEN ${RETRY} END, 0, p.name
      FROM holdfast_pauses p JOIN holdfast_runs r ON r.seq = p.run_seq WHERE p.id = ${waitId} AND p.kind = 'wait'
      UNION ALL SELECT r.seq, ${RETRY}, nth + 1, wait_name
      FROM retries JOIN holdfast_runs r ON r.id = retries.retry AND r.origin_id IS NOT NULL)
    SELECT p.*, r.id AS run_id, r.job FROM retries CROSS JOIN holdfast_runs r ON r.seq = retries.seq
    CROSS JOIN holdfast_pauses p ON p.run_seq = r.seq AND p.kind = 'wait'
      AND (p.name = retries.wait_name OR ${isAmong("p.name", names)})
    ORDER BY nth DESC, p.name = retries.wait_name DESC LIMIT 1`;
  return row === undefined ? null : toWaitOfJob(row);
}
