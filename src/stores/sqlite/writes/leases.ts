import type { Report } from "../../../model/execution_report.ts";
import type { Lease, SeenLease } from "../../../model/lease.ts";
import type { ClaimResult, Renewal } from "../../../store/claim.ts";
import { abandonedFailure, aloneDelayMs } from "../../rules.ts";
import { releaseGhost } from "../flow/ghosts.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { raw } from "../statement.ts";
import { failRun, findLeased, leaveLease, type OpenRun, SELECT_OPEN_RUN } from "./endings.ts";
import { findNewReports, keepReports, newReports, noteReports } from "./new_reports.ts";
import { underLease } from "./lease_cache.ts";

/** Extends leases. See `Store.renew()`. */
export function renewLeases(
  db: SqliteDatabase,
  renewals: readonly Renewal[],
  leaseMs: number,
  now: number,
): (number | null)[] {
  return renewals.map(({ lease, reports }) => {
    const added = findNewReports(db, lease, reports);
    const row = db.get<{ seq: number; lease_expires_at: number }>`
      UPDATE holdfast_runs SET lease_expires_at = max(lease_expires_at + 1, ${now + leaseMs}), updated_at = ${now},
        ${keepReports(added)}
      WHERE ${underLease(lease)} RETURNING seq, lease_expires_at`;
    if (row === undefined) return null;
    noteReports(db, lease, row.seq, added);
    return row.lease_expires_at;
  });
}

/** Releases a lease. See `Store.release()`. */
export function releaseLease(db: SqliteDatabase, lease: Lease, reports: readonly Report[], now: number): void {
  // Also if the run has fewer records than its holder knows: nothing is written, and others can go on.
  const run = findLeased(db, { ...lease, recorded: 0 });
  if (run === undefined) return releaseGhost(db, lease, { claimId: lease.claimId }, now);
  leaveLease(db, run, "released", { added: newReports(reports, run.last_report_no) }, now);
}

/** All leases, including those of cancelled runs that a worker may still execute. See `Store.getLeases()`. */
export function readLeases(db: SqliteDatabase, now: number): SeenLease[] {
  return db.all<SeenLease>`
    SELECT r.id AS runId, r.lease_generation AS generation, r.lease_claim AS claimId, r.recorded,
      r.concurrency_key AS concurrencyKey, r.lease_expires_at AS expiresAt, w.lease_ms AS leaseMs
    FROM holdfast_runs r LEFT JOIN holdfast_workers w ON w.id = r.lease_owner WHERE r.lease_expires_at IS NOT NULL
    UNION ALL SELECT run_id, generation, lease_claim, 0, concurrency_key, expires_at, NULL
    FROM holdfast_ghosts WHERE expires_at > ${now}`.map((lease) => ({ ...lease }));
}

/** Which leases are no longer current. See `Store.getLostLeases()`. */
export function findLostLeases(db: SqliteDatabase, leases: readonly Lease[]): Lease[] {
  return leases.filter((lease) => db.get`SELECT 1 FROM holdfast_runs WHERE ${underLease(lease)}` === undefined);
}

/** Revokes leases that were not renewed since they were read. See `Store.revoke()`. */
export function revokeLeases(db: SqliteDatabase, leases: readonly SeenLease[], now: number): void {
  for (const lease of leases) {
    const row = db.get<OpenRun>`
      ${SELECT_OPEN_RUN} WHERE id = ${lease.runId} AND lease_generation = ${lease.generation}
        AND lease_expires_at = ${lease.expiresAt}`;
    if (row !== undefined) revokeLease(db, row, Infinity, now);
    else releaseGhost(db, lease, { expiresAt: lease.expiresAt }, now);
  }
}

/** Revokes leases that have expired. Returns the runs that failed. */
export function revokeExpiredLeases(
  db: SqliteDatabase,
  { maxAbandonments, limit }: { maxAbandonments: number; limit: number },
  now: number,
): ClaimResult["failed"] {
  const expired = db.all<OpenRun>`
    ${SELECT_OPEN_RUN} WHERE lease_expires_at <= ${now} ORDER BY lease_expires_at LIMIT ${raw(limit)}`;
  return expired.flatMap((run) => revokeLease(db, run, maxAbandonments, now) ?? []);
}

/** Revokes a lease, so that the run can be claimed again. A run that was abandoned too often fails: then it is returned. */
function revokeLease(
  db: SqliteDatabase,
  run: OpenRun,
  maxAbandonments: number,
  now: number,
): ClaimResult["failed"][number] | null {
  const worker = db.get<{ sole_claim: string | null; lease_ms: number }>`
    SELECT sole_claim, lease_ms FROM holdfast_workers WHERE id = ${run.lease_owner}`;
  const wasAlone = worker !== undefined && worker.sole_claim === run.lease_claim;
  const abandonments = run.abandonments + 1;
  const abandonmentsAlone = (run.abandonments === 0 ? 0 : run.abandonments_alone) + (wasAlone ? 1 : 0);
  const aloneAt = now + aloneDelayMs(abandonments, worker?.lease_ms ?? 0);
  leaveLease(db, { ...run, abandonments, abandonments_alone: abandonmentsAlone }, "lost", { aloneAt }, now);
  if (abandonmentsAlone < maxAbandonments) return null;
  return failRun(db, db.one<OpenRun>`${SELECT_OPEN_RUN} WHERE seq = ${run.seq}`, abandonedFailure(abandonments), now);
}
