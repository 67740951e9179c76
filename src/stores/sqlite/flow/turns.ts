import { MAX_FORGOTTEN } from "../../rules.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";

// The claimable runs of one job and one fairness key are a group. Its head is the run with the lowest position, and the
// group has a turn. T1: each group that is not empty has exactly one row in `holdfast_heads`, with its first run.
//
// A group gets its turn when its first run becomes claimable: the turn being served, or a later one if its fairness key
// has had that already. It keeps the turn, whichever run is its head, until one of its runs is claimed or none is left.
// So a key that comes back joins the current turn.

/** Notes that the claimable runs of a group have changed. `settleHeads` has to be called before the next claim. */
export function touchGroup(db: SqliteDatabase, job: string, fairnessKey: string | null): void {
  if (fairnessKey !== null) db.touchedGroups.add(JSON.stringify([job, fairnessKey]));
}

/**
 * Restores T1 after a write.
 *
 * @returns The jobs whose heads may have changed.
 */
export function settleHeads(db: SqliteDatabase): string[] {
  if (db.touchedGroups.size === 0) return [];
  const groups: [job: string, fairnessKey: string][] = [...db.touchedGroups].map((group) => JSON.parse(group));
  db.touchedGroups.clear();
  for (const [job, fairnessKey] of groups) settleHead(db, job, fairnessKey);
  return groups.map(([job]) => job);
}

function settleHead(db: SqliteDatabase, job: string, fairnessKey: string): void {
  const first = db.get<{ run_seq: number; position: number }>(
    `SELECT run_seq, position FROM holdfast_flow
     WHERE queue_state = 'R' AND job = ? AND fairness_key = ? ORDER BY position LIMIT 1`,
    job,
    fairnessKey,
  );
  if (first === undefined) {
    db.run("DELETE FROM holdfast_heads WHERE job = ? AND fairness_key = ?", job, fairnessKey);
    return;
  }
  db.run(
    `INSERT INTO holdfast_heads (job, fairness_key, turn, position, run_seq)
     SELECT ?, ?, max(turn, coalesce((SELECT next_turn FROM holdfast_fairness_keys WHERE fairness_key = ?), 0)), ?, ?
     FROM holdfast_serving WHERE id = 1
     ON CONFLICT DO UPDATE SET position = excluded.position, run_seq = excluded.run_seq`,
    job,
    fairnessKey,
    fairnessKey,
    first.position,
    first.run_seq,
  );
}

/** The head of a group. */
export interface Head {
  job: string;
  fairness_key: string;
  turn: number;
  position: number;
  run_seq: number;
}

/** The first heads of a job, by turn. */
export function readHeads(db: SqliteDatabase, job: string, limit: number): Head[] {
  return db.few<Head>(
    limit,
    `SELECT job, fairness_key, turn, position, run_seq FROM holdfast_heads
     WHERE job = ? ORDER BY turn, position LIMIT ${limit}`,
    job,
  );
}

/** For each group of a job, the first run that has begun before, with the turn of the group. */
export function readBegunHeads(db: SqliteDatabase, job: string): Head[] {
  const rows = db.all<Head>(
    // One probe for each fairness key, however many runs it has.
    `WITH RECURSIVE keys (fairness_key) AS (
       SELECT min(fairness_key) FROM holdfast_flow INDEXED BY holdfast_flow_ready_begun
       WHERE queue_state = 'R' AND begun = 1 AND job = ? AND fairness_key >= ''
       UNION ALL
       SELECT (SELECT min(f.fairness_key) FROM holdfast_flow f INDEXED BY holdfast_flow_ready_begun
         WHERE f.queue_state = 'R' AND f.begun = 1 AND f.job = ? AND f.fairness_key > keys.fairness_key)
       FROM keys WHERE keys.fairness_key IS NOT NULL)
     SELECT f.job, f.fairness_key, h.turn, f.position, f.run_seq FROM keys
     CROSS JOIN holdfast_flow f ON f.run_seq =
       (SELECT b.run_seq FROM holdfast_flow b INDEXED BY holdfast_flow_ready_begun
        WHERE b.queue_state = 'R' AND b.begun = 1 AND b.job = ? AND b.fairness_key = keys.fairness_key
        ORDER BY b.position LIMIT 1)
     JOIN holdfast_heads h ON h.job = f.job AND h.fairness_key = f.fairness_key`,
    job,
    job,
    job,
  );
  return rows.sort((one, other) => one.turn - other.turn || one.position - other.position);
}

/** The turn of the runs without a fairness key. */
export function readKeylessTurn(db: SqliteDatabase): number {
  return db.one<{ turn: number }>("SELECT max(turn, keyless) AS turn FROM holdfast_serving WHERE id = 1").turn;
}

/**
 * Notes that a group was served in its turn, before its run leaves it.
 *
 * @returns The jobs of the other groups of the fairness key: they have had this turn, too.
 */
export function serveGroup(db: SqliteDatabase, { job, fairness_key: fairnessKey, turn }: Head): string[] {
  db.run("UPDATE holdfast_serving SET turn = ? WHERE id = 1 AND turn < ?", turn, turn);
  db.run(
    "INSERT INTO holdfast_fairness_keys VALUES (?, ?) ON CONFLICT DO UPDATE SET next_turn = excluded.next_turn",
    fairnessKey,
    turn + 1,
  );
  db.run("DELETE FROM holdfast_heads WHERE job = ? AND fairness_key = ?", job, fairnessKey);
  touchGroup(db, job, fairnessKey);
  const raised = db.run("UPDATE holdfast_heads SET turn = max(turn, ?) WHERE fairness_key = ?", turn + 1, fairnessKey);
  if (raised === 0) return [];
  return db.all<{ job: string }>("SELECT job FROM holdfast_heads WHERE fairness_key = ?", fairnessKey)
    .map((head) => head.job);
}

/** Notes that a run without a fairness key was served in its turn. */
export function serveKeyless(db: SqliteDatabase, turn: number): void {
  db.run("UPDATE holdfast_serving SET turn = max(turn, ?), keyless = ? WHERE id = 1", turn, turn + 1);
}

/** Removes some of the fairness keys whose next turn says nothing any more. */
export function forgetTurns(db: SqliteDatabase): void {
  db.run(
    `DELETE FROM holdfast_fairness_keys WHERE fairness_key IN
       (SELECT fairness_key FROM holdfast_fairness_keys
        WHERE next_turn <= (SELECT turn FROM holdfast_serving WHERE id = 1) LIMIT ${MAX_FORGOTTEN})`,
  );
}
