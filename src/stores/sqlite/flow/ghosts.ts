import type { Lease } from "../../../model/lease.ts";
import { jobNameOf } from "../../queue_name.ts";
import type { RunWith } from "../rows.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { raw } from "../statement.ts";
import { releaseKey } from "./concurrency_keys.ts";

// A ghost is a run that was cancelled under a lease: until the lease is released or would have expired, its worker may
// still execute it. It keeps its concurrency key, and its place under the limit of its job.

/** Keeps what a run holds that is cancelled under a lease, until then. */
export function keepGhost(
  db: SqliteDatabase,
  run: RunWith<"id lease_generation lease_claim job concurrency_key">,
  expiresAt: number,
): void {
  db.run`
    INSERT OR REPLACE INTO holdfast_ghosts (run_id, generation, lease_claim, job, concurrency_key, expires_at)
    VALUES (${run.id}, ${run.lease_generation}, ${run.lease_claim}, ${
    jobNameOf(run.job)
  }, ${run.concurrency_key}, ${expiresAt})`;
}

/**
 * Releases what a run holds that was cancelled under a lease. For any other lease nothing happens.
 *
 * @param only.claimId Only if this claim has given the lease.
 * @param only.expiresAt Only if the lease still ended then when the run was cancelled.
 */
export function releaseGhost(
  db: SqliteDatabase,
  { runId, generation }: Pick<Lease, "runId" | "generation">,
  { claimId = null, expiresAt = null }: { claimId?: string | null; expiresAt?: number | null },
  now: number,
): void {
  const ghost = db.get<RunWith<"concurrency_key">>`
    DELETE FROM holdfast_ghosts WHERE run_id = ${runId} AND generation = ${generation}
      AND lease_claim IS coalesce(${claimId}, lease_claim) AND expires_at = coalesce(${expiresAt}, expires_at)
    RETURNING concurrency_key`;
  if (ghost === undefined || ghost.concurrency_key === null) return;
  releaseKey(db, ghost.concurrency_key, runId, generation, now);
}

/** Releases what ghosts hold whose lease would have expired. */
export function releaseExpiredGhosts(db: SqliteDatabase, limit: number, now: number): void {
  const expired = db.all<{ run_id: string; generation: number }>`
    SELECT * FROM holdfast_ghosts WHERE expires_at <= ${now} ORDER BY expires_at LIMIT ${raw(limit)}`;
  for (const { run_id: runId, generation } of expired) releaseGhost(db, { runId, generation }, {}, now);
}
