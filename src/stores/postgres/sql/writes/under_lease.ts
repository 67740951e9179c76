/**
 * The condition that a lease, a JSON parameter, is the current one of a run, the name of a row. It is NULL if there is no
 * run. It is written so that a run is found by its id: a plan that is made while the tables are empty could prefer the
 * index of all runs under a lease.
 */
export function underLease(run: string, lease: string): string {
  return `${
    hadLease(run, lease)
  } and ${run}.recorded >= (${lease} ->> 'recorded')::int and ${run}.status || '' = 'running'`;
}

/** The condition that a lease was the last one of a run, whether or not it has ended since. */
export function hadLease(run: string, lease: string): string {
  return `${run}.lease_generation = (${lease} ->> 'generation')::int and ${run}.lease_claim = ${lease} ->> 'claimId'`;
}
