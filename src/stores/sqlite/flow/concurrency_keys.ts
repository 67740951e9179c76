import { HEAD_START, LAST_KEPT } from "../../rules.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { addStarts, keyScope, rateOpensAt } from "./rates.ts";
import { touchGroup } from "./turns.ts";

// The due runs with a concurrency key are its queue, by position. Their `queue_state` is R (they have passed the key) or
// B (blocked). A run stands in one queue: with its row of `holdfast_flow` if it has one (T2), otherwise with that of
// `holdfast_runs`. Two invariants hold after every write:
//   K1: of each job only the first in the queue is R, and only while the key has room for it: fewer other runs hold the
//       key than its own limit, and before its first start the rate of the key is open. Runs that kept their key over a
//       retry delay are all R.
//   K2: while that is so, it is R.
// It is one for each job, since a worker claims only jobs that it knows: a job that no worker knows blocks no other.

/** Whether a run in the queue kept its key over a retry delay. No other position comes near. */
export function hasKept({ position }: { position: number }): boolean {
  return position < LAST_KEPT;
}

/** A run that enters or leaves the queue. */
export interface QueuedRun {
  seq: number;
  concurrency_key: string | null;
  /** 1 if it has a row of `holdfast_flow`. */
  flow: number | null;
}

/** Makes a run that is not under a lease claimable, or queues it for its key. */
export function enterQueue(db: SqliteDatabase, { seq, concurrency_key: key, flow }: QueuedRun, now: number): void {
  const state = key === null ? "R" : "B";
  if (flow === null) db.run("UPDATE holdfast_runs SET queue_state = ? WHERE seq = ?", state, seq);
  else {
    const row = db.one<{ job: string; fairness_key: string | null }>(
      `UPDATE holdfast_flow SET queue_state = ?, due_at = NULL, deadline_at = iif(begun, finish_by, start_by)
       WHERE run_seq = ? RETURNING job, fairness_key`,
      state,
      seq,
    );
    touchGroup(db, row.job, row.fairness_key);
  }
  if (key !== null) updateQueue(db, key, now);
}

/** Removes a run that ends from the queue, with its timers. Its row of `holdfast_runs` is updated by the caller. */
export function leaveQueue(db: SqliteDatabase, { seq, concurrency_key: key, flow }: QueuedRun, now: number): void {
  if (flow !== null) {
    const row = db.one<{ job: string; fairness_key: string | null }>(
      `UPDATE holdfast_flow SET queue_state = NULL, due_at = NULL, deadline_at = NULL
       WHERE run_seq = ? RETURNING job, fairness_key`,
      seq,
    );
    touchGroup(db, row.job, row.fairness_key);
    if (key !== null) forgetOpening(db, key, row.job);
  }
  if (key !== null) updateQueue(db, key, now);
}

/** Removes the opening of a queue whose first run with flow has left it. */
export function forgetOpening(db: SqliteDatabase, key: string, job: string): void {
  db.run("DELETE FROM holdfast_openings WHERE concurrency_key = ? AND job = ?", key, job);
}

/** Makes a run that holds its key the first of its queue: it comes back after a retry delay. */
export function putFirst(db: SqliteDatabase, seq: number): void {
  addFlow(db, seq);
  db.run("UPDATE holdfast_flow SET position = position - ? WHERE run_seq = ?", HEAD_START, seq);
}

/** Gives a run that was claimed before a row of `holdfast_flow`, if it has none. It is in no queue then. */
export function addFlow(db: SqliteDatabase, seq: number): void {
  db.run(
    `INSERT INTO holdfast_flow (run_seq, job, concurrency_key, priority, position, begun, key_concurrency)
     SELECT seq, job, concurrency_key, 0, seq, 1, 1 FROM holdfast_runs WHERE seq = ? ON CONFLICT DO NOTHING`,
    seq,
  );
  db.run("UPDATE holdfast_runs SET flow = 1 WHERE seq = ?", seq);
}

/** Whether a run holds its concurrency key. */
export function holdsKey(db: SqliteDatabase, key: string, runId: string): boolean {
  return db.get("SELECT 1 FROM holdfast_holders WHERE concurrency_key = ? AND run_id = ?", key, runId) !== undefined;
}

