import type { Renewal } from "../store.ts";
import { isoTime } from "../time.ts";
import type { Execution, ExecutionDeps } from "./execution.ts";
import { RerunOnChange } from "../events/rerun_on_change.ts";
import type { ChangePoller } from "../events/change_poller.ts";

/** How long leases last and how often they are renewed, in milliseconds. */
export interface LeaseTiming {
  /** How often. */
  heartbeatInterval: number;
  /** How long. */
  staleThreshold: number;
}

// What was reported waits so long, in milliseconds, for a write that takes it along: most steps end before that. Then a
// renewal takes it, and after it the next one not before a longer time: ten commits a second at most.
const REPORT_DELAY_MS = 20;
const REPORT_REST_MS = 100;
// How long it waits after a renewal that failed.
const REPORT_RETRY_MS = 500;

/**
 * Renews the leases of everything that is executed, and interrupts what has lost its lease: when a renewal says so, or
 * soon after another process has cancelled the run. A renewal takes along what was reported, so one comes early when no
 * other write does that.
 */
export class LeaseKeeper {
  readonly #deps: ExecutionDeps;
  readonly #timing: LeaseTiming;
  readonly #owner: string;
  readonly #lookout: RerunOnChange;
  readonly #kept = new Map<string, Execution>();
  #clockOffset = 0;
  #cancelTimer: (() => void) | null = null;
  #cancelReportTimer: (() => void) | null = null;
  /** When reports may be sent again by a renewal of their own, on the monotonic clock. */
  #nextReportAt = -Infinity;
  #renewing: Promise<void> | null = null;
  #sentAt = 0;

  /** Keeps nothing yet. */
  constructor(deps: ExecutionDeps, timing: LeaseTiming, owner: string, pulse: ChangePoller) {
    this.#deps = deps;
    this.#timing = timing;
    this.#owner = owner;
    this.#lookout = new RerunOnChange(() => this.#lookForLost(), { pulse, hub: deps.hub });
  }

  /** Keeps the lease of an execution until {@linkcode LeaseKeeper.drop}. */
  keep(execution: Execution): void {
    this.#kept.set(execution.claim.run.id, execution);
    this.#clockOffset = this.#readClockOffset();
    if (this.#cancelTimer === null) this.#beatIn(this.#timing.heartbeatInterval);
    this.#lookout.start();
  }

  /** Keeps the lease of a run no longer. */
  drop(runId: string): void {
    this.#kept.delete(runId);
    if (this.#kept.size > 0) return;
    this.#cancelTimer?.();
    this.#cancelTimer = null;
    this.#cancelReportTimer?.();
    this.#cancelReportTimer = null;
    this.#lookout.stop();
  }

  /** Another process has written something: it may have cancelled runs that are executed here. */
  async #lookForLost(): Promise<void> {
    const leases = [...this.#kept.values()].map(({ claim }) => claim.lease);
    for (const { runId, generation } of await this.#deps.store.getLostLeases(leases)) {
      const execution = this.#kept.get(runId);
      if (execution?.claim.lease.generation === generation) execution.noteLostLease();
    }
  }

  /** Sends what was reported, soon: unless a step or a pause does so before. */
  sendReportsSoon(): void {
    if (this.#kept.size === 0 || this.#cancelReportTimer !== null) return;
    const { host } = this.#deps;
    const delayMs = Math.max(REPORT_DELAY_MS, this.#nextReportAt - host.monotonic());
    this.#cancelReportTimer = host.schedule(delayMs, () => {
      this.#cancelReportTimer = null;
      this.#sendReports();
    });
  }

  /** Sends what has waited long enough. What was reported since, most steps take along. */
  async #sendReports(): Promise<void> {
    const { host } = this.#deps;
    const now = host.now();
    const waiting = [...this.#kept.values()].filter(({ reportsWaitSince }) => reportsWaitSince !== null);
    // The wall clock may have been set back.
    const due = waiting.filter(({ reportsWaitSince }) => Math.abs(now - reportsWaitSince!) >= REPORT_DELAY_MS);
    if (due.length > 0) this.#nextReportAt = host.monotonic() + REPORT_REST_MS;
    if (due.length < waiting.length) this.sendReportsSoon();
    if (due.length === 0) return;
    try {
      await this.#renewSome(due);
    } catch (error) {
      this.#deps.hub.publishError(error);
      this.#nextReportAt = this.#deps.host.monotonic() + REPORT_RETRY_MS;
      this.sendReportsSoon();
    }
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
    const { host, hub } = this.#deps;
    this.#sentAt = host.monotonic();
    const clockOffset = this.#readClockOffset();
    try {
      await this.#renewSome([...this.#kept.values()]);
      this.#clockOffset = clockOffset;
    } catch (error) {
      hub.publishError(error);
      this.#giveUpExpired();
      if (this.#kept.size > 0) this.#beatIn(this.#timing.heartbeatInterval * (0.1 + host.random() / 10));
    }
  }

  async #renewSome(executions: readonly Execution[]): Promise<void> {
    const sentAt = this.#deps.host.monotonic();
    const renewals = executions.map((execution): Renewal => ({
      lease: execution.claim.lease,
      reports: execution.sendReports(),
    }));
    const ends = await this.#deps.store.renew(renewals, this.#timing.staleThreshold);
    executions.forEach((execution, at) => {
      const leaseExpiresAt = ends[at] ?? null;
      if (leaseExpiresAt === null) return execution.noteLostLease();
      execution.noteKeptReports(renewals[at]!.reports);
      this.#noteRenewal(execution, leaseExpiresAt, sentAt);
    });
  }

  #noteRenewal(execution: Execution, leaseExpiresAt: number, sentAt: number): void {
    // Counted from before the call was sent: the store's own time began later.
    execution.leaseSureUntil = Math.max(execution.leaseSureUntil, sentAt + this.#timing.staleThreshold);
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
