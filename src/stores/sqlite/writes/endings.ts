import { LeaseLostError } from "../../../model/error.ts";
import type { Report } from "../../../model/execution_report.ts";
import { type Fact, factBy, failedFact, toFact } from "../../../model/fact.ts";
import { type Failure, failureText } from "../../../model/failure.ts";
import type { Lease } from "../../../model/lease.ts";
import { actorOf } from "../../../model/origin.ts";
import { isLeased, isTerminal, type StoredRun } from "../../../model/run.ts";
import type { CancelledExecution, ClaimResult, Ending } from "../../../store/claim.ts";
import { aloneQueue } from "../../queue_name.ts";
import { type IdentityRow, toRunIdentity } from "../../rows.ts";
import { ALONE_FROM } from "../../rules.ts";
import { endHold } from "../changed_code/offers.ts";
import { enterQueue, OUT_OF_QUEUE, releaseKey } from "../flow/concurrency_keys.ts";
import { keepGhost } from "../flow/ghosts.ts";
import { touchGroup } from "../flow/turns.ts";
import { noteInterruption } from "../operate/timeline.ts";
import { addEndRun } from "./insert_run.ts";
import { findRunRow, type RunRow, type RunWith, SELECT_RUN, toRunText } from "../rows.ts";
import { moveRun } from "../run_counts.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { sql, type SqlPart } from "../statement.ts";
import { keepReports, type NewReports, newReports, NO_REPORTS } from "./new_reports.ts";
import { commitDeadlines, resolveChildren } from "./pause_resolution.ts";
import { completeRetried } from "./retry_links.ts";
import { recordCancelledStep } from "./steps.ts";
import { underLease } from "./lease_cache.ts";

/** A run that leaves a lease without an end: how often it was abandoned, and how often alone, with this time. */
type LeavingRun = RunWith<"seq id job concurrency_key lease_generation abandonments abandonments_alone">;

/** A run that ends, as it was before. */
type EndingRun =
  & RunWith<"seq id job concurrency_key lease_generation status queue fairness_key lease_claim lease_expires_at">
  & RunWith<"last_report_no has_pauses parent_seq parent_pause retrigger_of on_end">;

/** A row of {@linkcode SELECT_OPEN_RUN}. */
export type OpenRun =
  & LeavingRun
  & EndingRun
  & IdentityRow
  & RunWith<"lease_owner recorded started_at start_within finish_within">;

/** Reads what its end or the end of its lease needs of a run; a WHERE follows. */
export const SELECT_OPEN_RUN: SqlPart = sql`
  SELECT seq, id, job, labels, status, queue, fairness_key, concurrency_key, lease_owner, lease_claim, lease_generation,
    lease_expires_at, last_report_no, recorded, has_pauses, abandonments, abandonments_alone, started_at, start_within,
    finish_within, parent_seq, parent_pause, retrigger_of, on_end
  FROM holdfast_runs`;

/** The run under a lease; `undefined`: the lease is lost. */
export function findLeased(db: SqliteDatabase, lease: Lease): OpenRun | undefined {
  const run = db.get<OpenRun>`${SELECT_OPEN_RUN} WHERE ${underLease(lease)}`;
  if (run === undefined) db.leased.forget(lease.runId);
  return run;
}

/**
 * Ends a run: its row, the numbers of runs, its facts, its pauses, its hold, its queue and its key, in this order.
 *
 * @param run The run as the caller knows it.
 * @param added Its last reports.
 * @returns Whether it did: `false` if the run is not what the caller knows.
 */
function endRun(
  db: SqliteDatabase,
  run: EndingRun,
  ending: Ending | { status: "cancelled"; requestId: string | null },
  added: NewReports,
  now: number,
): boolean {
  const { seq, concurrency_key: key, lease_generation: generation, lease_expires_at: expiresAt } = run;
  const { status } = ending;
  const wasLeased = isLeased(run.status);
  const failure = status === "failed" ? ending.failure : null;
  const isEnded = db.run(
    wasLeased ? END_LEASED : END,
    status,
    status === "completed" ? ending.output : null,
    failure === null ? null : failureText(failure),
    failure === null ? null : JSON.stringify(failure),
    status === "failed" ? ending.failedStepName : null,
    status === "cancelled" ? ending.requestId : null,
    added.progress,
    added.lastNo,
    now,
    now,
    seq,
    run.status,
    generation,
    run.last_report_no,
    run.has_pauses,
    run.parent_seq,
    run.retrigger_of,
    run.on_end,
  ) > 0;
  if (!isEnded) return false;
  if (status === "completed" && run.retrigger_of !== null) completeRetried(db, run.id, run.retrigger_of);
  moveRun(db, run.job, run.status, status);
  db.facts.note(...added.reports.map((report) => toFact(seq, report)), endFact(seq, ending));
  if (run.has_pauses === 1) closePauses(db, seq, status === "cancelled" ? "cancelled" : "closed", now);
  if (run.parent_seq !== null && run.parent_pause !== null) endChild(db, run.parent_seq, run.parent_pause, now);
  if (run.status === "pending") endHold(db, seq);
  if (wasLeased) db.leased.forget(run.id);
  else touchGroup(db, run.queue, run.fairness_key);
  if (run.on_end !== null) addEndRun(db, { ...run, on_end: run.on_end }, status, now);
  // A worker may still execute a cancelled run, and a late one.
  const mayExecute = status === "cancelled" || (status === "failed" && ending.stillExecuting === true);
  if (mayExecute && wasLeased && expiresAt !== null && expiresAt > now) {
    keepGhost(db, run, expiresAt);
  } else if (key !== null) releaseKey(db, key, run.id, generation, now);
  return true;
}

