import type { Host } from "../model/host.ts";
import type { ClaimRequest, ClaimResult } from "../store/claim.ts";

/**
 * Decides when a worker is to claim a run that is claimed alone. It does so when it holds nothing, and no other run is
 * ready. If the run has been due for the length of a lease, the worker drains: it claims nothing until it holds nothing,
 * and then claims this run first. Before that, it claims others for the length of a lease, so that many such runs leave
 * time to others, even if each of them ends the process.
 *
 * It drains in times that grow: until the run has been due for 2 lengths of a lease, then from 4 to 8, from 16 to 32, and
 * so on. So it comes to hold nothing however long its runs last, and goes on meanwhile if they wait for others to be
 * claimed.
 */
export class AloneRuns {
  readonly #leaseMs: number;
  readonly #host: Host;
  /** Since when such a run is due, by the store's clock; `null`: none is. */
  #aloneSince: number | null = null;
  /** The same instant on the monotonic clock. */
  #dueAt: number | null = null;
  /** From when on the worker has claimed others. */
  #othersSince: number;

  /** @param leaseMs How long a lease lasts. */
  constructor(leaseMs: number, host: Host) {
    this.#leaseMs = leaseMs;
    this.#host = host;
    this.#othersSince = host.monotonic();
  }

  /** Notes what the store has answered. */
  noteAnswer({ isAlone }: ClaimRequest, { aloneSince, now }: ClaimResult): void {
    const at = this.#host.monotonic();
    if (isAlone) this.#othersSince = at;
    if (aloneSince !== this.#aloneSince) this.#dueAt = null;
    this.#aloneSince = aloneSince;
    if (aloneSince === null) return;
    const dueAt = at - Math.max(0, now - aloneSince); // the store's clock can have been set back since
    this.#dueAt = Math.min(dueAt, this.#dueAt ?? dueAt);
  }

  /** Whether the worker is to claim nothing until it holds nothing. */
  get isDraining(): boolean {
    return this.#drainedLeases() !== null;
  }

  /** For how long it is to do so from now on, in milliseconds; `Infinity`: it is not. */
  get drainsForMs(): number {
    const leases = this.#drainedLeases();
    if (leases === null) return Infinity;
    const end = 2 ** (Math.floor(Math.log2(leases)) + 1);
    return Math.max(1, Math.ceil((end - leases) * this.#leaseMs));
  }

  /** For how many lengths of a lease the run has been due; `null`: the worker does not drain. */
  #drainedLeases(): number | null {
    const now = this.#host.monotonic();
    if (this.#dueAt === null || now - this.#othersSince < this.#leaseMs) return null;
    const leases = (now - this.#dueAt) / this.#leaseMs;
    return leases >= 1 && Math.floor(Math.log2(leases)) % 2 === 0 ? leases : null;
  }
}
