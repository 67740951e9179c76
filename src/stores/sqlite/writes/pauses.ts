import type { Fact } from "../../../model/fact.ts";
import { LeaseLostError } from "../../../model/error.ts";
import type { Host } from "../../../model/host.ts";
import type { JsonText } from "../../../values/json.ts";
import type { Lease } from "../../../model/lease.ts";
import type { RunIdentity } from "../../../model/run.ts";
import type { CreatedChild, NewPause, PauseRequest, PauseResult } from "../../../store/pause_request.ts";
import type { AwaitedPause } from "../../../store/run_query.ts";
import type { OriginText } from "../../../model/origin.ts";
import { deadlineAt, nextDeadlineInMs, type Signal } from "../../../model/wait.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { addChildren, findCreated, lacksChildren } from "../children/add_children.ts";
import { readPauseRecords } from "../children/child_results.ts";
import { leaveLease, type OpenRun } from "./endings.ts";
import { commitDeadlines, endReceives, hasClosedInbox, nextRecordedNo, takeAsked, wake } from "./pause_resolution.ts";
import { findNewReports, keepReports, noteReports } from "./new_reports.ts";
import { underLease } from "./lease_cache.ts";
import type { IdentityRow } from "../../rows.ts";
import type { SignalAnswer } from "../../signal_answer.ts";
import { type PauseRow, toAwaitedPause, toAwaitedRetry } from "../rows.ts";

/** Prepares pauses and, if requested and none of them is over, parks the run. See `Store.pause()`. */
export function pauseRun(
  db: SqliteDatabase,
  lease: Lease,
  request: PauseRequest,
  host: Pick<Host, "newId">,
  now: number,
): PauseResult {
  if (request.pauses.some((pause) => lacksChildren(db, lease.runId, pause))) throw new LeaseLostError(lease);
  const reports = findNewReports(db, lease, request.reports);
  const run = db.get<Pick<OpenRun, "seq" | "id" | "job" | "concurrency_key" | "lease_generation">>`
    UPDATE holdfast_runs SET has_pauses = 1, updated_at = ${now}, ${keepReports(reports)}
    WHERE ${underLease(lease)} RETURNING seq, id, job, concurrency_key, lease_generation`;
  if (run === undefined) return answerAgain(db, lease, request, now);

  const runSeq = run.seq;
  db.leased.notePause(run.id);
  noteReports(db, lease, runSeq, reports);
  const cancelled: RunIdentity[] = [];
  for (const pause of request.pauses) {
    insertPause(db, runSeq, pause, now);
    if (pause.children === null) continue;
    const inserted = findPause(db, runSeq, pause)!; // inserted now, or by an earlier call
    cancelled.push(...addChildren(db, { parentSeq: runSeq, pause: inserted }, pause.children, host, now));
  }
  // What is there is taken before a deadline is looked at: a timeout of 0 means "what is there now".
  const hasReceives = takeAsked(db, runSeq, request.pauses, now);
  commitDeadlines(db, runSeq, now);
  if (hasReceives && hasClosedInbox(db, runSeq)) endReceives(db, runSeq, now);
  const rows = request.pauses.map((pause) => findPause(db, runSeq, pause)!); // inserted, now or before
  const pauses = readPauseRecords(db, rows);
  const isOver = pauses.some(({ resolution }) => resolution !== null) ||
    (request.retryAt !== null && request.retryAt <= now);
  const created = readCreated(db, rows, request);
  const result = { pauses, created, cancelled, nextDeadlineInMs: nextDeadlineInMs(pauses, now) };
  if (!request.park || isOver) return { parked: false, ...result };

  const awaited = rows.filter(({ kind }) => kind !== "patch");
  const instants = [...pauses.map(({ deadlineAt }) => deadlineAt), request.retryAt].filter((at) => at !== null);
  const timerAt = instants.length === 0 ? null : Math.min(...instants);
  const facts = [...awaited.map(toAwaitedPause), ...readRetries(db, runSeq)].map(
    ({ waitId, name, deadlineAt }): Fact => [runSeq, "waiting", waitId, name, deadlineAt],
  );
  const parked = { ...run, abandonments: 0, abandonments_alone: 0 };
  leaveLease(db, parked, request.retryAt === null ? "parked" : "retrying", { timerAt, facts }, now);
  db.run`UPDATE holdfast_pauses SET awaited = 0 WHERE run_seq = ${runSeq} AND awaited = 1`;
  for (const { id } of awaited) {
    db.run`UPDATE holdfast_pauses SET awaited = 1, suspended_at = coalesce(suspended_at, ${now}) WHERE id = ${id}`;
  }
  return { parked: true, ...result };
}

