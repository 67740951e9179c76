import { ConflictError, LeaseLostError, NotFoundError } from "../error.ts";
import { failureText } from "../failure.ts";
import type { Host } from "../host.ts";
import { coalescedFact, stepFacts, toFact } from "../fact.ts";
import type { Lease, SeenLease } from "../lease.ts";
import type { Report } from "../report.ts";
import { isLeased, isTerminal, type Run, type RunIdentity, type RunStatus } from "../run.ts";
import type { CancelledExecution, Ending, Enqueued, NewRun, Renewal, Retention } from "../store.ts";
import { type ExecutingStep, retryTime, type SavedStep, startedAt, type StepWrite } from "../step.ts";
import { DELETED_RUNS_KNOWN_MS } from "./deleted_runs.ts";
import { takeAway } from "./sqlite_claim.ts";
import type { SqliteDatabase, SqliteRow } from "./sqlite_database.ts";
import { moveRun } from "./sqlite_counts.ts";
import { trimByAge } from "./sqlite_journal.ts";
import { enterLine, letGo, lineUp } from "./sqlite_line.ts";
import { closePauses } from "./sqlite_pauses.ts";
import type { HeldRun } from "./sqlite_held.ts";
import {
  findNewReports,
  KEEP_REPORTS,
  type NewReports,
  newReports,
  NO_REPORTS,
  noteReports,
} from "./sqlite_reports.ts";
import { findRetry, linkRetry } from "./sqlite_retrigger.ts";
import { fromInput, SELECT_RUN, toHeldRun, toRun, toRunIdentity } from "./sqlite_rows.ts";

/** Adds runs, or finds those that they stand for. See `Store.enqueue()`. */
export function enqueueRuns(
  db: SqliteDatabase,
  runs: readonly NewRun[],
  host: Pick<Host, "newId">,
  now: number,
): Enqueued[] {
  const exists = (runId: string) => db.get("SELECT 1 FROM holdfast_runs WHERE id = ?", runId) !== undefined;
  for (const { id, retriggerOf } of runs) {
    if (db.get("SELECT 1 FROM holdfast_deleted WHERE id = ?", id) !== undefined) {
      throw new ConflictError(`Cannot add run "${id}" again: it was deleted`);
    }
    // When the call is repeated, the old run may be gone.
    if (retriggerOf !== null && !exists(retriggerOf.runId) && !exists(id)) {
      throw new NotFoundError(`There is no run "${retriggerOf.runId}"`);
    }
  }
  return runs.map((run) => enqueueRun(db, run, host, now));
}

function enqueueRun(db: SqliteDatabase, run: NewRun, host: Pick<Host, "newId">, now: number): Enqueued {
  const retry = run.retriggerOf === null ? null : findRetry(db, run.id, run.retriggerOf.runId);
  if (retry !== null) return retry;
  const coalescable = findCoalescable(db, run, now);
  const found = coalescable === null ? insertRun(db, run, host, now) : null;
  if (found !== null) return { run: found, disposition: "created" };
  return findRun(db, run) ?? joinRun(db, toRun(coalescable!), Number(coalescable!.seq), run);
}

function joinRun(db: SqliteDatabase, joined: Run, seq: number, { payload, labels }: NewRun): Enqueued {
  db.facts.note(coalescedFact(seq, joined.status, payload, labels));
  return { run: joined, disposition: "coalesced" };
}

/** The run that was added before by the same call, or by another with the same idempotency key. */
function findRun(db: SqliteDatabase, { id, jobName, idempotencyKey }: NewRun): Enqueued | null {
  const known = db.get(`${SELECT_RUN} WHERE r.id = ?`, id);
  if (known !== undefined) return { run: toRun(known), disposition: "created" };
  if (idempotencyKey === null) return null;
  const same = db.get(`${SELECT_RUN} WHERE r.job = ? AND r.idempotency_key = ?`, jobName, idempotencyKey);
  return same === undefined ? null : { run: toRun(same), disposition: "idempotent" };
}

function findCoalescable(db: SqliteDatabase, run: NewRun, now: number): SqliteRow | null {
  const { concurrencyKey: key, jobName: job, coalesce } = run;
  if (key === null || coalesce === null) return null;
  const pending = db.get(
    `${SELECT_RUN} WHERE r.concurrency_key = ? AND r.job = ? AND r.place IS NOT NULL AND r.status = 'pending'
     ORDER BY r.seq LIMIT 1`,
    key,
    job,
  );
  if (pending !== undefined || coalesce !== "active") return pending ?? null;
  const leased = db.get(
    `${SELECT_RUN} JOIN holdfast_keys k ON k.run_id = r.id
     WHERE k.concurrency_key = ? AND r.job = ? AND r.lease_expires_at > ?`,
    key,
    job,
    now,
  );
  if (leased !== undefined) return leased;
  const waiting = db.get(
    `${SELECT_RUN} WHERE r.concurrency_key = ? AND r.job = ? AND r.status = 'waiting' ORDER BY r.seq LIMIT 1`,
    key,
    job,
  );
  return waiting ?? null;
}

