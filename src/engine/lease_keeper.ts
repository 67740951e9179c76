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

/** Renews the leases of everything that is executed, and interrupts what has lost its lease. */
export class LeaseKeeper {
  readonly #deps: ExecutionDeps;
  readonly #timing: LeaseTiming;
  readonly #owner: string;
  readonly #kept = new Map<string, Execution>();
  #clockOffset = 0;
  #cancelTimer: (() => void) | null = null;
  #renewing: Promise<void> | null = null;
  #sentAt = 0;

  /** Keeps nothing yet. */
  constructor(deps: ExecutionDeps, timing: LeaseTiming, owner: string) {
    this.#deps = deps;
    this.#timing = timing;
    this.#owner = owner;
  }

  /** Keeps the lease of an execution until {@linkcode LeaseKeeper.drop}. */
  keep(execution: Execution): void {
    this.#kept.set(execution.claim.run.id, execution);
    this.#clockOffset = this.#readClockOffset();
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
   * Renews leases that should have been renewed before: after the event loop was blocked, or the wall clock set
   * forward, a claim would else take away the leases of this very worker.
   */
  async renewOverdue(): Promise<void> {
    const { host } = this.#deps;
    const margin = this.#timing.staleThreshold / 2;
    const isOverdue = [...this.#kept.values()].some(({ leaseSureUntil }) => leaseSureUntil - host.monotonic() < margin);
    const hasJumped = this.#readClockOffset() - this.#clockOffset > margin;
    if (this.#kept.size > 0 && (isOverdue || hasJumped)) await this.renew();
  }

  #readClockOffset(): number {
    return this.#deps.host.now() - this.#deps.host.monotonic();
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

  #beat(): void {
    if (this.#kept.size === 0) return;
    this.#beatIn(this.#timing.heartbeatInterval);
    if (this.#renewing === null) this.renew();
    // A renewal that was sent a moment ago, after the event loop was blocked, is still to be answered.
    else if (this.#deps.host.monotonic() - this.#sentAt >= this.#timing.heartbeatInterval) this.#giveUpExpired();
  }

  /** Renews all leases now, unless that is under way; those that are lost end their executions. Never throws. */
  renew(): Promise<void> {
    this.#renewing ??= this.#renewAll().finally(() => this.#renewing = null);
    return this.#renewing;
  }

  async #renewAll(): Promise<void> {
    const { host, hub, store } = this.#deps;
    const kept = [...this.#kept.values()];
    const sentAt = host.monotonic();
    this.#sentAt = sentAt;
    const clockOffset = this.#readClockOffset();
    try {
      const renewals = kept.map((execution): Renewal => ({
        lease: execution.claim.lease,
        progress: execution.progress,
      }));
      const ends = await store.renew(renewals, this.#timing.staleThreshold);
      this.#clockOffset = clockOffset;
      kept.forEach((execution, position) => this.#note(execution, ends[position] ?? null, sentAt));
    } catch (error) {
      hub.publishError(error);
      this.#giveUpExpired();
      if (this.#kept.size > 0) this.#beatIn(this.#timing.heartbeatInterval * (0.1 + host.random() / 10));
    }
  }

  #note(execution: Execution, leaseExpiresAt: number | null, sentAt: number): void {
    if (leaseExpiresAt === null) return execution.noteLostLease();
    // Counted from before the call was sent: the store's own time began later.
    execution.leaseSureUntil = sentAt + this.#timing.staleThreshold;
    execution.publish({
      type: "run:lease-renewed",
      leaseOwner: this.#owner,
      leaseExpiresAt: isoTime(leaseExpiresAt),
    });
  }

  /** A lease that could not be renewed for its whole length may be another worker's by now. */
  #giveUpExpired(): void {
    const now = this.#deps.host.monotonic();
    for (const execution of this.#kept.values()) {
      if (execution.leaseSureUntil <= now) execution.noteLostLease();
    }
  }

  /** While the event loop is blocked no lease can be renewed: whoever blocks it should hear of it. */
  #reportDelay(ms: number): void {
    const { staleThreshold } = this.#timing;
    if (ms < staleThreshold / 3) return;
    this.#deps.hub.publishError(
      new Error(`The event loop was blocked for ${Math.round(ms)} ms, which endangers leases of ${staleThreshold} ms`),
    );
  }
}
