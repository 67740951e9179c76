import type { Lease } from "../../../model/lease.ts";
import { type Part, sql } from "../statement.ts";

/** The condition that a lease is the current one of a row of `holdfast_runs`. */
export function underLease({ runId, generation, claimId, recorded }: Lease): Part {
  return sql`id = ${runId} AND lease_generation = ${generation} AND lease_claim = ${claimId} AND recorded >= ${recorded}
    AND status = 'running'`;
}