/** Adds a run, unless there is one of its id or its idempotency key: then answers `null`. */
function insertRun(db: SqliteDatabase, run: NewRun, host: Pick<Host, "newId">, now: number): Run | null {
  const row = {
    id: run.id,
    job: run.jobName,
    status: "pending",
    labels: JSON.stringify(run.labels),
    idempotency_key: run.idempotencyKey,
    concurrency_key: run.concurrencyKey,
    place: run.concurrencyKey === null ? "R" : "B",
    retrigger_of: run.retriggerOf?.runId ?? null,
    created_at: now,
    updated_at: now,
  };
  const added = db.get(
    `INSERT INTO holdfast_runs
       (id, job, status, labels, idempotency_key, concurrency_key, place, retrigger_of, created_at, updated_at)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING seq`,
    ...Object.values(row),
  );
  if (added === undefined) return null;
  const seq = Number(added.seq);
  moveRun(db, run.jobName, null, "pending");
  db.facts.note([seq, "triggered"]);
  db.run(
    "INSERT INTO holdfast_inputs (run_seq, payload, input) VALUES (?, ?, ?)",
    seq,
    run.payload,
    fromInput(run.payload, run.input),
  );
  for (const [key, value] of Object.entries(run.labels)) {
    db.run("INSERT INTO holdfast_labels (key, value, run_seq) VALUES (?, ?, ?)", key, value, seq);
  }
  if (run.retriggerOf !== null) linkRetry(db, run.id, run.retriggerOf, host);
  if (run.concurrencyKey !== null) lineUp(db, run.concurrencyKey);
  return toRun({ ...row, lease_generation: 0, payload: run.payload });
}

/** Extends leases. See `Store.renew()`. */
export function renewLeases(
  db: SqliteDatabase,
  renewals: readonly Renewal[],
  leaseMs: number,
  now: number,
): (number | null)[] {
  return renewals.map(({ lease, reports }) => {
    const added = findNewReports(db, lease, reports);
    const row = db.get(
      `UPDATE holdfast_runs SET lease_expires_at = max(lease_expires_at + 1, ?), updated_at = ?, ${KEEP_REPORTS}
       WHERE id = ? AND lease_generation = ? AND status = 'running' RETURNING seq, lease_expires_at`,
      now + leaseMs,
      now,
      added.progress,
      added.lastNo,
      lease.runId,
      lease.generation,
    );
    if (row === undefined) return null;
    noteReports(db, lease, Number(row.seq), added);
    return Number(row.lease_expires_at);
  });
}

/** Lets go of a lease. See `Store.release()`. */
export function releaseLease(db: SqliteDatabase, lease: Lease, reports: readonly Report[], now: number): void {
  const { runId, generation, concurrencyKey: key } = lease;
  db.held.forget(runId);
  const added = findNewReports(db, lease, reports);
  const row = db.get(
    `UPDATE holdfast_runs SET status = 'pending', lease_owner = NULL, lease_expires_at = NULL,
       lease_generation = lease_generation + 1, interruptions = interruptions + 1, updated_at = ?, ${KEEP_REPORTS}
     WHERE id = ? AND lease_generation = ? AND status = 'running' RETURNING seq, job`,
    now,
    added.progress,
    added.lastNo,
    runId,
    generation,
  );
  if (row !== undefined) {
    noteReports(db, lease, Number(row.seq), added);
    moveRun(db, row.job as string, "running", "pending");
    enterLine(db, Number(row.seq), key);
    if (key !== null) letGo(db, key, runId, generation);
  } else {
    letGoAfterCancel(db, lease, null);
  }
}

/**
 * Frees the key that a cancelled run still holds under a lease. A run that waits for a retry holds its key too, but
 * without an end.
 *
 * @param expiresAt If not `null`: only if the lease still ended then when the run was cancelled.
 */
