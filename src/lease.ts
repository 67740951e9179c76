/**
 * The right to write to a run.
 *
 * Each claim of a run raises its generation by one, and so does each revocation. A write names its lease, and the
 * store refuses it unless that generation is still the run's newest. So a worker that lost a lease without noticing
 * (a paused process, a blocked event loop, a clock that jumped) cannot write. Owners are only for display and are
 * never compared.
 */
export interface Lease {
  /** The run. */
  runId: string;
  /** The number of this lease among those on the run; never reused. */
  generation: number;
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
