import type { SqliteDatabase } from "../sqlite_database.ts";

// Runs that are due but for their concurrency key are queued for it. Two invariants hold after every write (`place`
// R: ready to be claimed; B: behind others):
//   K1: while a key is held, no run of it is R, except its holder.
//   K2: while a key is free, every job with a queued run has exactly one R: the one triggered first.
// One for each job, since a worker claims only jobs that it knows: a job that nobody knows blocks no other.

/** Marks a due run as ready, or queues it for its key. */
export function enterQueue(db: SqliteDatabase, runSeq: number, key: string | null): void {
  db.run("UPDATE holdfast_runs SET place = ? WHERE seq = ?", key === null ? "R" : "B", runSeq);
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
  const holder = db.get("SELECT run_id FROM holdfast_keys WHERE concurrency_key = ?", key);
  if (holder !== undefined) {
    const runId = holder.run_id as string;
    // Without this the planner would scan the whole queue.
    db.run(
      `UPDATE holdfast_runs INDEXED BY holdfast_runs_first_in_line SET place = 'B'
       WHERE concurrency_key = ? AND place = 'R' AND id <> ?`,
      key,
      runId,
    );
    db.run("UPDATE holdfast_runs SET place = 'R' WHERE id = ? AND place = 'B'", runId);
    return;
  }
  for (let job = nextJob(db, key, ""); job !== null; job = nextJob(db, key, job)) {
    const first = db.get(
      `SELECT seq, place FROM holdfast_runs
       WHERE concurrency_key = ? AND job = ? AND place IS NOT NULL ORDER BY seq LIMIT 1`,
      key,
      job,
    )!;
    if (first.place === "R") continue;
    db.run("UPDATE holdfast_runs SET place = 'B' WHERE concurrency_key = ? AND job = ? AND place = 'R'", key, job);
    db.run("UPDATE holdfast_runs SET place = 'R' WHERE seq = ?", first.seq!);
  }
}

function nextJob(db: SqliteDatabase, key: string, after: string): string | null {
  const row = db.get(
    `SELECT job FROM holdfast_runs
     WHERE concurrency_key = ? AND job > ? AND place IS NOT NULL ORDER BY job LIMIT 1`,
    key,
    after,
  );
  return row === undefined ? null : row.job as string;
}