function letGoAfterCancel(db: SqliteDatabase, lease: Lease, expiresAt: number | null): void {
  const { runId, generation, concurrencyKey: key } = lease;
  if (key === null) return;
  const kept = db.get(
    `SELECT 1 FROM holdfast_keys
     WHERE concurrency_key = ? AND run_id = ? AND generation = ? AND expires_at = coalesce(?, expires_at)`,
    key,
    runId,
    generation,
    expiresAt,
  );
  if (kept !== undefined) letGo(db, key, runId, generation);
}

/** All leases, and the keys that cancelled runs still hold. See `Store.getLeases()`. */
export function readLeases(db: SqliteDatabase): SeenLease[] {
  const rows = db.all(
    `SELECT r.id, r.lease_generation AS generation, r.concurrency_key, r.lease_expires_at AS expires_at, w.lease_ms
     FROM holdfast_runs r LEFT JOIN holdfast_workers w ON w.id = r.lease_owner WHERE r.lease_expires_at IS NOT NULL
     UNION ALL SELECT run_id, generation, concurrency_key, expires_at, NULL
     FROM holdfast_keys WHERE expires_at IS NOT NULL`,
  );
  return rows.map((row) => ({
    runId: row.id as string,
    generation: Number(row.generation),
    concurrencyKey: row.concurrency_key as string | null,
    expiresAt: Number(row.expires_at),
    leaseMs: row.lease_ms === null ? null : Number(row.lease_ms),
  }));
}

/** Which leases are no longer current. See `Store.getLostLeases()`. */
export function findLostLeases(db: SqliteDatabase, leases: readonly Lease[]): Lease[] {
  return leases.filter(({ runId, generation }) =>
    db.get(
      "SELECT 1 FROM holdfast_runs WHERE id = ? AND lease_generation = ? AND status = 'running'",
      runId,
      generation,
    ) === undefined
  );
}

/** Takes leases away that are still as they were seen. See `Store.revoke()`. */
export function revokeLeases(db: SqliteDatabase, leases: readonly SeenLease[], now: number): void {
  for (const lease of leases) {
    const row = db.get(
      "SELECT * FROM holdfast_runs WHERE id = ? AND lease_generation = ? AND lease_expires_at = ?",
      lease.runId,
      lease.generation,
      lease.expiresAt,
    );
    if (row !== undefined) takeAway(db, row, Infinity, now);
    else letGoAfterCancel(db, lease, lease.expiresAt);
  }
}

/** Records how an attempt at a step ended. See `Store.saveStep()`. */
export function recordStep(
  db: SqliteDatabase,
  lease: Lease,
  step: StepWrite,
  reports: readonly Report[],
  now: number,
): SavedStep {
  const { run, added } = countRecord(db, lease, reports, now);
  const { result } = step;
  const failure = result.status === "completed" ? null : result.failure;
  const retryAt = result.status === "retrying" ? now + result.delayMs : null;
  // Only an earlier attempt is replaced: what is recorded for good stays, and a repeated call records nothing.
  const isRecorded = db.run(
    `INSERT INTO holdfast_steps (run_seq, name, position, status, output, failure, attempts,
       retry_at, recorded_no, started_at, completed_at)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
     ON CONFLICT (run_seq, name) DO UPDATE SET status = excluded.status, output = excluded.output,
       failure = excluded.failure, attempts = excluded.attempts,
       retry_at = excluded.retry_at, recorded_no = excluded.recorded_no, completed_at = excluded.completed_at
     WHERE status = 'retrying' AND excluded.attempts > attempts`,
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
    db.facts.note(...stepFacts(run.seq, step, added.reports, { startedAt: startedAt(step, now), retryAt }));
    return { recordedNo: run.recorded, retry: retryAt === null ? null : retryTime(retryAt, now) };
  }
  db.facts.note(...added.reports.map((report) => toFact(run.seq, report)));
  db.run("UPDATE holdfast_runs SET recorded = recorded - 1 WHERE seq = ?", run.seq);
  db.held.forget(lease.runId);
  const earlier = db.get(
    "SELECT recorded_no, retry_at FROM holdfast_steps WHERE run_seq = ? AND name = ?",
    run.seq,
    step.name,
  )!;
  return {
    recordedNo: Number(earlier.recorded_no),
    retry: earlier.retry_at === null ? null : retryTime(Number(earlier.retry_at), now),
  };
}