// A run under a lease is in no queue and has no timer.
const [END_LEASED, END] = ["lease_owner = NULL, lease_expires_at = NULL", OUT_OF_QUEUE.text].map((columns) =>
  `UPDATE holdfast_runs SET status = ?, output = ?, error = ?, failure = ?, failed_step = ?, ended_by = ?,
     ${keepReports(NO_REPORTS).text},
     ${columns}, updated_at = ?, completed_at = max(?, created_at)
   WHERE seq = ? AND status = ? AND lease_generation = ? AND last_report_no = ? AND has_pauses = ? AND parent_seq IS ?
     AND retrigger_of IS ? AND on_end IS ?`
) as [string, string];

function endFact(seq: number, ending: Ending | { status: "cancelled"; requestId: string | null }): Fact {
  switch (ending.status) {
    case "completed":
      return [seq, "completed", ending.durationMs];
    case "failed":
      return failedFact(seq, ending.failure.kind);
    case "cancelled":
      return factBy([seq, "cancelled"], actorOf(ending.requestId));
  }
}

/**
 * Ends the pauses of a run that ends: those whose deadline has passed by timeout, the others as `status` says. The next
 * claims cancel the children of these.
 */
function closePauses(db: SqliteDatabase, runSeq: number, status: "closed" | "cancelled", now: number): void {
  commitDeadlines(db, runSeq, now);
  db.run`INSERT OR IGNORE INTO holdfast_orphans
    SELECT run_seq FROM holdfast_pauses WHERE run_seq = ${runSeq} AND kind = 'children' AND status = 'pending' LIMIT 1`;
  db.run`
    UPDATE holdfast_pauses SET status = ${status} WHERE run_seq = ${runSeq} AND status = 'pending' AND kind <> 'patch'`;
}

/** Counts the end of a child, and resolves the pause of its parent if it was the last child. */
function endChild(db: SqliteDatabase, parentSeq: number, pauseSeq: number, now: number): void {
  const pause = db.get<{ unfinished: number }>`
    UPDATE holdfast_pauses SET unfinished = unfinished - 1
      WHERE seq = ${pauseSeq} AND run_seq = ${parentSeq} AND status = 'pending'
    RETURNING unfinished`;
  if (pause?.unfinished === 0) resolveChildren(db, parentSeq, pauseSeq, now);
}

/** What differs when a lease is left. */
interface Leaving {
  /** When a waiting run becomes due without a signal. */
  timerAt?: number | null;
  /** When the run is due, if it is claimed alone from now on. */
  aloneAt?: number;
  /** Its last reports. */
  added?: NewReports;
  /** What follows them. */
  facts?: readonly Fact[];
}

/**
 * Takes the lease from a run that does not end: its row, the numbers of runs, its facts, its queue and its key, in this
 * order.
 *
 * @param how As in `holdfast_interruptions`, or `parked`, or `retrying`: then it keeps its key.
 */
export function leaveLease(
  db: SqliteDatabase,
  run: LeavingRun,
  how: "lost" | "released" | "held" | "parked" | "retrying",
  { timerAt = null, aloneAt, added = NO_REPORTS, facts = [] }: Leaving,
  now: number,
): void {
  const { seq, id, concurrency_key: key, lease_generation: generation } = run;
  const isParked = how === "parked" || how === "retrying";
  const isDue = how === "lost" || how === "released";
  if (!isParked) noteInterruption(db, seq, how, now);
  const status = isParked ? "waiting" : "pending";
  db.run`UPDATE holdfast_runs SET status = ${status}, lease_owner = NULL, lease_expires_at = NULL,
    lease_generation = lease_generation + ${isParked ? 0 : 1}, interruptions = interruptions + ${isDue ? 1 : 0},
      abandonments = ${run.abandonments},
    abandonments_alone = ${run.abandonments_alone}, timer_at = ${timerAt},
      parked_no = iif(${isParked ? 1 : 0}, recorded, parked_no), deadline_at = finish_by,
    updated_at = ${now}, ${keepReports(added)} WHERE seq = ${seq}`;
  db.leased.forget(id);
  moveRun(db, run.job, "running", status);
  db.facts.note(...added.reports.map((report) => toFact(seq, report)), ...facts);
  if (isDue) requeue(db, run, aloneAt ?? now, now);
  if (key !== null && how !== "retrying") releaseKey(db, key, id, generation, now);
}

