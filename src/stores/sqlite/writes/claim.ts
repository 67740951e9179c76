import { type Fact, failedFact } from "../../../fact.ts";
import type { RunIdentity, RunStatus } from "../../../run.ts";
import type { ClaimRequest, ClaimResult } from "../../../store.ts";
import { abandonedFailure } from "../../abandoned_failure.ts";
import { moveRun } from "../run_counts.ts";
import type { SqliteDatabase, SqliteRow } from "../sqlite_database.ts";
import { trimByAge } from "../journal/journal.ts";
import { enterQueue, releaseKey, takeKey } from "./concurrency_keys.ts";
import { closePauses, commitDeadlines, noteResumption, wake } from "./pauses.ts";
import { toHeldRun, toRunIdentity } from "../rows.ts";

// How many expired timers of each kind one claim processes, so that a thousand deadlines at once take several short
// transactions.
const MAX_TIMERS = 40;

/** What is read of a run that is claimed. */
const CLAIMED = `seq, id, job, labels, concurrency_key, lease_generation, lease_expires_at, interruptions, recorded,
  last_report_no, has_pauses, started_at, origin_id, (SELECT payload FROM holdfast_inputs WHERE run_seq = seq) AS payload,
  (SELECT input FROM holdfast_inputs WHERE run_seq = seq) AS input`;

/** The result of a claim, before the histories are read. */
export interface ClaimedRows extends Omit<ClaimResult, "claims" | "now"> {
  /** The rows of the claimed runs, as the claim left them, in the order in which they were triggered. */
  rows: SqliteRow[];
}

function jobNames({ jobs }: ClaimRequest): string[] {
  return jobs.map(({ name }) => name);
}

/** Whether a claim would find anything to do; checks without taking the lock. */
export function hasWork(db: SqliteDatabase, request: ClaimRequest, now: number): boolean {
  const worker = db.get("SELECT seen_at, claim_id FROM holdfast_workers WHERE id = ?", request.workerId);
  if (worker?.claim_id === request.claimId) return true;
  const age = worker === undefined ? Infinity : now - Number(worker.seen_at);
  // Other workers have to see that this worker is alive.
  if (age < 0 || age > request.leaseMs / 3) return true;
  const nextTimerAt = readNextTimer(db);
  if (nextTimerAt !== null && nextTimerAt <= now) return true;
  return request.limit > 0 && request.jobs.some(({ name }) => firstReady(db, name, 0, 1).length > 0);
}

/** Claims due runs. See `Store.claim()`. */
export function claimRuns(db: SqliteDatabase, request: ClaimRequest, now: number): ClaimedRows {
  const repeated = findClaimed(db, request);
  // The next call checks for more: this one is a repetition, and does nothing.
  if (repeated !== null) return { rows: repeated, failed: [], nextTimerAt: readNextTimer(db), hasMore: true };

  extendHeld(db, request, now);
  const abandoned = revokeExpiredLeases(db, request.maxAbandonments, now);
  releaseExpiredKeys(db, now);
  wakeSleepers(db, now);
  const { rows, hasMore } = claimReady(db, request, now);
  noteWorker(db, request, rows, now);
  // An idle worker writes an empty claim at intervals, to show that it is alive.
  if (rows.length === 0) trimByAge(db, now);
  const nextTimerAt = readNextTimer(db);
  const failed = abandoned.map((run) => ({ ...run, failureKind: "abandoned" as const }));
  return { rows, failed, nextTimerAt, hasMore: hasMore || (nextTimerAt !== null && nextTimerAt <= now) };
}

/** When the next timer of a run expires, or that of a key that a cancelled run still holds. */
export function readNextTimer(db: SqliteDatabase): number | null {
  const row = db.get(
    `SELECT min(at) AS at FROM (
       SELECT min(timer_at) AS at FROM holdfast_runs WHERE timer_at IS NOT NULL
       UNION ALL SELECT min(lease_expires_at) FROM holdfast_runs WHERE lease_expires_at IS NOT NULL
       UNION ALL SELECT min(expires_at) FROM holdfast_keys WHERE expires_at IS NOT NULL)`,
  );
  return row === undefined || row.at === null ? null : Number(row.at);
}

/** A call that is repeated after an unknown outcome returns the runs that it claimed and still holds. */
function findClaimed(db: SqliteDatabase, request: ClaimRequest): SqliteRow[] | null {
  const worker = db.get(
    "SELECT claimed FROM holdfast_workers WHERE id = ? AND claim_id = ?",
    request.workerId,
    request.claimId,
  );
  if (worker === undefined) return null;
  const claimed = JSON.parse(worker.claimed as string) as [runId: string, generation: number][];
  return claimed
    .map(([runId, generation]) =>
      db.get(
        `SELECT ${CLAIMED} FROM holdfast_runs
         WHERE id = ? AND lease_generation = ? AND status = 'running'`,
        runId,
        generation,
      )
    )
    .filter((row) => row !== undefined);
}