/** Counts one more record in a run: the first statement of a write under its lease, which refuses or not. */
function countRecord(
  db: SqliteDatabase,
  lease: Lease,
  reports: readonly Report[],
  now: number,
): { run: HeldRun; added: NewReports } {
  const held = db.held.find(lease);
  if (held !== undefined) {
    const added = newReports(reports, held.lastReportNo);
    const lastReportNo = Math.max(held.lastReportNo, added.lastNo);
    const isCounted = db.run(
      `UPDATE holdfast_runs SET recorded = ?, abandonments = 0, updated_at = ?, progress = coalesce(?, progress),
         last_report_no = ?
       WHERE seq = ? AND lease_generation = ? AND status = 'running' AND recorded = ? AND last_report_no = ?`,
      held.recorded + 1,
      now,
      added.progress,
      lastReportNo,
      held.seq,
      lease.generation,
      held.recorded,
      held.lastReportNo,
    ) > 0;
    if (isCounted) {
      held.recorded += 1;
      held.lastReportNo = lastReportNo;
      return { run: held, added };
    }
  }
  const added = findNewReports(db, lease, reports);
  const run = db.get(
    `UPDATE holdfast_runs SET recorded = recorded + 1, abandonments = 0, updated_at = ?, ${KEEP_REPORTS}
     WHERE id = ? AND lease_generation = ? AND status = 'running'
     RETURNING seq, job, lease_generation, recorded, last_report_no`,
    now,
    added.progress,
    added.lastNo,
    lease.runId,
    lease.generation,
  );
  if (run === undefined) {
    db.held.forget(lease.runId);
    throw new LeaseLostError(lease);
  }
  const known = toHeldRun(run);
  db.held.note(lease.runId, known);
  return { run: known, added };
}

/** Ends a run. See `Store.finish()`. */
export function finishRun(
  db: SqliteDatabase,
  lease: Lease,
  ending: Ending,
  reports: readonly Report[],
  now: number,
): void {
  const added = findNewReports(db, lease, reports);
  const columns = [
    ending.status,
    ending.status === "completed" ? ending.output : null,
    ending.status === "failed" ? failureText(ending.failure) : null,
    ending.status === "failed" ? JSON.stringify(ending.failure) : null,
    ending.status === "failed" ? ending.failedStepName : null,
    added.progress,
    added.lastNo,
    now,
    now,
  ];
  const held = db.held.find(lease);
  db.held.forget(lease.runId);
  const isEnded = held !== undefined &&
    db.run(
        `${FINISH} WHERE seq = ? AND lease_generation = ? AND status = 'running' AND has_pauses = 0`,
        ...columns,
        held.seq,
        lease.generation,
      ) > 0;
  const run = isEnded ? { ...held, has_pauses: 0 } : db.get(
    `${FINISH} WHERE id = ? AND lease_generation = ? AND status = 'running' RETURNING seq, job, has_pauses`,
    ...columns,
    lease.runId,
    lease.generation,
  );
  if (run === undefined) {
    // A call that is repeated after it ended the run: nobody else ends it so under this lease.
    const ended = db.get(
      "SELECT 1 FROM holdfast_runs WHERE id = ? AND lease_generation = ? AND status = ?",
      lease.runId,
      lease.generation,
      ending.status,
    );
    if (ended === undefined) throw new LeaseLostError(lease);
    return;
  }
  moveRun(db, run.job as string, "running", ending.status);
  const runSeq = Number(run.seq);
  noteReports(db, lease, runSeq, added);
  db.facts.note(ending.status === "completed" ? [runSeq, "completed", ending.durationMs] : [runSeq, "failed"]);
  if (run.has_pauses === 1) closePauses(db, runSeq, "closed", now);
  if (lease.concurrencyKey !== null) letGo(db, lease.concurrencyKey, lease.runId, lease.generation);
}

const FINISH = `UPDATE holdfast_runs SET status = ?, output = ?, error = ?, failure = ?, failed_step = ?,
  ${KEEP_REPORTS}, lease_owner = NULL, lease_expires_at = NULL, updated_at = ?, completed_at = ?`;

