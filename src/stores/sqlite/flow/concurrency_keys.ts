import { POSITIONS_PER_PRIORITY } from "../../../model/flow.ts";
import { END_LEAD, LAST_KEPT } from "../../rules.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { raw, sql, type SqlPart } from "../statement.ts";
import { addStarts, keyScope, rateOpensAt } from "./rates.ts";
import { touchGroup } from "./turns.ts";
import type { RunWith } from "../rows.ts";

// The due runs with a concurrency key are its queue, by position. Their `queue_state` is R (they have passed the key) or
// B (blocked). Two invariants hold after every write:
//   K1: of each queue of a job only the first is R, and only while the key has room for it: fewer other runs hold the
//       key than its own limit, and before its first start the rate of the key is open. Runs that kept their key over a
//       retry delay are all R.
//   K2: while that is so, it is R.
// It is one for each queue of a job, since a worker claims only jobs that it knows: a job that no worker knows blocks no other.

/** Whether a run in the queue kept its key over a retry delay. No other position comes near. */
export function hasKept({ position }: { position: number }): boolean {
  return position < LAST_KEPT;
}

/** The position of a run that did not keep its key: see `positionOf()`. */
export const OWN_POSITION: SqlPart = sql`seq - ${raw(POSITIONS_PER_PRIORITY)} * priority
  - iif(end_of IS NULL OR concurrency_key IS NULL, 0, ${raw(END_LEAD)})`;

/** Makes a run that is not under a lease claimable, or queues it for its key. */
export function enterQueue(db: SqliteDatabase, seq: number, now: number): void {
  const row = db.one<{ queue: string; fairness_key: string | null; concurrency_key: string | null }>`
    UPDATE holdfast_runs SET queue_state = iif(concurrency_key IS NULL, 'R', 'B'), due_at = NULL,
      deadline_at = iif(started_at IS NULL, start_by, finish_by)
    WHERE seq = ${seq} RETURNING queue, fairness_key, concurrency_key`;
  touchGroup(db, row.queue, row.fairness_key);
  if (row.concurrency_key !== null) updateQueue(db, row.concurrency_key, now);
}

/** The part of a SET clause that takes a run out of its queue, with its timers. The key and the group are updated then. */
export const OUT_OF_QUEUE: SqlPart = sql`queue_state = NULL, timer_at = NULL, due_at = NULL, deadline_at = NULL`;

/** Whether a run holds its concurrency key. */
export function holdsKey(db: SqliteDatabase, key: string, runId: string): boolean {
  return db.get`SELECT 1 FROM holdfast_holders WHERE concurrency_key = ${key} AND run_id = ${runId}` !== undefined;
}

/** Releases a concurrency key, if the run holds it under this lease. Every release of a key goes through this function. */
export function releaseKey(db: SqliteDatabase, key: string, runId: string, generation: number, now: number): void {
  db.run`
    DELETE FROM holdfast_holders WHERE concurrency_key = ${key} AND run_id = ${runId} AND generation = ${generation}`;
  updateQueue(db, key, now);
}

const TAKE_KEY = `INSERT INTO holdfast_holders (concurrency_key, run_id, generation)
  SELECT concurrency_key, id, lease_generation + 1 FROM holdfast_runs r WHERE seq = ?`;

/** Gives its key to a run that is claimed, and is out of its queue. */
export function takeKey(db: SqliteDatabase, key: string, seq: number, now: number): void {
  db.run(`${TAKE_KEY} ON CONFLICT DO UPDATE SET generation = excluded.generation`, seq);
  updateQueue(db, key, now);
}

/**
 * Gives its key to a run that is claimed, if nothing follows from it for other runs: there are none of other jobs in its
 * queue, and the next one has to wait. The run may then stay in its queue until the end of the claim.
 *
 * @returns Whether it did.
 */
export function takeKeyAlone(db: SqliteDatabase, seq: number): boolean {
  return db.run(TAKE_KEY_ALONE, seq) > 0;
}

const IS_QUEUED =
  "SELECT 1 FROM holdfast_runs o WHERE o.concurrency_key = r.concurrency_key AND o.queue_state IS NOT NULL";
