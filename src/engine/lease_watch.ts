import type { SeenLease } from "../lease.ts";
import type { Store } from "../store.ts";

/**
 * Finds leases of others that nobody renews although the wall clock says that they last: after a clock was set back,
 * the lease of a dead worker would else last longer by just that much.
 */
export class LeaseWatch {
  readonly #store: Store;
  readonly #leaseMs: number;
  #firstSeen = new Map<string, { lease: SeenLease; at: number }>();
  #nextLookAt = -Infinity;

  /** @param leaseMs How long a lease may stay unchanged, in milliseconds; those of a worker with longer ones, longer. */
  constructor(store: Store, leaseMs: number) {
    this.#store = store;
    this.#leaseMs = leaseMs;
  }

  /** Looks, a few times during the length of a lease, and takes away what was seen unchanged for all of it. */
  async look(monotonicNow: number): Promise<void> {
    if (monotonicNow < this.#nextLookAt) return;
    this.#nextLookAt = monotonicNow + this.#leaseMs / 3;
    const seen = new Map<string, { lease: SeenLease; at: number }>();
    for (const lease of await this.#store.getLeases()) {
      const key = `${lease.runId} ${lease.generation} ${lease.expiresAt}`;
      seen.set(key, this.#firstSeen.get(key) ?? { lease, at: monotonicNow });
    }
    this.#firstSeen = seen;
    const stale = [...seen.values()].filter(({ lease, at }) =>
      monotonicNow - at >= Math.max(this.#leaseMs, lease.leaseMs ?? 0)
    );
    if (stale.length > 0) await this.#store.revoke(stale.map(({ lease }) => lease));
  }
}
