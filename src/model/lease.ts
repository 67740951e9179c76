/**
 * The right to write to a run.
 *
 * Each claim of a run raises its generation by one, and so does each revocation. A write names its lease, and the
 * store refuses it unless that generation is still the run's newest. So a worker that lost a lease without noticing
 * (a paused process, a blocked event loop, a clock that jumped) cannot write. Owners are only for display and are
 * never compared.
 *
 * A database that fails over to a standby without the last commits gives a generation out again, and has forgotten what
 * its workers know. So the store also compares the claim, and how much the run has recorded: the standby has another
 * claim under that generation, or fewer records.
 */
export interface Lease {
  /** The run. */
  runId: string;
  /** The number of this lease among those on the run; never reused. */
  generation: number;
  /** The claim that gave it: `ClaimRequest.claimId`. */
  claimId: string;
  /** How many records of the run its holder knows, by the store's answers. The run may have more, never fewer. */
  recorded: number;
  /** The concurrency key that the run holds during the lease. */
  concurrencyKey: string | null;
}

/** A lease as other workers see it. */
export interface SeenLease extends Lease {
  /** When it expires unless it is renewed, by the store's clock. */
  expiresAt: number;
  /** How long its worker's leases last, in milliseconds; `null` if that is not known. */
  leaseMs: number | null;
}