const TAKE_KEY_ALONE = `${TAKE_KEY} AND key_rate_limit IS NULL AND position > ${LAST_KEPT}
  AND NOT EXISTS (${IS_QUEUED} AND o.queue < r.queue) AND NOT EXISTS (${IS_QUEUED} AND o.queue > r.queue)
  AND (SELECT o.key_concurrency = 1 AND o.queue_state = 'B' FROM holdfast_runs o
    WHERE o.concurrency_key = r.concurrency_key AND o.queue_state IS NOT NULL AND o.queue = r.queue AND o.seq <> r.seq
    ORDER BY o.position LIMIT 1) IS NOT FALSE
  ON CONFLICT DO UPDATE SET generation = excluded.generation`;

/** Counts the first start of a run under the rate of its key. */
export function countKeyStart(db: SqliteDatabase, key: string, seq: number, now: number): void {
  const rate = db.get<{ limit: number; period: number }>`
    SELECT key_rate_limit AS "limit", key_rate_period AS period FROM holdfast_runs
    WHERE seq = ${seq} AND key_rate_limit IS NOT NULL`;
  if (rate !== undefined) addStarts(db, keyScope(key), rate, 1, now);
}

/** What a run asks of its key: how many runs may hold it, with this one, and its rate. */
export type KeyLimits = RunWith<"key_concurrency key_rate_limit key_rate_period">;

/** A new run that is due. */
type NewQueuedRun = KeyLimits & RunWith<"queue position">;

/**
 * The state of a new run in the queue of its key, if it changes nothing for the others.
 *
 * @returns `null`: it enters it blocked, and {@linkcode updateQueue} has to say more.
 */
export function stateOfNewRun(db: SqliteDatabase, key: string, run: NewQueuedRun, now: number): "R" | "B" | null {
  const { queue, position, key_rate_limit: limit, key_rate_period: period } = run;
  const { holders, first } = db.one<{ holders: number; first: number | null }>`
    SELECT (SELECT count(*) FROM holdfast_holders WHERE concurrency_key = ${key}) AS holders,
    (SELECT position FROM holdfast_runs
     WHERE concurrency_key = ${key} AND queue = ${queue} AND queue_state IS NOT NULL
       ORDER BY position LIMIT 1) AS first`;
  if (first !== null) return first <= position ? "B" : null;
  if (holders >= run.key_concurrency) return "B";
  const opensAt = limit === null || period === null
    ? -Infinity
    : rateOpensAt(db, keyScope(key), { limit, period }, now);
  return opensAt === -Infinity ? "R" : null;
}

/** Restores K1 and K2 for a key, after a change of the key or of its runs. */
export function updateQueue(db: SqliteDatabase, key: string, now: number): void {
  db.run`DELETE FROM holdfast_openings WHERE concurrency_key = ${key}`;
  const first = db.get<First & { last: string; holders: number }>(FIRST_OF_KEY, key, key, key);
  if (first === undefined) return;
  const { queue, last, holders } = first;
  settleQueue(db, key, first, holders, now);
  if (queue === last) return;
  for (const other of queuesOfKey(db, key, queue)) {
    settleQueue(db, key, firstOf(db, key, other)!, holders, now); // the queue has a run with the key
  }
}

function settleQueue(db: SqliteDatabase, key: string, first: First, holders: number, now: number): void {
  const { queue } = first;
  if (hasKept(first)) {
    block(db, key, queue);
    passKept(db, key, queue);
    return;
  }
  const opensAt = keyOpensAt(db, key, first, holders, now);
  const canPass = opensAt <= now;
  // What has passed is the first, or the second behind one that has just come.
  if (first.second === "R" || (first.queue_state === "R" && !canPass)) block(db, key, queue);
  if (first.queue_state === "B" && canPass) {
    db.run`UPDATE holdfast_runs SET queue_state = 'R' WHERE seq = ${first.seq}`;
    noteRequeued(db, queue, first.position);
    touchGroup(db, queue, first.fairness_key);
  }
  if (Number.isFinite(opensAt)) {
    const values = [key, queue, opensAt, first.key_rate_period, canPass ? 1 : 0];
    db.run("INSERT INTO holdfast_openings VALUES (?, ?, ?, ?, ?)", ...values);
  }
}

function noteRequeued(db: SqliteDatabase, queue: string, readyPosition = Infinity): void {
  db.requeued.set(queue, Math.min(db.requeued.get(queue) ?? Infinity, readyPosition));
}

/** When the key has room for a run; an instant that has passed if it has now, `Infinity` if others have to leave. */
function keyOpensAt(db: SqliteDatabase, key: string, first: First, holders: number, now: number): number {
  if (holders >= first.key_concurrency) return Infinity;
  const { begun, key_rate_limit: limit, key_rate_period: period } = first;
  if (limit === null || period === null || begun === 1) return -Infinity;
  return rateOpensAt(db, keyScope(key), { limit, period }, now);
}

