import type { Host } from "../../model/host.ts";
import type { SeenLease } from "../../model/lease.ts";
import type { Store } from "../../store/store.ts";

/**
 * Revokes leases of dead workers that have not expired by the wall clock: if the clock was set back, such a lease would
 * otherwise last longer by the same time.
 */
export class DeadWorkerLeases {
  readonly #store: Store;
  readonly #host: Host;
  readonly #leaseMs: number;
  #firstSeen = new Map<string, { lease: SeenLease; at: number }>();
  #nextLookAt = -Infinity;

  /**
   * @param leaseMs After this many milliseconds without a renewal a lease is revoked. A longer lease is revoked
   * after its own length.
   */
  constructor(store: Store, leaseMs: number, host: Host) {
    this.#store = store;
    this.#host = host;
    this.#leaseMs = leaseMs;
  }

  /** Checks the leases, a few times during `leaseMs`, and revokes those that were not renewed for too long. */
  async look(): Promise<void> {
    const askedAt = this.#host.monotonic();
    if (askedAt < this.#nextLookAt) return;
    this.#nextLookAt = askedAt + this.#leaseMs / 3;
    const leases = await this.#store.getLeases();
    // An answer shows the state at some moment between the call and the answer. So a lease has certainly gone without
    // a renewal only from the first answer that showed it (`at`) until the newest call (`askedAt`).
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