/** Extends the expired leases that the claiming worker still holds. */
function extendHeld(db: SqliteDatabase, { holding, leaseMs }: ClaimRequest, now: number): void {
  for (const { runId, generation } of holding) {
    db.run(
      "UPDATE holdfast_runs SET lease_expires_at = ? WHERE id = ? AND lease_generation = ? AND lease_expires_at <= ?",
      now + leaseMs,
      runId,
      generation,
      now,
    );
  }
}

function revokeExpiredLeases(
  db: SqliteDatabase,
  maxAbandonments: number,
  now: number,
): { run: RunIdentity; error: string }[] {
  const expired = db.all(
    "SELECT * FROM holdfast_runs WHERE lease_expires_at <= ? ORDER BY lease_expires_at LIMIT ?",
    now,
    MAX_TIMERS,
  );
  return expired.flatMap((row) => {
    const error = revokeLease(db, row, maxAbandonments, now);
    return error === null ? [] : [{ run: toRunIdentity(row), error }];
  });
}

/**
 * Revokes a lease, so that the run can be claimed again; a run that was abandoned too often fails instead.
 *
 * @returns Why it failed, or `null`.
 */
export function revokeLease(
  db: SqliteDatabase,
  row: SqliteRow,
  maxAbandonments: number,
  now: number,
): string | null {
  const runSeq = Number(row.seq);
  const abandonments = Number(row.abandonments) + 1;
  const failure = abandonments < maxAbandonments ? null : abandonedFailure(abandonments);
  const error = failure?.message ?? null;
  db.run(
    `UPDATE holdfast_runs SET status = ?, error = ?, failure = ?, completed_at = ?, updated_at = ?, lease_owner = NULL,
       lease_expires_at = NULL, lease_generation = lease_generation + 1, interruptions = interruptions + 1,
       abandonments = ? WHERE seq = ?`,
    error === null ? "pending" : "failed",
    error,
    failure === null ? null : JSON.stringify(failure),
    error === null ? null : now,
    now,
    abandonments,
    runSeq,
  );
  moveRun(db, row.job as string, "running", error === null ? "pending" : "failed");
  if (error !== null) db.facts.note(failedFact(runSeq, "abandoned"));
  const key = row.concurrency_key as string | null;
  if (error === null) enterQueue(db, runSeq, key);
  else closePauses(db, runSeq, "closed", now);
  if (key !== null) releaseKey(db, key, row.id as string, Number(row.lease_generation));
  return error;
}

/** Releases keys of cancelled runs whose worker did not release its lease in time. */
function releaseExpiredKeys(db: SqliteDatabase, now: number): void {
  const expired = db.all("SELECT * FROM holdfast_keys WHERE expires_at <= ? LIMIT ?", now, MAX_TIMERS);
  for (const { concurrency_key: key, run_id: runId, generation } of expired) {
    releaseKey(db, key as string, runId as string, Number(generation));
  }
}

function wakeSleepers(db: SqliteDatabase, now: number): void {
  const due = db.all(
    "SELECT seq FROM holdfast_runs WHERE timer_at <= ? ORDER BY timer_at, seq LIMIT ?",
    now,
    MAX_TIMERS,
  );
  for (const { seq } of due) {
    commitDeadlines(db, Number(seq), now);
    wake(db, Number(seq), now);
  }
}

/** Takes ready runs of the known jobs in the order in which they were triggered. */
function claimReady(db: SqliteDatabase, request: ClaimRequest, now: number): { rows: SqliteRow[]; hasMore: boolean } {
  const candidates: SqliteRow[] = [];
  const takenKeys = new Set<string>();
  const otherJobs = liveJobsOfOthers(db, request, now);
  for (const candidate of readyRuns(db, jobNames(request), request.limit + 1)) {
    const key = candidate.concurrency_key as string | null;
    if (key !== null) {
      if (takenKeys.has(key)) continue; // by a run of another job in this claim
      if (hasOlderRun(db, key, Number(candidate.seq), otherJobs)) continue;
    }
    if (candidates.length === request.limit) return { rows: claimRows(db, candidates, request, now), hasMore: true };
    if (key !== null) takenKeys.add(key);
    candidates.push(candidate);
  }
  return { rows: claimRows(db, candidates, request, now), hasMore: false };
}

/** Ready runs of several jobs, merged by age. Reads ahead by pages. */
function* readyRuns(db: SqliteDatabase, jobNames: readonly string[], pageSize: number): Generator<SqliteRow> {
  const queues = jobNames.map((job) => ({ job, rows: firstReady(db, job, 0, pageSize) }));
  while (true) {
    let oldest = null;
    for (const queue of queues) {
      const seq = queue.rows[0]?.seq;
      if (seq !== undefined && (oldest === null || seq! < oldest.rows[0]!.seq!)) oldest = queue;
    }
    if (oldest === null) return;
    const candidate = oldest.rows.shift()!;
    if (oldest.rows.length === 0) oldest.rows = firstReady(db, oldest.job, Number(candidate.seq), pageSize);
    yield candidate;
  }
}

