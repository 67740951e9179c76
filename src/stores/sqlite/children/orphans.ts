import type { RunIdentity } from "../../../model/run.ts";
import { MAX_PASSED_OVER } from "../../rules.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { cancelRun } from "../writes/endings.ts";

/** Cancels children of runs that have ended, a bounded number of them. */
export function cancelOrphans(db: SqliteDatabase, limit: number, now: number): RunIdentity[] {
  return findOrphans(db, limit).map((runId) => cancelOrphan(db, runId, now));
}

/** Cancels a child of a run that has ended. */
export function cancelOrphan(db: SqliteDatabase, runId: string, now: number): RunIdentity {
  const run = cancelRun(db, runId, { requestId: null, execution: null }, now)!; // it has not ended
  return { id: run.id, jobName: run.jobName, labels: run.labels };
}

/** The oldest children of the first parents. Parents without further children are forgotten. */
function findOrphans(db: SqliteDatabase, limit: number): string[] {
  const orphans: { seq: number; id: string }[] = [];
  const parents = db.all<{ parent_seq: number }>`
    SELECT parent_seq FROM holdfast_orphans ORDER BY parent_seq LIMIT ${limit}`;
  for (const { parent_seq: parent } of parents) {
    const room = limit - orphans.length;
    if (room === 0) break;
    const found = db.all<{ seq: number; id: string }>`
      SELECT seq, id FROM holdfast_runs INDEXED BY holdfast_runs_open_children
      WHERE parent_seq = ${parent} AND completed_at IS NULL ORDER BY seq LIMIT ${room + 1}`;
    orphans.push(...found.slice(0, room));
    if (found.length <= room) db.run`DELETE FROM holdfast_orphans WHERE parent_seq = ${parent}`;
  }
  return orphans.sort((one, other) => one.seq - other.seq).map(({ id }) => id);
}

/** The children of ended runs that a claim finds in the queues: it passes them over. */
export class PassedOrphans {
  readonly #db: SqliteDatabase;
  readonly #found = new Set<number>();
  readonly #hasOrphans: boolean;

  constructor(db: SqliteDatabase, hasOrphans: boolean) {
    this.#db = db;
    this.#hasOrphans = hasOrphans;
  }

  /** How many it has found. */
  get count(): number {
    return this.#found.size;
  }

  /** Whether it has found so many that the claim is to end. */
  get isFull(): boolean {
    return this.#found.size >= MAX_PASSED_OVER;
  }

  /** Whether a run is one of them. */
  has(seq: number): boolean {
    if (!this.#hasOrphans) return false;
    if (this.#found.has(seq)) return true;
    const isFound = isOrphan(this.#db, seq);
    if (isFound) this.#found.add(seq);
    return isFound;
  }
}

/** Whether the run that waited for a run has ended: it is not claimed any more. */
export function isOrphan(db: SqliteDatabase, seq: number): boolean {
  return db.get`SELECT 1 FROM holdfast_runs r JOIN holdfast_orphans o ON o.parent_seq = r.parent_seq
    WHERE r.seq = ${seq} AND r.completed_at IS NULL` !== undefined;
}
