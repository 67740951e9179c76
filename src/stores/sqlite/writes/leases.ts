import type { Lease, SeenLease } from "../../../model/lease.ts";
import type { Report } from "../../../model/execution_report.ts";
import type { Renewal } from "../../../store/claim.ts";
import { moveRun } from "../run_counts.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { releaseKey } from "../flow/concurrency_keys.ts";
import { releaseGhost } from "../flow/ghosts.ts";
import { noteInterruption } from "../operate/timeline_writes.ts";
import { findNewReports, KEEP_REPORTS, noteReports } from "./new_reports.ts";
import { type LeasedRow, requeue, revokeLease } from "./revoked_leases.ts";
import { leaseParameters, UNDER_LEASE } from "./under_lease.ts";

/** Extends leases. See `Store.renew()`. */
export function renewLeases(
  db: SqliteDatabase,
  renewals: readonly Renewal[],
  leaseMs: number,
  now: number,
): (number | null)[] {
  return renewals.map(({ lease, reports }) => {
    const added = findNewReports(db, lease, reports);
    const row = db.get<{ seq: number; lease_expires_at: number }>(
      `UPDATE holdfast_runs SET lease_expires_at = max(lease_expires_at + 1, ?), updated_at = ?, ${KEEP_REPORTS}
       WHERE ${UNDER_LEASE} RETURNING seq, lease_expires_at`,
      now + leaseMs,
      now,
      added.progress,
      added.lastNo,
      ...leaseParameters(lease),
    );
    if (row === undefined) return null;
    noteReports(db, lease, row.seq, added);
    return row.lease_expires_at;
  });
}

/** Releases a lease. See `Store.release()`. */
export function releaseLease(db: SqliteDatabase, lease: Lease, reports: readonly Report[], now: number): void {
  const { runId, generation, concurrencyKey: key } = lease;
  db.held.forget(runId);
  // Also if the run has fewer records than its holder knows: nothing is written, and others can go on.
  const released = { ...lease, recorded: 0 };
  const added = findNewReports(db, released, reports);
  noteInterruption(db, lease, "released", now);
  const row = db.get<{ seq: number; job: string; abandonments: number }>(
    `UPDATE holdfast_runs SET status = 'pending', lease_owner = NULL, lease_expires_at = NULL,
       lease_generation = lease_generation + 1, interruptions = interruptions + 1, updated_at = ?, ${KEEP_REPORTS}
     WHERE ${UNDER_LEASE} RETURNING seq, job, abandonments`,
    now,
    added.progress,
    added.lastNo,
    ...leaseParameters(released),
  );
  if (row !== undefined) {
    noteReports(db, lease, row.seq, added);
    moveRun(db, row.job, "running", "pending");
    requeue(db, row, now, now);
    if (key !== null) releaseKey(db, key, runId, generation, now);
  } else {
    releaseGhost(db, lease, { claimId: lease.claimId }, now);
  }
}

/** All leases, including those of cancelled runs that a worker may still execute. See `Store.getLeases()`. */
export function readLeases(db: SqliteDatabase, now: number): SeenLease[] {
  const rows = db.all<HeldLeaseRow>(
    `SELECT r.id, r.lease_generation AS generation, r.lease_claim, r.recorded, r.concurrency_key,
       r.lease_expires_at AS expires_at, w.lease_ms
     FROM holdfast_runs r LEFT JOIN holdfast_workers w ON w.id = r.lease_owner WHERE r.lease_expires_at IS NOT NULL
     UNION ALL SELECT run_id, generation, lease_claim, 0, concurrency_key, expires_at, NULL
     FROM holdfast_ghosts WHERE expires_at > ?`,
    now,
  );
  return rows.map((row) => ({
    runId: row.id,
    generation: row.generation,
    claimId: row.lease_claim,
    recorded: row.recorded,
    concurrencyKey: row.concurrency_key,
    expiresAt: row.expires_at,
    leaseMs: row.lease_ms,
  }));
}

interface HeldLeaseRow {
  id: string;
  generation: number;
  lease_claim: string;
  recorded: number;
  concurrency_key: string | null;
  expires_at: number;
  lease_ms: number | null;
}

/** Which leases are no longer current. See `Store.getLostLeases()`. */
export function findLostLeases(db: SqliteDatabase, leases: readonly Lease[]): Lease[] {
  const sql = `SELECT 1 FROM holdfast_runs WHERE ${UNDER_LEASE}`;
  return leases.filter((lease) => db.get(sql, ...leaseParameters(lease)) === undefined);
}

/** Revokes leases that were not renewed since they were read. See `Store.revoke()`. */
export function revokeLeases(db: SqliteDatabase, leases: readonly SeenLease[], now: number): void {
  for (const lease of leases) {
    const row = db.get<LeasedRow>(
      "SELECT * FROM holdfast_runs WHERE id = ? AND lease_generation = ? AND lease_expires_at = ?",
      lease.runId,
      lease.generation,
      lease.expiresAt,
    );
    if (row !== undefined) revokeLease(db, row, Infinity, now);
    else releaseGhost(db, lease, { expiresAt: lease.expiresAt }, now);
  }
}