/** Releases a concurrency key, if the run holds it under this lease. Every release of a key goes through this function. */
export function releaseKey(db: SqliteDatabase, key: string, runId: string, generation: number, now: number): void {
  db.run(
    "DELETE FROM holdfast_holders WHERE concurrency_key = ? AND run_id = ? AND generation = ?",
    key,
    runId,
    generation,
  );
  updateQueue(db, key, now);
}

/** Gives a key to a run that was just claimed, and is out of the queue. */
export function takeKey(db: SqliteDatabase, key: string, runId: string, generation: number, now: number): void {
  db.run(
    `INSERT INTO holdfast_holders (concurrency_key, run_id, generation) VALUES (?, ?, ?)
     ON CONFLICT DO UPDATE SET generation = excluded.generation`,
    key,
    runId,
    generation,
  );
  updateQueue(db, key, now);
}

/** Counts the first start of a run under the rate of its key. */
export function countKeyStart(db: SqliteDatabase, key: string, runSeq: number, now: number): void {
  const rate = db.get<{ limit: number; period: number }>(
    `SELECT key_rate_limit AS "limit", key_rate_period AS period FROM holdfast_flow
     WHERE run_seq = ? AND key_rate_limit IS NOT NULL`,
    runSeq,
  );
  if (rate !== undefined) addStarts(db, keyScope(key), rate, 1, now);
}

/** A new run that is due. */
export interface NewQueuedRun {
  concurrency_key: string;
  job: string;
  position: number;
  key_concurrency: number;
  key_rate_limit: number | null;
  key_rate_period: number | null;
}

/**
 * The state of a new run in the queue of its key, if it changes nothing for the others.
 *
 * @returns `null`: it enters the queue blocked, and `updateQueue` has to say more.
 */
export function stateOfNewRun(db: SqliteDatabase, run: NewQueuedRun, now: number): "R" | "B" | null {
  const { concurrency_key: key, job, position, key_rate_limit: limit, key_rate_period: period } = run;
  const { holders, plain, flowing } = db.one<{ holders: number; plain: number | null; flowing: number | null }>(
    `SELECT (SELECT count(*) FROM holdfast_holders WHERE concurrency_key = ?) AS holders,
       (SELECT seq FROM holdfast_runs
        WHERE concurrency_key = ? AND job = ? AND queue_state IS NOT NULL ORDER BY seq LIMIT 1) AS plain,
       (SELECT position FROM holdfast_flow
        WHERE concurrency_key = ? AND job = ? AND queue_state IS NOT NULL ORDER BY position LIMIT 1) AS flowing`,
    key,
    key,
    job,
    key,
    job,
  );
  const first = Math.min(plain ?? Infinity, flowing ?? Infinity);
  if (first < Infinity) return first <= position ? "B" : null;
  if (holders >= run.key_concurrency) return "B";
  const opensAt = limit === null || period === null
    ? -Infinity
    : rateOpensAt(db, keyScope(key), { limit, period }, now);
  return opensAt === -Infinity ? "R" : null;
}

/** Restores K1 and K2 for a key, after a change of the key or of its runs. */
export function updateQueue(db: SqliteDatabase, key: string, now: number): void {
  const { flowing, job } = db.one<{ flowing: number; job: string | null }>(
    `SELECT EXISTS (SELECT 1 FROM holdfast_flow WHERE concurrency_key = ? AND queue_state IS NOT NULL) AS flowing,
       (SELECT job FROM holdfast_runs WHERE concurrency_key = ? AND queue_state IS NOT NULL ORDER BY job LIMIT 1) AS job`,
    key,
    key,
  );
  if (flowing === 1) updateFlowingQueue(db, key, now);
  else if (job === null) return;
  else if (db.get("SELECT 1 FROM holdfast_holders WHERE concurrency_key = ? LIMIT 1", key) !== undefined) {
    // Without the index the planner would scan the whole queue.
    const blocked = db.run(
      `UPDATE holdfast_runs INDEXED BY holdfast_runs_ready_by_key SET queue_state = 'B'
       WHERE concurrency_key = ? AND queue_state = 'R'`,
      key,
    );
    if (blocked > 0) { for (const other of queuedJobs(db, key)) noteRequeued(db, other); }
  } else {
    putFirstReady(db, key, job);
    for (const other of queuedJobs(db, key, job)) putFirstReady(db, key, other);
  }
}

