/**
 * The right to write to a run.
 *
 * Each claim of a run raises its generation by one, and so does each taking away. A write names its lease, and
 * the store refuses it unless that generation is still the run's newest: whoever lost a lease without noticing
 * (a paused process, a blocked event loop, a clock that jumped) cannot do harm. Owners are for people to read
 * and are never compared.
 */
export interface Lease {
  /** The run. */
  runId: string;
  /** Which lease on this run it is; never used twice. */
  generation: number;
  /** The key that the run holds while the lease lasts. */
  concurrencyKey: string | null;
}

/** A lease as somebody else sees it. */
export interface SeenLease extends Lease {
  /** When it ends unless it is renewed: an instant of the store's clock. */
  expiresAt: number;
  /** How long its worker's leases last, in milliseconds; `null` if that is not known. */
  leaseMs: number | null;
}
