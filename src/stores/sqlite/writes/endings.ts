import { LeaseLostError } from "../../../model/error.ts";
import { failureText } from "../../../model/failure.ts";
import { failedFact, toFact } from "../../../model/fact.ts";
import type { Lease } from "../../../model/lease.ts";
import type { Report } from "../../../model/execution_report.ts";
import {
  isLeased,
  isTerminal,
  type Retention,
  type RunIdentity,
  type RunStatus,
  type StoredRun,
} from "../../../model/run.ts";
import type { CancelledExecution, Ending } from "../../../store/claim.ts";
import { DELETED_RUNS_KNOWN_MS } from "../../rules.ts";
import { keepResult } from "../children/child_results.ts";
import { moveRun } from "../run_counts.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { trimByAge } from "../journal/journal.ts";
import { OUT_OF_QUEUE, releaseKey } from "../flow/concurrency_keys.ts";
import { touchGroup } from "../flow/turns.ts";
import { keepGhost } from "../flow/ghosts.ts";
import { deleteHold } from "../evolution/holds.ts";
import { endHold } from "../evolution/offers.ts";
import { jobNameOf } from "../../queue_name.ts";
import { closePauses, type EndingRun } from "./close_pauses.ts";
import { findNewReports, KEEP_REPORTS, newReports, NO_REPORTS, noteReports } from "./new_reports.ts";
import { type IdentityRow, toRunIdentity } from "../../rows.ts";
import { type RunRow, SELECT_RUN, toRunText } from "../rows.ts";
import { recordCancelledStep } from "./steps.ts";
import { leaseParameters, UNDER_LEASE } from "./under_lease.ts";

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
        `${FINISH} WHERE seq = ? AND lease_generation = ? AND status = 'running' AND has_pauses = 0 AND parent_seq IS NULL`,
        ...columns,
        held.seq,
        lease.generation,
      ) > 0;
  const run = isEnded ? { ...held, ...NOTHING_WAITS } : db.get<EndingRun & { job: string }>(
    `${FINISH} WHERE ${UNDER_LEASE} RETURNING seq, job, has_pauses, parent_seq, parent_pause`,
    ...columns,
    ...leaseParameters(lease),
  );
  if (run === undefined) {
    // A call that is repeated after it ended the run: only this same call ends it with this status under this lease.
    const ended = db.get(
      "SELECT 1 FROM holdfast_runs WHERE id = ? AND lease_generation = ? AND lease_claim = ? AND status = ?",
      lease.runId,
      lease.generation,
      lease.claimId,
      ending.status,
    );
    if (ended === undefined) throw new LeaseLostError(lease);
    return;
  }
  moveRun(db, run.job, "running", ending.status);
  const runSeq = run.seq;
  noteReports(db, lease, runSeq, added);
  db.facts.note(
    ending.status === "completed" ? [runSeq, "completed", ending.durationMs] : failedFact(runSeq, ending.failure.kind),
  );
  closePauses(db, run, "closed", now);
  if (lease.concurrencyKey !== null) releaseKey(db, lease.concurrencyKey, lease.runId, lease.generation, now);
}

const NOTHING_WAITS = { has_pauses: 0, parent_seq: null, parent_pause: null };

const FINISH = `UPDATE holdfast_runs SET status = ?, output = ?, error = ?, failure = ?, failed_step = ?,
  ${KEEP_REPORTS}, lease_owner = NULL, lease_expires_at = NULL, updated_at = ?, completed_at = ?`;