/** Marks the first run of a job in the queue of a free key as ready, in a queue of runs without flow. */
function putFirstReady(db: SqliteDatabase, key: string, job: string): void {
  const first = firstPlain(db, key, job)!; // the job is in the queue
  if (first.queue_state === "R") return;
  blockPlain(db, key, job);
  db.run("UPDATE holdfast_runs SET queue_state = 'R' WHERE seq = ?", first.seq);
  noteRequeued(db, job, first.seq);
}

function noteRequeued(db: SqliteDatabase, job: string, readyPosition = Infinity): void {
  db.requeuedJobs.set(job, Math.min(db.requeuedJobs.get(job) ?? Infinity, readyPosition));
}

function updateFlowingQueue(db: SqliteDatabase, key: string, now: number): void {
  const { holders } = db.one<{ holders: number }>(
    "SELECT count(*) AS holders FROM holdfast_holders WHERE concurrency_key = ?",
    key,
  );
  db.run("DELETE FROM holdfast_openings WHERE concurrency_key = ?", key);
  const jobs = new Set([...queuedJobs(db, key), ...flowingJobs(db, key)]);
  for (const job of jobs) {
    const plain = firstPlain(db, key, job);
    const flowing = firstFlowing(db, key, job);
    if (plain !== undefined && plain.seq < (flowing?.position ?? Infinity)) {
      if (holders > 0) block(db, key, job);
      else if (plain.queue_state === "B") {
        block(db, key, job);
        db.run("UPDATE holdfast_runs SET queue_state = 'R' WHERE seq = ?", plain.seq);
        noteRequeued(db, job, plain.seq);
      }
      continue;
    }
    const first = flowing!; // the job is in the queue
    if (hasKept(first)) {
      block(db, key, job);
      passKept(db, key, job);
      continue;
    }
    const opensAt = keyOpensAt(db, key, first, holders, now);
    if (opensAt > now) block(db, key, job);
    else if (first.queue_state === "B") {
      block(db, key, job);
      db.run("UPDATE holdfast_flow SET queue_state = 'R' WHERE run_seq = ?", first.run_seq);
      noteRequeued(db, job, first.position);
      touchGroup(db, job, first.fairness_key);
    }
    if (Number.isFinite(opensAt)) {
      const isOpen = opensAt <= now ? 1 : 0;
      db.run("INSERT INTO holdfast_openings VALUES (?, ?, ?, ?, ?)", key, job, opensAt, first.key_rate_period, isOpen);
    }
  }
}

/** When the key has room for a run; an instant that has passed if it has now, `Infinity` if others have to leave. */
function keyOpensAt(db: SqliteDatabase, key: string, first: FlowingRow, holders: number, now: number): number {
  if (holders >= first.key_concurrency) return Infinity;
  const { begun, key_rate_limit: limit, key_rate_period: period } = first;
  if (limit === null || period === null || begun === 1) return -Infinity;
  return rateOpensAt(db, keyScope(key), { limit, period }, now);
}

/** Marks all runs of a job as ready that kept their key. */
function passKept(db: SqliteDatabase, key: string, job: string): void {
  const passed = db.all<{ position: number; fairness_key: string | null }>(
    `UPDATE holdfast_flow INDEXED BY holdfast_flow_queued_by_key SET queue_state = 'R'
     WHERE concurrency_key = ? AND job = ? AND queue_state = 'B' AND position < ${LAST_KEPT}
     RETURNING position, fairness_key`,
    key,
    job,
  );
  for (const { position, fairness_key: fairnessKey } of passed) {
    noteRequeued(db, job, position);
    touchGroup(db, job, fairnessKey);
  }
}

