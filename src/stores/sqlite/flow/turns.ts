import { MAX_FORGOTTEN } from "../../rules.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { raw } from "../statement.ts";
import { readyRunsOf } from "./candidate.ts";

// The claimable runs of one queue and one fairness key are a group. Its head is the run with the lowest position, and the
// group has a turn. T1: each group that is not empty has exactly one row in `holdfast_heads`, with its first run.
//
// A group gets its turn when its first run becomes claimable: the turn being served, or a later one if its fairness key
// has had that already. It keeps the turn, whichever run is its head, until one of its runs is claimed or none is left.
// So a key that comes back joins the current turn.

/** Notes that the claimable runs of a group have changed. `settleHeads` has to be called before the next claim. */
export function touchGroup(db: SqliteDatabase, queue: string, fairnessKey: string | null): void {
  if (fairnessKey !== null) db.touchedGroups.add(JSON.stringify([queue, fairnessKey]));
}

/**
 * Restores T1 after a write.
 *
 * @returns The queues whose heads may have changed.
 */
export function settleHeads(db: SqliteDatabase): string[] {
  if (db.touchedGroups.size === 0) return [];
  const groups: [queue: string, fairnessKey: string][] = [...db.touchedGroups].map((group) => JSON.parse(group));
  db.touchedGroups.clear();
  for (const [queue, fairnessKey] of groups) settleHead(db, queue, fairnessKey);
  return groups.map(([queue]) => queue);
}

function settleHead(db: SqliteDatabase, queue: string, fairnessKey: string): void {
  const first = db.get<{ seq: number; position: number }>`
    ${readyRunsOf(queue, "seq, position")} AND fairness_key = ${fairnessKey} ORDER BY position LIMIT 1`;
  if (first === undefined) {
    db.run`DELETE FROM holdfast_heads WHERE queue = ${queue} AND fairness_key = ${fairnessKey}`;
    return;
  }
  db.run`INSERT INTO holdfast_heads (queue, fairness_key, turn, position, run_seq)
    SELECT ${queue}, ${fairnessKey}, max(turn, coalesce((SELECT next_turn FROM holdfast_fairness_keys
      WHERE fairness_key = ${fairnessKey}), 0)), ${first.position}, ${first.seq}
    FROM holdfast_serving WHERE id = 1
    ON CONFLICT DO UPDATE SET position = excluded.position, run_seq = excluded.run_seq`;
}

/** The head of a group. */
export interface Head {
  queue: string;
  fairness_key: string;
  turn: number;
  position: number;
  run_seq: number;
}

/** The first heads of a queue, by turn. */
export function readHeads(db: SqliteDatabase, queue: string, limit: number): Head[] {
  return db.few<Head>(
    limit,
    `SELECT queue, fairness_key, turn, position, run_seq FROM holdfast_heads
     WHERE queue = ? ORDER BY turn, position LIMIT ${limit}`,
    queue,
  );
}

/** For each group of a queue, the first run that has begun before, with the turn of the group. */
export function readBegunHeads(db: SqliteDatabase, queue: string): Head[] {
  const begun = (columns: string) => readyRunsOf(queue, columns, true);
  // One probe for each fairness key, however many runs it has.
  const rows = db.all<Head>`
    WITH RECURSIVE keys (fairness_key) AS (
      ${begun("min(fairness_key)")} AND fairness_key >= ''
      UNION ALL
      SELECT (${begun("min(holdfast_runs.fairness_key)")} AND holdfast_runs.fairness_key > keys.fairness_key)
      FROM keys WHERE keys.fairness_key IS NOT NULL)
    SELECT r.queue, r.fairness_key, h.turn, r.position, r.seq AS run_seq FROM keys
    CROSS JOIN holdfast_runs r ON r.seq =
      (${begun("seq")} AND holdfast_runs.fairness_key = keys.fairness_key ORDER BY position LIMIT 1)
    JOIN holdfast_heads h ON h.queue = r.queue AND h.fairness_key = r.fairness_key`;
  return rows.sort((one, other) => one.turn - other.turn || one.position - other.position);
}

/** The turn of the runs without a fairness key. */
export function readKeylessTurn(db: SqliteDatabase): number {
  return db.one<{ turn: number }>`SELECT max(turn, keyless) AS turn FROM holdfast_serving WHERE id = 1`.turn;
}

/**
 * Notes that a group was served in its turn, before its run leaves it.
 *
 * @returns The queues of the other groups of the fairness key: they have had this turn, too.
 */
export function serveGroup(db: SqliteDatabase, { queue, fairness_key: fairnessKey, turn }: Head): string[] {
  db.run`UPDATE holdfast_serving SET turn = ${turn} WHERE id = 1 AND turn < ${turn}`;
  db.run`
    INSERT INTO holdfast_fairness_keys VALUES (${fairnessKey}, ${turn + 1}) ON CONFLICT DO UPDATE
      SET next_turn = excluded.next_turn`;
  db.run`DELETE FROM holdfast_heads WHERE queue = ${queue} AND fairness_key = ${fairnessKey}`;
  touchGroup(db, queue, fairnessKey);
  const raised = db.run`UPDATE holdfast_heads SET turn = max(turn, ${turn + 1}) WHERE fairness_key = ${fairnessKey}`;
  if (raised === 0) return [];
  return db.all<{ queue: string }>`SELECT queue FROM holdfast_heads WHERE fairness_key = ${fairnessKey}`
    .map((head) => head.queue);
}

/** Notes that a run without a fairness key was served in its turn. */
export function serveKeyless(db: SqliteDatabase, turn: number): void {
  db.run`UPDATE holdfast_serving SET turn = max(turn, ${turn}), keyless = ${turn + 1} WHERE id = 1`;
}

/** Removes some of the fairness keys whose next turn says nothing any more. */
export function forgetTurns(db: SqliteDatabase): void {
  db.run`DELETE FROM holdfast_fairness_keys WHERE fairness_key IN
    (SELECT fairness_key FROM holdfast_fairness_keys
     WHERE next_turn <= (SELECT turn FROM holdfast_serving WHERE id = 1) LIMIT ${raw(MAX_FORGOTTEN)})`;
}