/** Puts a run back into its queue. One that was abandoned too often comes into another one: it is claimed alone. */
function requeue(db: SqliteDatabase, { seq, job, abandonments }: LeavingRun, aloneAt: number, now: number): void {
  if (abandonments >= ALONE_FROM) {
    db.run`UPDATE holdfast_runs SET queue = ${aloneQueue(job)}, due_at = ${aloneAt} WHERE seq = ${seq}`;
    if (aloneAt > now) return;
  }
  enterQueue(db, seq, now);
}

/** Ends a run. See `Store.finish()`. */
export function finishRun(
  db: SqliteDatabase,
  lease: Lease,
  ending: Ending,
  reports: readonly Report[],
  now: number,
): void {
  if (db.plain.isOpen && finishTogether(db, lease, ending, reports, now)) return;
  const mayExecute = ending.status === "failed" && ending.stillExecuting === true;
  const known = mayExecute ? null : findPlain(db, lease);
  if (known !== null && endRun(db, known, ending, newReports(reports, known.last_report_no), now)) return;
  const run = findLeased(db, lease);
  if (run === undefined) return checkRepeated(db, lease, ending);
  endRun(db, run, ending, newReports(reports, run.last_report_no), now);
}

/** Ends a plain run together with others of its batch. Returns whether it does. */
function finishTogether(
  db: SqliteDatabase,
  lease: Lease,
  ending: Ending,
  reports: readonly Report[],
  now: number,
): boolean {
  const run = db.leased.find(lease);
  if (run === undefined || !run.isPlain || ending.status !== "completed" || lease.concurrencyKey !== null) return false;
  const added = newReports(reports, run.lastReportNo);
  if (added.progress !== null) return false;
  db.plain.addEnd(run, ending.output, Math.max(run.lastReportNo, added.lastNo), now);
  moveRun(db, run.job, "running", ending.status);
  db.facts.note(...added.reports.map((report) => toFact(run.seq, report)), endFact(run.seq, ending));
  db.leased.forget(lease.runId);
  return true;
}

/** The run under a lease, as the lease cache knows it, if it is like most runs: no retry, without pauses and a parent. */
function findPlain(db: SqliteDatabase, lease: Lease): EndingRun | null {
  const leased = db.leased.find(lease);
  return leased === undefined ? null : {
    seq: leased.seq,
    id: lease.runId,
    job: leased.job,
    status: "running",
    queue: leased.job,
    fairness_key: null, // it counts in a queue alone
    concurrency_key: lease.concurrencyKey,
    lease_claim: lease.claimId,
    lease_generation: lease.generation,
    lease_expires_at: null, // it counts for a cancel alone
    last_report_no: leased.lastReportNo,
    has_pauses: 0,
    parent_seq: null,
    parent_pause: null,
    retrigger_of: null,
    on_end: null,
  };
}

/** A call that is repeated after it ended the run: only this same call ends it with this status under this lease. */
function checkRepeated(db: SqliteDatabase, lease: Lease, { status }: Ending): void {
  const ended = db.get`
    SELECT 1 FROM holdfast_runs WHERE id = ${lease.runId} AND lease_generation = ${lease.generation}
      AND lease_claim = ${lease.claimId} AND status = ${status}`;
  if (ended === undefined) throw new LeaseLostError(lease);
}

/** Cancels a run that has not ended. See `Store.cancel()`. */
export function cancelRun(
  db: SqliteDatabase,
  runId: string,
  { requestId, execution }: { requestId: string | null; execution: CancelledExecution | null },
  now: number,
): StoredRun | null {
  const run = findRunRow(db, runId);
  if (run === undefined) return null;
  const { seq } = run;
  if (isTerminal(run.status)) return run.ended_by === requestId ? toRunText(run) : null;

  const isUnderLease = execution !== null && findLeased(db, execution.lease) !== undefined;
  const { reports, ...added } = isUnderLease ? newReports(execution.reports, run.last_report_no) : NO_REPORTS;
  db.facts.note(...reports.map((report) => toFact(seq, report)));
  for (const step of isUnderLease ? execution.steps : []) recordCancelledStep(db, seq, step, now);
  db.run`
    UPDATE holdfast_steps SET status = 'cancelled', completed_at = ${now}
      WHERE run_seq = ${seq} AND status = 'retrying'`;
  endRun(db, run, { status: "cancelled", requestId }, { ...added, reports: [] }, now);
  return toRunText(db.one<RunRow>`${SELECT_RUN} WHERE r.seq = ${seq}`);
}

/** Fails a run that is not under a lease. */
export function failRun(
  db: SqliteDatabase,
  run: OpenRun,
  failure: Failure,
  now: number,
): ClaimResult["failed"][number] {
  endRun(db, run, { status: "failed", failure, failedStepName: null }, NO_REPORTS, now);
  return { run: toRunIdentity(run), error: failureText(failure), failureKind: failure.kind };
}