/** Cancels a run that has not ended. See `Store.cancel()`. */
export function cancelRun(
  db: SqliteDatabase,
  runId: string,
  { requestId, execution }: { requestId: string | null; execution: CancelledExecution | null },
  now: number,
): StoredRun | null {
  const before = db.get<RunRow>(`${SELECT_RUN} WHERE r.id = ?`, runId);
  if (before === undefined) return null;
  const { seq: runSeq, status, lease_generation: generation } = before;
  if (isTerminal(status)) return before.ended_by === requestId ? toRunText(before) : null;

  const isUnderLease = execution !== null &&
    db.get(`SELECT 1 FROM holdfast_runs WHERE ${UNDER_LEASE}`, ...leaseParameters(execution.lease)) !== undefined;
  const { reports, progress } = isUnderLease ? newReports(execution.reports, before.last_report_no) : NO_REPORTS;
  db.run(
    `UPDATE holdfast_runs SET status = 'cancelled', ${OUT_OF_QUEUE}, lease_owner = NULL, lease_expires_at = NULL,
       ended_by = ?, updated_at = ?, completed_at = ?, progress = coalesce(?, progress)
     WHERE seq = ?`,
    requestId,
    now,
    now,
    progress,
    runSeq,
  );
  moveRun(db, before.job, status, "cancelled");
  db.facts.note(...reports.map((report) => toFact(runSeq, report)));
  for (const step of isUnderLease ? execution.steps : []) recordCancelledStep(db, runSeq, step, now);
  db.run(
    "UPDATE holdfast_steps SET status = 'cancelled', completed_at = ? WHERE run_seq = ? AND status = 'retrying'",
    now,
    runSeq,
  );
  db.facts.note([runSeq, "cancelled"]);
  closePauses(db, before, "cancelled", now);
  if (before.held !== null) endHold(db, runSeq);
  const { id: run_id, concurrency_key, lease_expires_at: expires_at } = before;
  // A worker may still execute the run.
  if (isLeased(status) && expires_at !== null && expires_at > now) {
    const { lease_claim } = before;
    keepGhost(db, { run_id, generation, lease_claim, job: jobNameOf(before.job), concurrency_key, expires_at });
  } else {
    touchGroup(db, before.queue, before.fairness_key);
    if (concurrency_key !== null) releaseKey(db, concurrency_key, runId, generation, now);
  }
  return toRunText(db.one<RunRow>(`${SELECT_RUN} WHERE r.seq = ?`, runSeq));
}

/** Deletes a run that has ended. See `Store.delete()`. */
export function deleteRun(db: SqliteDatabase, runId: string, now: number): RunIdentity | null {
  keepResult(db, runId);
  const row = db.get<
    IdentityRow & { seq: number; status: RunStatus; lease_generation: number; origin_id: string | null }
  >(
    `DELETE FROM holdfast_runs WHERE id = ? AND completed_at IS NOT NULL
     RETURNING seq, id, job, labels, status, lease_generation, origin_id`,
    runId,
  );
  if (row === undefined) return null;
  deleteHold(db, row);
  const identity = toRunIdentity(row);
  moveRun(db, row.job, row.status, null);
  db.facts.note([row.seq, "deleted", identity.id, identity.jobName, identity.labels]);
  db.run("DELETE FROM holdfast_deleted WHERE deleted_at <= ?", now - DELETED_RUNS_KNOWN_MS);
  db.run("INSERT OR REPLACE INTO holdfast_deleted (id, deleted_at) VALUES (?, ?)", runId, now);
  return identity;
}

// A purge ends after this many steps, so that none takes long.
const MAX_PURGED_STEPS = 1_000;

/** Deletes runs that ended long enough ago. See `Store.purge()`. */
export function purgeRuns(db: SqliteDatabase, retention: Retention, limit: number, now: number): RunIdentity[] {
  trimByAge(db, now);
  const due = Object.entries(retention).flatMap(([status, keptMs]) =>
    db.all<{ id: string; completed_at: number; seq: number; recorded: number }>(
      `SELECT id, completed_at, seq, recorded FROM holdfast_runs WHERE status = ? AND completed_at <= ?
       ORDER BY completed_at, seq LIMIT ?`,
      status,
      now - keptMs,
      limit,
    )
  );
  due.sort((left, right) => left.completed_at - right.completed_at || left.seq - right.seq);
  const purged: RunIdentity[] = [];
  let steps = 0;
  for (const { id, recorded } of due.slice(0, limit)) {
    steps += recorded;
    if (purged.length > 0 && steps > MAX_PURGED_STEPS) break;
    purged.push(deleteRun(db, id, now)!); // it has ended: the same transaction has just found it
  }
  return purged;
}
