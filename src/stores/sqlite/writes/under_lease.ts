import type { Lease } from "../../../model/lease.ts";

/**
 * The condition that a lease is the current one of a row of `holdfast_runs`. Its parameters are those of
 * {@linkcode leaseParameters}.
 */
export const UNDER_LEASE =
  "id = ? AND lease_generation = ? AND lease_claim = ? AND recorded >= ? AND status = 'running'";

/** The parameters of {@linkcode UNDER_LEASE}. */
export function leaseParameters(
  { runId, generation, claimId, recorded }: Lease,
): [runId: string, generation: number, claimId: string, recorded: number] {
  return [runId, generation, claimId, recorded];
}
