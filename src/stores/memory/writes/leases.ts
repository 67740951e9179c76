import type { Lease, SeenLease } from "../../../model/lease.ts";
import type { Report } from "../../../model/execution_report.ts";
import type { Renewal } from "../../../store/claim.ts";
import type { MemoryRuns } from "../runs.ts";
import type { ClaimState, KnownWorker } from "./claim.ts";

/** Extends leases. See `Store.renew()`. */
export function renewLeases(
  runs: MemoryRuns,
  renewals: readonly Renewal[],
  leaseMs: number,
  now: number,
): (number | null)[] {
  return renewals.map(({ lease, reports }) => {
    const run = runs.findUnder(lease);
    const held = run?.lease ?? null;
    if (run === undefined || held === null) return null;
    held.expiresAt = Math.max(held.expiresAt + 1, now + leaseMs);
    runs.noteReports(run, reports);
    runs.touch(run, now);
    return held.expiresAt;
  });
}

/** Releases a lease before its end. See `Store.release()`. */
export function releaseLease(runs: MemoryRuns, lease: Lease, reports: readonly Report[], now: number): void {
  // Also if the run has fewer records than its holder knows: nothing is written, and others can go on.
  const run = runs.findUnder({ ...lease, recorded: 0 });
  if (run !== undefined) {
    runs.noteReports(run, reports);
    runs.interrupt(run, now);
  } else {
    const ghost = runs.keys.findGhost(lease);
    if (ghost?.claimId === lease.claimId) runs.releaseGhost(ghost);
  }
}

/** Revokes leases that were not renewed since they were read. See `Store.revoke()`. */
export function revokeLeases(
  { runs, workers }: Pick<ClaimState, "runs" | "workers">,
  leases: readonly SeenLease[],
  now: number,
): void {
  for (const lease of leases) {
    const run = runs.findLeased(lease);
    const ghost = runs.keys.findGhost(lease);
    if (run?.lease?.expiresAt === lease.expiresAt) runs.abandon(run, workers.get(run.lease.owner), now);
    else if (ghost?.expiresAt === lease.expiresAt) runs.releaseGhost(ghost);
  }
}

/** All current leases, and those of cancelled runs that a worker may still execute. */
export function listLeases(runs: MemoryRuns, workers: ReadonlyMap<string, KnownWorker>, now: number): SeenLease[] {
  const leases: SeenLease[] = [];
  for (const { id, generation, claimId, lastRecordedNo, concurrencyKey, lease } of runs.open) {
    if (lease === null || claimId === null) continue;
    const leaseMs = workers.get(lease.owner)?.leaseMs ?? null;
    const seen = { runId: id, generation, claimId, recorded: lastRecordedNo, concurrencyKey };
    leases.push({ ...seen, expiresAt: lease.expiresAt, leaseMs });
  }
  for (const { runId, generation, claimId, concurrencyKey, expiresAt } of runs.keys.ghosts) {
    if (expiresAt <= now) continue;
    leases.push({ runId, generation, claimId, recorded: 0, concurrencyKey, expiresAt, leaseMs: null });
  }
  return leases;
}