/** The queue of a job: what has passed the key is put back, except runs that kept it. */
function block(db: SqliteDatabase, key: string, job: string): void {
  blockPlain(db, key, job);
  // There is one at most.
  const blocked = db.get<{ fairness_key: string | null }>(
    `UPDATE holdfast_flow INDEXED BY holdfast_flow_ready_by_key SET queue_state = 'B'
     WHERE concurrency_key = ? AND job = ? AND queue_state = 'R' AND position > ${LAST_KEPT} RETURNING fairness_key`,
    key,
    job,
  );
  if (blocked === undefined) return;
  noteRequeued(db, job);
  touchGroup(db, job, blocked.fairness_key);
}

function blockPlain(db: SqliteDatabase, key: string, job: string): void {
  const blocked = db.run(
    `UPDATE holdfast_runs INDEXED BY holdfast_runs_ready_by_key SET queue_state = 'B'
     WHERE concurrency_key = ? AND job = ? AND queue_state = 'R'`,
    key,
    job,
  );
  if (blocked > 0) noteRequeued(db, job);
}

interface PlainRow {
  seq: number;
  queue_state: "R" | "B";
  begun: number;
}

function firstPlain(db: SqliteDatabase, key: string, job: string): PlainRow | undefined {
  return db.get<PlainRow>(
    `SELECT seq, queue_state, started_at IS NOT NULL AS begun FROM holdfast_runs
     WHERE concurrency_key = ? AND job = ? AND queue_state IS NOT NULL ORDER BY seq LIMIT 1`,
    key,
    job,
  );
}

interface FlowingRow {
  run_seq: number;
  position: number;
  queue_state: "R" | "B";
  fairness_key: string | null;
  begun: number;
  key_concurrency: number;
  key_rate_limit: number | null;
  key_rate_period: number | null;
}

function firstFlowing(db: SqliteDatabase, key: string, job: string): FlowingRow | undefined {
  return db.get<FlowingRow>(
    `SELECT run_seq, position, queue_state, fairness_key, begun, key_concurrency, key_rate_limit, key_rate_period
     FROM holdfast_flow INDEXED BY holdfast_flow_queued_by_key
     WHERE concurrency_key = ? AND job = ? AND queue_state IS NOT NULL ORDER BY position LIMIT 1`,
    key,
    job,
  );
}

/** The jobs of the runs without flow in a queue. */
function queuedJobs(db: SqliteDatabase, key: string, start = ""): Iterable<string> {
  return jobsAfter(start, (after) =>
    db.get<{ job: string }>(
      `SELECT job FROM holdfast_runs
       WHERE concurrency_key = ? AND job > ? AND queue_state IS NOT NULL ORDER BY job LIMIT 1`,
      key,
      after,
    ));
}

/** The jobs of the runs with flow in a queue. */
function flowingJobs(db: SqliteDatabase, key: string): Iterable<string> {
  return jobsAfter("", (after) =>
    db.get<{ job: string }>(
      `SELECT job FROM holdfast_flow INDEXED BY holdfast_flow_queued_by_key
       WHERE concurrency_key = ? AND job > ? AND queue_state IS NOT NULL ORDER BY job LIMIT 1`,
      key,
      after,
    ));
}

function* jobsAfter(start: string, next: (after: string) => { job: string } | undefined): Generator<string> {
  for (let row = next(start); row !== undefined; row = next(row.job)) yield row.job;
}

/** The first run of a job in the queue of a key. */
export interface FirstInQueue {
  job: string;
  /** Whether it has passed the key. */
  isReady: boolean;
  /** Whether it was claimed before. */
  hasBegun: boolean;
}

/** Of each other job, the first run in the queue of a key, as far as it comes before a position. */
export function firstsBefore(db: SqliteDatabase, key: string, job: string, position: number): FirstInQueue[] {
  const jobs = new Set([...queuedJobs(db, key), ...flowingJobs(db, key)]);
  jobs.delete(job);
  return [...jobs].flatMap((other) => {
    const plain = firstPlain(db, key, other);
    const flowing = firstFlowing(db, key, other);
    const [plainAt, flowingAt] = [plain?.seq ?? Infinity, flowing?.position ?? Infinity];
    if (Math.min(plainAt, flowingAt) >= position) return [];
    const first = plainAt < flowingAt ? plain : flowing;
    return [{ job: other, isReady: first?.queue_state === "R", hasBegun: first?.begun === 1 }];
  });
}