/** Cancels a run that has not ended. See `Store.cancel()`. */
export function cancelRun(
  db: SqliteDatabase,
  runId: string,
  { requestId, execution }: { requestId: string; execution: CancelledExecution | null },
  now: number,
): Run | null {
  const before = db.get(`${SELECT_RUN} WHERE r.id = ?`, runId);
  if (before === undefined) return null;
  const status = before.status as RunStatus;
  if (isTerminal(status)) return before.ended_by === requestId ? toRun(before) : null;

  const runSeq = Number(before.seq);
  const generation = Number(before.lease_generation);
  const isUnderLease = isLeased(status) && execution?.generation === generation;
  const { reports, progress } = isUnderLease
    ? newReports(execution.reports, Number(before.last_report_no))
    : NO_REPORTS;
  const row = db.get(
    `UPDATE holdfast_runs SET status = 'cancelled', place = NULL, timer_at = NULL, lease_owner = NULL,
       lease_expires_at = NULL, ended_by = ?, updated_at = ?, completed_at = ?, progress = coalesce(?, progress)
     WHERE seq = ? RETURNING *`,
    requestId,
    now,
    now,
    progress,
    runSeq,
  )!;
  moveRun(db, before.job as string, status, "cancelled");
  db.facts.note(...reports.map((report) => toFact(runSeq, report)));
  for (const step of execution?.steps ?? []) recordCancelledStep(db, runSeq, step, now);
  db.run(
    "UPDATE holdfast_steps SET status = 'cancelled', completed_at = ? WHERE run_seq = ? AND status = 'retrying'",
    now,
    runSeq,
  );
  db.facts.note([runSeq, "cancelled"]);
  closePauses(db, runSeq, "cancelled", now);
  const key = before.concurrency_key as string | null;
  if (key !== null) {
    if (isLeased(status) && Number(before.lease_expires_at) > now) {
      keepKeyUntil(db, key, runId, Number(before.lease_expires_at));
    } else letGo(db, key, runId, generation);
  }
  return toRun({ ...row, payload: before.payload! });
}

/** A step that is between two attempts is not recorded here, but with all others that are. */
function recordCancelledStep(db: SqliteDatabase, runSeq: number, step: ExecutingStep, now: number): void {
  const isRecorded = db.run(
    `INSERT INTO holdfast_steps
       (run_seq, name, position, status, attempts, recorded_no, started_at, completed_at)
     VALUES (?, ?, ?, 'cancelled', ?, 0, ?, ?)
     ON CONFLICT (run_seq, name) DO NOTHING`,
    runSeq,
    step.name,
    step.index,
    step.attempts,
    startedAt(step, now),
    now,
  ) > 0;
  if (isRecorded || isRetrying(db, runSeq, step.name)) {
    db.facts.note([runSeq, "step_cancelled", step.name, step.index]);
  }
}

function isRetrying(db: SqliteDatabase, runSeq: number, name: string): boolean {
  const sql = "SELECT 1 FROM holdfast_steps WHERE run_seq = ? AND name = ? AND status = 'retrying'";
  return db.get(sql, runSeq, name) !== undefined;
}

/** A worker may still be inside the run: its key is not given to another before it has noticed, or lost its lease. */
function keepKeyUntil(db: SqliteDatabase, key: string, runId: string, expiresAt: number): void {
  db.run(
    "UPDATE holdfast_keys SET expires_at = ? WHERE concurrency_key = ? AND run_id = ?",
    expiresAt,
    key,
    runId,
  );
}

/** Deletes a run that has ended. See `Store.delete()`. */
export function deleteRun(db: SqliteDatabase, runId: string, now: number): RunIdentity | null {
  const row = db.get(
    "DELETE FROM holdfast_runs WHERE id = ? AND completed_at IS NOT NULL RETURNING seq, id, job, labels, status",
    runId,
  );
  if (row === undefined) return null;
  const identity = toRunIdentity(row);
  moveRun(db, identity.jobName, row.status as RunStatus, null);
  db.facts.note([Number(row.seq), "deleted", identity.id, identity.jobName, identity.labels]);
  db.run("DELETE FROM holdfast_deleted WHERE deleted_at <= ?", now - DELETED_RUNS_KNOWN_MS);
  db.run("INSERT OR REPLACE INTO holdfast_deleted (id, deleted_at) VALUES (?, ?)", runId, now);
  return identity;
}

// After so many steps a purge comes to its end, so that none takes long.
const MAX_PURGED_STEPS = 1_000;

/** Deletes runs that ended long enough ago. See `Store.purge()`. */
export function purgeRuns(db: SqliteDatabase, retention: Retention, limit: number, now: number): RunIdentity[] {
  trimByAge(db, now);
  const due = Object.entries(retention).flatMap(([status, keptMs]) =>
    db.all(
      `SELECT id, completed_at, seq, recorded FROM holdfast_runs WHERE status = ? AND completed_at <= ?
       ORDER BY completed_at, seq LIMIT ?`,
      status,
      now - keptMs,
      limit,
    )
  );
  due.sort((left, right) =>
    Number(left.completed_at) - Number(right.completed_at) || Number(left.seq) - Number(right.seq)
  );
  const purged: RunIdentity[] = [];
  let steps = 0;
  for (const { id, recorded } of due.slice(0, limit)) {
    steps += Number(recorded);
    if (purged.length > 0 && steps > MAX_PURGED_STEPS) break;
    purged.push(deleteRun(db, id as string, now)!);
  }
  return purged;
}
