import { LeaseLostError } from "../../../model/error.ts";
import { stepFacts, toFact } from "../../../model/fact.ts";
import type { Lease } from "../../../model/lease.ts";
import type { Report } from "../../../model/execution_report.ts";
import { type ExecutingStep, retryTime, type SavedStep, startedAt, type StepWrite } from "../../../model/step.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { type LeasedRun, underLease } from "./lease_cache.ts";
import { drawNumber, drawUnlessFirst, FactInRow, NEXT_NUMBER } from "../journal/journal.ts";
import { noteAttempt } from "../operate/timeline.ts";
import { findNewReports, keepReports, type NewReports, newReports } from "./new_reports.ts";
import { chunksOf, insertChunks } from "../streams.ts";
import { type LeasedRow, toLeasedRun } from "../rows.ts";

/** Records how an attempt at a step ended. See `Store.saveStep()`. */
export function recordStep(
  db: SqliteDatabase,
  lease: Lease,
  step: StepWrite,
  reports: readonly Report[],
  now: number,
): SavedStep {
  const noted = db.plain.isOpen ? recordTogether(db, lease, step, reports, now) : null;
  if (noted !== null) return noted;
  const chunks = chunksOf(db, lease, step.chunks ?? []);
  if (chunks === null) throw new LeaseLostError(lease);
  const { run, added } = countRecord(db, lease, reports, now);
  const { result } = step;
  const failure = result.status === "completed" ? null : result.failure;
  const retryAt = result.status === "retrying" ? now + result.delayMs : null;
  const factInRow = chooseFactInRow(db, run.seq, step, added.reports);
  const number = drawUnlessFirst(db);
  const isRecorded = db.run(
    number === null ? INSERT_WITH_NEXT_NUMBER : INSERT_STEP,
    ...(number === null ? [] : [number]),
    factInRow,
    run.seq,
    step.name,
    step.index,
    result.status,
    result.status === "completed" ? result.output : null,
    failure === null ? null : JSON.stringify(failure),
    step.attempts,
    retryAt,
    run.recorded,
    startedAt(step, now),
    result.status === "retrying" ? null : now,
  ) > 0;
  if (isRecorded) {
    insertChunks(db, run.seq, lease.generation, chunks, now);
    if (step.attempts > 1 || retryAt !== null) noteAttempt(db, run.seq, step, { failure, retryAt }, now);
    if (factInRow === FactInRow.none) {
      db.facts.note(...stepFacts(run.seq, step, added.reports, { startedAt: startedAt(step, now), retryAt }));
    }
    return { recordedNo: run.recorded, retry: retryAt === null ? null : retryTime(retryAt, now) };
  }
  db.facts.note(...added.reports.map((report) => toFact(run.seq, report)));
  db.run`UPDATE holdfast_runs SET recorded = recorded - 1 WHERE seq = ${run.seq}`;
  db.leased.forget(lease.runId);
  const earlier = db.one<{ recorded_no: number; retry_at: number | null }>`
    SELECT recorded_no, retry_at FROM holdfast_steps WHERE run_seq = ${run.seq} AND name = ${step.name}`;
  return {
    recordedNo: earlier.recorded_no,
    retry: earlier.retry_at === null ? null : retryTime(earlier.retry_at, now),
  };
}

/** Records a plain step together with others of its batch; `null`: it is none. */
function recordTogether(
  db: SqliteDatabase,
  lease: Lease,
  step: StepWrite,
  reports: readonly Report[],
  now: number,
): SavedStep | null {
  const run = db.leased.find(lease);
  const { result, chunks = [] } = step;
  if (run === undefined || result.status !== "completed" || chunks.length > 0) return null;
  const added = newReports(reports, run.lastReportNo);
  const factInRow = chooseFactInRow(db, run.seq, step, added.reports);
  if (factInRow === FactInRow.none) return null; // which includes further attempts, and progress
  const lastReportNo = Math.max(run.lastReportNo, added.lastNo);
  const row = { number: drawNumber(db), output: result.output, factInRow, startedAt: startedAt(step, now) };
  db.plain.addStep(run, step, row, lastReportNo, now);
  run.recorded += 1;
  run.lastReportNo = lastReportNo;
  return { recordedNo: run.recorded, retry: null };
}