function firstReady(db: SqliteDatabase, job: string, afterSeq: number, limit: number): SqliteRow[] {
  return db.all(
    // The planner would take the index of all runs of the job, most of which have ended.
    `SELECT seq, id, status, concurrency_key, lease_generation FROM holdfast_runs INDEXED BY holdfast_runs_ready
     WHERE queue_state = 'R' AND job = ? AND seq > ? ORDER BY seq LIMIT ?`,
    job,
    afterSeq,
    limit,
  );
}

/** Whether an older run of the key, of a job that a live worker knows, comes first. */
function hasOlderRun(db: SqliteDatabase, key: string, seq: number, otherJobs: ReadonlySet<string>): boolean {
  if (otherJobs.size === 0) return false;
  const older = db.all(
    "SELECT job FROM holdfast_runs WHERE concurrency_key = ? AND queue_state = 'R' AND seq < ?",
    key,
    seq,
  );
  return older.some(({ job }) => otherJobs.has(job as string));
}

/**
 * The jobs that other live workers know and this one does not. A worker is alive if it claimed within the length of
 * its lease.
 */
function liveJobsOfOthers(db: SqliteDatabase, request: ClaimRequest, now: number): Set<string> {
  const own = new Set(jobNames(request));
  return new Set(liveJobs(db, now, request.workerId).filter((job) => !own.has(job)));
}

/** Whether a worker that knows a job is alive. See `Store.hasWorker()`. */
export function hasWorker(db: SqliteDatabase, jobName: string, now: number): boolean {
  return liveJobs(db, now).includes(jobName);
}

function liveJobs(db: SqliteDatabase, now: number, exceptWorkerId = ""): string[] {
  // A worker last seen in the future shows that the clock was set back: it does not count as alive.
  const workers = db.all(
    "SELECT jobs FROM holdfast_workers WHERE id <> ? AND seen_at <= ? AND seen_at + lease_ms > ?",
    exceptWorkerId,
    now,
    now,
  );
  return workers.flatMap(({ jobs }) => JSON.parse(jobs as string) as string[]);
}

function claimRows(
  db: SqliteDatabase,
  candidates: readonly SqliteRow[],
  request: ClaimRequest,
  now: number,
): SqliteRow[] {
  if (candidates.length === 0) return [];
  const rows = db.all(
    `UPDATE holdfast_runs SET status = 'running', queue_state = NULL, timer_at = NULL, lease_owner = ?,
       lease_expires_at = ?, lease_generation = lease_generation + 1, last_report_no = 0,
       started_at = coalesce(started_at, ?), updated_at = ?
     WHERE seq IN (SELECT value FROM json_each(?)) RETURNING ${CLAIMED}`,
    request.workerId,
    now + request.leaseMs,
    now,
    now,
    JSON.stringify(candidates.map(({ seq }) => Number(seq))),
  ).sort((one, other) => Number(one.seq) - Number(other.seq));
  const before = new Map(candidates.map(({ seq, status }) => [Number(seq), status as RunStatus]));
  for (const row of rows) {
    const key = row.concurrency_key as string | null;
    if (key !== null) takeKey(db, key, row.id as string, Number(row.lease_generation));
    if (row.has_pauses === 1) commitDeadlines(db, Number(row.seq), now);
    const status = before.get(Number(row.seq))!;
    moveRun(db, row.job as string, status, "running");
    db.facts.note(claimedFact(row, request.workerId));
    db.held.note(row.id as string, toHeldRun(row));
    if (status === "waiting") noteResumption(db, Number(row.seq), now);
  }
  return rows;
}

function claimedFact(row: SqliteRow, owner: string): Fact {
  const { seq, lease_generation: generation, lease_expires_at: expiresAt, interruptions } = row;
  return [Number(seq), "claimed", Number(generation), owner, Number(expiresAt), Number(interruptions) + 1];
}

function noteWorker(db: SqliteDatabase, request: ClaimRequest, rows: readonly SqliteRow[], now: number): void {
  db.run(
    "INSERT OR REPLACE INTO holdfast_workers (id, jobs, seen_at, lease_ms, claim_id, claimed) VALUES (?, ?, ?, ?, ?, ?)",
    request.workerId,
    JSON.stringify(jobNames(request)),
    now,
    request.leaseMs,
    request.claimId,
    JSON.stringify(rows.map((row) => [row.id, Number(row.lease_generation)])),
  );
}

// The entry of a worker is deleted after this many lengths of its lease without a claim.
const FORGOTTEN_AFTER_LEASES = 100;

/** Deletes the entries of workers that died long ago. */
export function forgetDeadWorkers(db: SqliteDatabase, now: number): void {
  db.run("DELETE FROM holdfast_workers WHERE seen_at + lease_ms * ? < ?", FORGOTTEN_AFTER_LEASES, now);
}
