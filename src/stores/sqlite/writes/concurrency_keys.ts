import type { SqliteDatabase } from "../sqlite_database.ts";

// The due runs with a concurrency key are its queue. Their `queue_state` is R (ready to be claimed) or B (blocked). Two
// invariants hold after every write:
//   K1: while a key is held, no run of it is R, except its holder.
//   K2: while a key is free, every job with a queued run has exactly one R: the run that was triggered first.
// There is one R for each job, and not one for the key, since a worker claims only jobs that it knows: a job that no worker knows blocks no other.

/** Marks a due run as ready, or queues it for its key. */
export function enterQueue(db: SqliteDatabase, runSeq: number, key: string | null): void {
  db.run("UPDATE holdfast_runs SET queue_state = ? WHERE seq = ?", key === null ? "R" : "B", runSeq);
  if (key !== null) updateQueue(db, key);
}

/**
 * Releases a concurrency key. Every release of a key goes through this function.
 *
 * @returns Whether that run held the key, under that lease.
 */
export function releaseKey(db: SqliteDatabase, key: string, runId: string, generation: number): boolean {
  const held = db.run(
    "DELETE FROM holdfast_keys WHERE concurrency_key = ? AND run_id = ? AND generation = ?",
    key,
    runId,
    generation,
  ) > 0;
  updateQueue(db, key);
  return held;
}

/** Takes a key for a run under a new lease. Returns `false` if another run holds it. */
export function takeKey(db: SqliteDatabase, key: string, runId: string, generation: number): boolean {
  const taken = db.run(
    `INSERT INTO holdfast_keys (concurrency_key, run_id, generation) VALUES (?, ?, ?)
     ON CONFLICT (concurrency_key) DO UPDATE SET generation = excluded.generation, expires_at = NULL
     WHERE run_id = excluded.run_id`,
    key,
    runId,
    generation,
  ) > 0;
  if (taken) updateQueue(db, key);
  return taken;
}

/** Restores K1 and K2 for a key, after a change of the key or of its runs. */
export function updateQueue(db: SqliteDatabase, key: string): void {
  const holder = db.get<{ run_id: string }>("SELECT run_id FROM holdfast_keys WHERE concurrency_key = ?", key);
  if (holder !== undefined) {
    const runId = holder.run_id;
    // Without INDEXED BY the planner would scan the whole queue.
    db.run(
      `UPDATE holdfast_runs INDEXED BY holdfast_runs_ready_by_key SET queue_state = 'B'
       WHERE concurrency_key = ? AND queue_state = 'R' AND id <> ?`,
      key,
      runId,
    );
    db.run("UPDATE holdfast_runs SET queue_state = 'R' WHERE id = ? AND queue_state = 'B'", runId);
    return;
  }
  for (let job = nextJob(db, key, ""); job !== null; job = nextJob(db, key, job)) {
    const first = db.one<{ seq: number; queue_state: "R" | "B" }>(
      `SELECT seq, queue_state FROM holdfast_runs
       WHERE concurrency_key = ? AND job = ? AND queue_state IS NOT NULL ORDER BY seq LIMIT 1`,
      key,
      job,
    );
    if (first.queue_state === "R") continue;
    db.run(
      "UPDATE holdfast_runs SET queue_state = 'B' WHERE concurrency_key = ? AND job = ? AND queue_state = 'R'",
      key,
      job,
    );
    db.run("UPDATE holdfast_runs SET queue_state = 'R' WHERE seq = ?", first.seq);
  }
}

function nextJob(db: SqliteDatabase, key: string, after: string): string | null {
  const row = db.get<{ job: string }>(
    `SELECT job FROM holdfast_runs
     WHERE concurrency_key = ? AND job > ? AND queue_state IS NOT NULL ORDER BY job LIMIT 1`,
    key,
    after,
  );
  return row?.job ?? null;
}