/** The steps of a run that are between two attempts, as it waits for the next ones. */
export function readRetries(db: SqliteDatabase, runSeq: number): AwaitedPause<number>[] {
  return db.all<{ name: string; retry_at: number }>`
    SELECT name, retry_at FROM holdfast_steps WHERE run_seq = ${runSeq} AND status = 'retrying' ORDER BY position, seq`
    .map(toAwaitedRetry);
}

/** The answer for a call that is repeated after it has parked the run. */
function answerAgain(db: SqliteDatabase, lease: Lease, request: PauseRequest, now: number): PauseResult {
  const run = db.get<{ seq: number }>`
    SELECT seq FROM holdfast_runs WHERE id = ${lease.runId} AND lease_generation = ${lease.generation}
      AND lease_claim = ${lease.claimId} AND status = 'waiting'`;
  if (run === undefined || !request.park) throw new LeaseLostError(lease);
  const rows = request.pauses.map((pause) => {
    const row = findPause(db, run.seq, pause);
    if (row === undefined) throw new LeaseLostError(lease);
    return row;
  });
  const pauses = readPauseRecords(db, rows);
  const created = readCreated(db, rows, request);
  return { parked: true, pauses, created, cancelled: [], nextDeadlineInMs: nextDeadlineInMs(pauses, now) };
}

/** The children that this call, or the same call before, has created. */
function readCreated(db: SqliteDatabase, rows: readonly PauseRow[], { pauses }: PauseRequest): CreatedChild[] {
  return pauses.flatMap(({ children }, at) => children === null ? [] : findCreated(db, rows[at]!.seq, children));
}

function insertPause(db: SqliteDatabase, runSeq: number, pause: NewPause, now: number): void {
  const { id, kind, name, metadata, deadline, payloadSchema = null } = pause;
  const receive = pause.receive === undefined ? null : JSON.stringify(pause.receive);
  const added = db.run`
    INSERT INTO holdfast_pauses
      (id, run_seq, kind, name, metadata, status, awaited, created_at, deadline_at, payload_schema, receive)
    VALUES (${id}, ${runSeq}, ${kind}, ${name}, ${metadata}, 'pending', 0, ${now}, ${deadlineAt(deadline, now)},
      ${payloadSchema}, ${receive}) ON CONFLICT DO NOTHING`;
  if (pause.prepared && added > 0) {
    db.run`UPDATE holdfast_pauses SET prepared_no = ${nextRecordedNo(db, runSeq)} WHERE id = ${pause.id}`;
  }
}

function findPause(db: SqliteDatabase, runSeq: number, pause: NewPause): PauseRow | undefined {
  return db.get<PauseRow>`
    SELECT * FROM holdfast_pauses WHERE run_seq = ${runSeq} AND kind = ${pause.kind} AND name = ${pause.name}`;
}

/**
 * Ends a wait by a signal. See `Store.signal()`. A refusal is an answer, and not an exception: if the deadline has passed,
 * the timeout is committed.
 */
export function deliver(
  db: SqliteDatabase,
  waitId: string,
  signal: Signal,
  payload: JsonText,
  trace: OriginText | null,
  now: number,
): SignalAnswer {
  const row = db.get<PauseRow & Omit<IdentityRow, "id"> & { run_id: string }>`
    SELECT p.*, r.id AS run_id, r.job, r.labels FROM holdfast_pauses p JOIN holdfast_runs r ON r.seq = p.run_seq
    WHERE p.id = ${waitId} AND p.kind = 'wait'`;
  if (row === undefined) return { state: "none" };
  if (row.outcome === "timeout") return { state: "expired" };
  const run = { id: row.run_id, job: row.job, labels: row.labels };
  if (row.status !== "pending") return { state: "over", run, wait: row };
  const runSeq = row.run_seq;
  // Deadlines that passed before the signal are committed, even if one of them refuses the signal.
  const isAwaitedOver = commitDeadlines(db, runSeq, now);
  if (isAwaitedOver || row.awaited === 1) wake(db, runSeq, now);
  if (row.deadline_at !== null && row.deadline_at <= now) return { state: "expired" };
  const wait = db.one<PauseRow>`
    UPDATE holdfast_pauses SET status = 'resolved', outcome = 'signal', payload = ${payload},
      signal_id = ${signal.signalId}, trace = ${trace},
    resolved_at = ${now}, recorded_no = ${nextRecordedNo(db, runSeq)} WHERE id = ${waitId} RETURNING *`;
  return { state: "accepted", run, wait };
}
