import { LeaseLostError } from "../error.ts";
import type { Renewal } from "../store.ts";
import { isoTime } from "../time.ts";
import type { Execution, ExecutionDeps } from "./execution.ts";

/** How long leases last and how often they are renewed, in milliseconds. */
export interface LeaseTiming {
  /** How often. */
  heartbeatInterval: number;
  /** How long. */
  staleThreshold: number;
}

interface Kept {
  execution: Execution;
  /** When the lease was last known to be ours, on the monotonic clock: before the call was sent. */
  confirmedAt: number;
}

/** Renews the leases of everything that is executed, and interrupts what has lost its lease. */
export class LeaseKeeper {
  readonly #deps: ExecutionDeps;
  readonly #timing: LeaseTiming;
  readonly #owner: string;
  readonly #kept = new Map<string, Kept>();
  #cancelTimer: (() => void) | null = null;
  #isRenewing = false;

  /** Keeps nothing yet. */
  constructor(deps: ExecutionDeps, timing: LeaseTiming, owner: string) {
    this.#deps = deps;
    this.#timing = timing;
    this.#owner = owner;
  }

  /** Keeps the lease of an execution until {@linkcode LeaseKeeper.drop}. */
  keep(execution: Execution, claimedAt: number): void {
    this.#kept.set(execution.claim.run.id, { execution, confirmedAt: claimedAt });
    if (this.#cancelTimer === null) this.#beatIn(this.#timing.heartbeatInterval);
  }

  /** Keeps the lease of a run no longer. */
  drop(runId: string): void {
    this.#kept.delete(runId);
    if (this.#kept.size > 0) return;
    this.#cancelTimer?.();
    this.#cancelTimer = null;
  }

  /**
   * Renews leases that should have been renewed before: after the event loop was blocked, a claim would else take
   * away the leases of this very worker.
   */
  async renewOverdue(): Promise<void> {
    const limit = this.#deps.host.monotonic() - this.#timing.staleThreshold / 2;
    for (const { confirmedAt } of this.#kept.values()) if (confirmedAt < limit) return await this.#beat();
  }

  #beatIn(ms: number): void {
    this.#cancelTimer?.();
    const due = this.#deps.host.monotonic() + ms;
    this.#cancelTimer = this.#deps.host.schedule(ms, () => {
      this.#cancelTimer = null;
      this.#reportDelay(this.#deps.host.monotonic() - due);
      this.#beat();
    });
  }

  async #beat(): Promise<void> {
    if (this.#kept.size === 0) return;
    if (this.#isRenewing) {
      // The last renewal has not been answered yet.
      this.#giveUpExpired();
      return this.#beatIn(this.#timing.heartbeatInterval);
    }
    this.#isRenewing = true;
    this.#beatIn(this.#timing.heartbeatInterval);
    const kept = [...this.#kept.values()];
    const sentAt = this.#deps.host.monotonic();
    try {
      const renewals = kept.map(({ execution }): Renewal => ({
        lease: execution.claim.lease,
        progress: execution.progress,
      }));
      const ends = await this.#deps.store.renew(renewals, this.#timing.staleThreshold);
      kept.forEach((one, position) => this.#note(one, ends[position] ?? null, sentAt));
    } catch (error) {
      this.#deps.hub.publishError(error);
      this.#giveUpExpired();
      if (this.#kept.size > 0) this.#beatIn(this.#timing.heartbeatInterval * (0.1 + this.#deps.host.random() / 10));
    } finally {
      this.#isRenewing = false;
    }
  }

  #note(kept: Kept, leaseExpiresAt: number | null, sentAt: number): void {
    const { execution } = kept;
    if (leaseExpiresAt === null) return execution.interrupt(new LeaseLostError(execution.claim.lease));
    kept.confirmedAt = sentAt;
    execution.publish({
      type: "run:lease-renewed",
      leaseOwner: this.#owner,
      leaseExpiresAt: isoTime(leaseExpiresAt),
    });
  }

  /** A lease that could not be renewed for its whole length may be another worker's by now. */
  #giveUpExpired(): void {
    const limit = this.#deps.host.monotonic() - this.#timing.staleThreshold;
    for (const { execution, confirmedAt } of this.#kept.values()) {
      if (confirmedAt < limit) execution.interrupt(new LeaseLostError(execution.claim.lease));
    }
  }

  /** While the event loop is blocked no lease can be renewed: whoever blocks it should hear of it. */
  #reportDelay(ms: number): void {
    if (ms < this.#timing.staleThreshold / 3) return;
    this.#deps.hub.publishError(
      new Error(
        `The event loop was blocked for ${
          Math.round(ms)
        } ms, which endangers leases of ${this.#timing.staleThreshold} ms`,
      ),
    );
  }
}