const INSERT_STEP = insertStep("?");
const INSERT_WITH_NEXT_NUMBER = insertStep(NEXT_NUMBER);

function insertStep(number: string): string {
  // Only an earlier attempt is replaced: a step that has ended stays, and a repeated call records nothing.
  return `INSERT INTO holdfast_steps (seq, fact_in_row, run_seq, name, position, status, output, failure, attempts,
     retry_at, recorded_no, started_at, completed_at)
   VALUES (${number}, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
   ON CONFLICT (run_seq, name) DO UPDATE SET status = excluded.status, output = excluded.output,
     failure = excluded.failure, attempts = excluded.attempts,
     retry_at = excluded.retry_at, recorded_no = excluded.recorded_no, completed_at = excluded.completed_at
   WHERE status = 'retrying' AND excluded.attempts > attempts`;
}

/**
 * Which fact the row of a step is. It is one if the row is written once, no report comes with it but the start of this
 * step, and the open transaction has noted no fact of the run: that one would come after the row, not before it.
 */
function chooseFactInRow(db: SqliteDatabase, runSeq: number, step: StepWrite, reports: readonly Report[]): number {
  const { name, attempts, result } = step;
  // A step that was tried before has its row already.
  if (attempts > 1 || result.status === "retrying" || db.facts.hasFactOf(runSeq)) return FactInRow.none;
  const start = reports[0];
  if (start === undefined) return FactInRow.end;
  const isOwn = start.kind === "start" && start.stepName === name && start.attempt === attempts;
  return isOwn && reports.length === 1 ? FactInRow.startAndEnd : FactInRow.none;
}

/** Increments the record counter of a run: the first statement of the write, which refuses a lost lease. */
function countRecord(
  db: SqliteDatabase,
  lease: Lease,
  reports: readonly Report[],
  now: number,
): { run: LeasedRun; added: NewReports } {
  const leased = db.leased.find(lease);
  if (leased !== undefined) {
    const added = newReports(reports, leased.lastReportNo);
    const lastReportNo = Math.max(leased.lastReportNo, added.lastNo);
    const isCounted = db.run`
      UPDATE holdfast_runs SET recorded = ${leased.recorded + 1}, abandonments = 0, updated_at = ${now},
        progress = coalesce(${added.progress}, progress),
        last_report_no = ${lastReportNo}
      WHERE seq = ${leased.seq} AND lease_generation = ${lease.generation} AND status = 'running'
        AND recorded = ${leased.recorded} AND last_report_no = ${leased.lastReportNo}` > 0;
    if (isCounted) {
      leased.recorded += 1;
      leased.lastReportNo = lastReportNo;
      return { run: leased, added };
    }
  }
  const added = findNewReports(db, lease, reports);
  const run = db.get<LeasedRow>`
    UPDATE holdfast_runs SET recorded = recorded + 1, abandonments = 0, updated_at = ${now}, ${keepReports(added)}
    WHERE ${underLease(lease)}
    RETURNING seq, job, lease_generation, lease_claim, recorded, last_report_no`;
  if (run === undefined) {
    db.leased.forget(lease.runId);
    throw new LeaseLostError(lease);
  }
  const known = toLeasedRun(run);
  db.leased.note(lease.runId, known);
  return { run: known, added };
}

/**
 * Records a step that is being executed as cancelled. For a step between two attempts it only notes the fact: the
 * caller records all of these at once.
 */
export function recordCancelledStep(db: SqliteDatabase, runSeq: number, step: ExecutingStep, now: number): void {
  const isRecorded = db.run`INSERT INTO holdfast_steps
      (seq, run_seq, name, position, status, attempts, recorded_no, started_at, completed_at)
    VALUES (${drawNumber(db)}, ${runSeq}, ${step.name}, ${step.index}, 'cancelled', ${step.attempts}, 0,
      ${startedAt(step, now)}, ${now})
    ON CONFLICT (run_seq, name) DO NOTHING` > 0;
  if (isRecorded || isRetrying(db, runSeq, step.name)) {
    db.facts.note([runSeq, "step_cancelled", step.name, step.index]);
  }
}

function isRetrying(db: SqliteDatabase, runSeq: number, name: string): boolean {
  const sql = "SELECT 1 FROM holdfast_steps WHERE run_seq = ? AND name = ? AND status = 'retrying'";
  return db.get(sql, runSeq, name) !== undefined;
}
