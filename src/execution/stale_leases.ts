import type { Host } from "../host.ts";
import type { SeenLease } from "../lease.ts";
import type { Store } from "../store.ts";

/**
 * Finds leases of others that nobody renews although the wall clock says that they last: after a clock was set back,
 * the lease of a dead worker would else last longer by just that much.
 */
export class StaleLeases {
  readonly #store: Store;
  readonly #host: Host;
  readonly #leaseMs: number;
  #firstSeen = new Map<string, { lease: SeenLease; at: number }>();
  #nextLookAt = -Infinity;

  /** @param leaseMs How long a lease may stay unchanged, in milliseconds; those of a worker with longer ones, longer. */
  constructor(store: Store, leaseMs: number, host: Host) {
    this.#store = store;
    this.#host = host;
    this.#leaseMs = leaseMs;
  }

  /** Looks, a few times during the length of a lease, and takes away what was seen unchanged for all of it. */
  async look(): Promise<void> {
    const askedAt = this.#host.monotonic();
    if (askedAt < this.#nextLookAt) return;
    this.#nextLookAt = askedAt + this.#leaseMs / 3;
    const leases = await this.#store.getLeases();
    // What an answer shows was so at some moment between the question and the answer. Counted is only what surely lies
    // between two such moments.
    const answeredAt = this.#host.monotonic();
    const seen = new Map<string, { lease: SeenLease; at: number }>();
    for (const lease of leases) {
      const key = `${lease.runId} ${lease.generation} ${lease.expiresAt}`;
      seen.set(key, this.#firstSeen.get(key) ?? { lease, at: answeredAt });
    }
    this.#firstSeen = seen;
    const stale = [...seen.values()].filter(({ lease, at }) =>
      askedAt - at >= Math.max(this.#leaseMs, lease.leaseMs ?? 0)
    );
    if (stale.length > 0) await this.#store.revoke(stale.map(({ lease }) => lease));
  }
}