/** Marks all runs of a queue as ready that kept their key. */
function passKept(db: SqliteDatabase, key: string, queue: string): void {
  const passed = db.all<{ position: number; fairness_key: string | null }>`
    UPDATE holdfast_runs INDEXED BY holdfast_runs_queued_by_key SET queue_state = 'R'
    WHERE concurrency_key = ${key} AND queue = ${queue} AND queue_state IS NOT NULL AND queue_state = 'B'
      AND position < ${raw(LAST_KEPT)}
    RETURNING position, fairness_key`;
  for (const { position, fairness_key: fairnessKey } of passed) {
    noteRequeued(db, queue, position);
    touchGroup(db, queue, fairnessKey);
  }
}

/** Puts back what has passed the key in one queue, except runs that kept it: one of the first two, at most. */
function block(db: SqliteDatabase, key: string, queue: string): void {
  const blocked = db.get<{ fairness_key: string | null }>`
    UPDATE holdfast_runs SET queue_state = 'B' WHERE queue_state = 'R' AND seq IN (
    SELECT seq FROM holdfast_runs INDEXED BY holdfast_runs_queued_by_key
    WHERE concurrency_key = ${key} AND queue = ${queue} AND queue_state IS NOT NULL AND position > ${raw(LAST_KEPT)}
    ORDER BY position LIMIT 2) RETURNING fairness_key`;
  if (blocked === undefined) return;
  noteRequeued(db, queue);
  touchGroup(db, queue, blocked.fairness_key);
}

type First = KeyLimits & RunWith<"seq queue position queue_state fairness_key"> & {
  /** The state of the second run. */
  second: "R" | "B" | null;
  begun: number;
};

const FIRST = `f.seq, f.queue, f.position, f.queue_state, f.fairness_key, f.started_at IS NOT NULL AS begun,
  f.key_concurrency, f.key_rate_limit, f.key_rate_period, (SELECT queue_state FROM holdfast_runs
    WHERE concurrency_key = f.concurrency_key AND queue = f.queue AND queue_state IS NOT NULL
    ORDER BY position LIMIT 1 OFFSET 1) AS second`;

function firstOf(db: SqliteDatabase, key: string, queue: string): First | undefined {
  return db.get<First>`SELECT ${raw(FIRST)} FROM holdfast_runs f INDEXED BY holdfast_runs_queued_by_key
    WHERE concurrency_key = ${key} AND queue = ${queue} AND queue_state IS NOT NULL ORDER BY position LIMIT 1`;
}

// The first run of the first queue of a key, with the last queue and the number of its holders.
const FIRST_OF_KEY = `SELECT ${FIRST},
    (SELECT queue FROM holdfast_runs WHERE concurrency_key = ? AND queue_state IS NOT NULL
     ORDER BY queue DESC LIMIT 1) AS last,
    (SELECT count(*) FROM holdfast_holders WHERE concurrency_key = ?) AS holders
  FROM holdfast_runs f INDEXED BY holdfast_runs_queued_by_key
  WHERE concurrency_key = ? AND queue_state IS NOT NULL ORDER BY queue, position LIMIT 1`;

/** The queues of the due runs with a key, after one: one probe for each. */
export function* queuesOfKey(db: SqliteDatabase, key: string, after = ""): Generator<string> {
  for (let last = after;;) {
    const row = db.get<{ queue: string }>`SELECT queue FROM holdfast_runs INDEXED BY holdfast_runs_queued_by_key
      WHERE concurrency_key = ${key} AND queue > ${last} AND queue_state IS NOT NULL ORDER BY queue LIMIT 1`;
    if (row === undefined) return;
    yield last = row.queue;
  }
}

/** The first run of a queue with a key. */
interface FirstInQueue {
  queue: string;
  /** Whether it has passed the key. */
  isReady: boolean;
  /** Whether it was claimed before. */
  hasBegun: boolean;
}

/** Of each other queue, the first run with a key, as far as it comes before a position. */
export function firstsBefore(db: SqliteDatabase, key: string, queue: string, position: number): FirstInQueue[] {
  return [...queuesOfKey(db, key)].filter((other) => other !== queue).flatMap((other) => {
    const first = firstOf(db, key, other)!; // the queue has a run with the key
    if (first.position >= position) return [];
    return [{ queue: other, isReady: first.queue_state === "R", hasBegun: first.begun === 1 }];
  });
}
