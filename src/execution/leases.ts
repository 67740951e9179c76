import type { Renewal } from "../store/claim.ts";
import { isoTime } from "../values/iso_time.ts";
import type { Execution, ExecutionDeps } from "./execution.ts";
import { type ChangePoller, RerunOnChange } from "../events/change_poller.ts";
import type { WorkerSettings } from "./worker_settings.ts";
import type { Host } from "../model/host.ts";
import type { SeenLease } from "../model/lease.ts";
import type { Store } from "../store/store.ts";

type LeaseTiming = Pick<WorkerSettings, "heartbeatInterval" | "staleThreshold">;

// A report waits this long, in milliseconds, for another write: most steps end before that. Then a renewal sends it.
const REPORT_DELAY_MS = 20;
// The minimum interval between two renewals for reports: they cause at most ten commits a second.
const REPORT_REST_MS = 100;
// The delay after a failed renewal.
const REPORT_RETRY_MS = 500;

/**
 * Renews the leases of all executions, and interrupts those that have lost their lease: after a refused renewal, or
 * soon after another process has cancelled the run. A renewal carries pending reports. It is sent early if no
 * other write carries them.
 */
export class LeaseKeeper {
  readonly #deps: ExecutionDeps;
  readonly #timing: LeaseTiming;
  readonly #owner: string;
  readonly #lostLeaseCheck: RerunOnChange;
  readonly #kept = new Map<string, Execution>();
  #clockOffset = 0;
  #cancelTimer: (() => void) | null = null;
  #cancelReportTimer: (() => void) | null = null;
  /** When the next renewal for reports may be sent, on the monotonic clock. */
  #nextReportAt = -Infinity;
  #renewing: Promise<void> | null = null;
  #sentAt = 0;

  constructor(deps: ExecutionDeps, timing: LeaseTiming, owner: string, poller: ChangePoller) {
    this.#deps = deps;
    this.#timing = timing;
    this.#owner = owner;
    this.#lostLeaseCheck = new RerunOnChange(() => this.#interruptLost(), { poller, hub: deps.hub });
  }

  /** Renews the lease of an execution until {@linkcode LeaseKeeper.drop}. */
  keep(execution: Execution): void {
    this.#kept.set(execution.claim.run.id, execution);
    this.#clockOffset = this.#readClockOffset();
    if (this.#cancelTimer === null) this.#beatIn(this.#timing.heartbeatInterval);
    this.#lostLeaseCheck.start();
  }

  /** Stops renewing the lease of a run. */
  drop(runId: string): void {
    this.#kept.delete(runId);
    if (this.#kept.size > 0) return;
    this.#cancelTimer?.();
    this.#cancelTimer = null;
    this.#cancelReportTimer?.();
    this.#cancelReportTimer = null;
    this.#lostLeaseCheck.stop();
  }

  /** Checks for lost leases after another process has written: it may have cancelled runs that are executed here. */
  async #interruptLost(): Promise<void> {
    const leases = [...this.#kept.values()].map(({ lease }) => lease);
    for (const { runId, generation } of await this.#deps.store.getLostLeases(leases)) {
      const execution = this.#kept.get(runId);
      if (execution?.claim.lease.generation === generation) execution.state.noteLostLease();
    }
  }

  /** Schedules a renewal for reports, unless a step or a pause sends them before. */
  sendReportsSoon(): void {
    if (this.#kept.size === 0 || this.#cancelReportTimer !== null) return;
    const { host } = this.#deps;
    const delayMs = Math.max(REPORT_DELAY_MS, this.#nextReportAt - host.monotonic());
    this.#cancelReportTimer = host.schedule(delayMs, () => {
      this.#cancelReportTimer = null;
      this.#sendReports();
    });
  }

  /** Sends the reports that have waited long enough; newer ones usually go with a step's write. */
  async #sendReports(): Promise<void> {
    const { host } = this.#deps;
    const now = host.now();
    const waiting = [...this.#kept.values()].flatMap((execution) => {
      const since = execution.reports.waitSince;
      return since === null ? [] : [{ execution, since }];
    });
    // The wall clock may have been set back.
    const due = waiting.filter(({ since }) => Math.abs(now - since) >= REPORT_DELAY_MS);
    if (due.length > 0) this.#nextReportAt = host.monotonic() + REPORT_REST_MS;
    if (due.length < waiting.length) this.sendReportsSoon();
    if (due.length === 0) return;
    try {
      await this.#renewSome(due.map(({ execution }) => execution));
    } catch (error) {
      this.#deps.hub.publishError(error);
      this.#nextReportAt = this.#deps.host.monotonic() + REPORT_RETRY_MS;
      this.sendReportsSoon();
    }
  }

  /**
   * Renews overdue leases: after the event loop was blocked, or the wall clock set forward, a claim would otherwise
   * revoke this worker's own leases.
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
    // A renewal that was sent just now, after the event loop was blocked, may still be pending.
    else if (this.#deps.host.monotonic() - this.#sentAt >= this.#timing.heartbeatInterval) this.#giveUpExpired();
  }

  /**
   * Renews all leases now, unless a renewal is pending, and interrupts executions whose lease is lost. Never throws.
   */
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
      lease: execution.lease,
      reports: execution.reports.send(),
    }));
    const ends = await this.#deps.store.renew(renewals, this.#timing.staleThreshold);
    executions.forEach((execution, at) => {
      const leaseExpiresAt = ends[at] ?? null;
      if (leaseExpiresAt === null) return execution.state.noteLostLease();
      execution.reports.noteStored(renewals[at]!.reports);
      this.#noteRenewal(execution, leaseExpiresAt, sentAt);
    });
  }

  #noteRenewal(execution: Execution, leaseExpiresAt: number, sentAt: number): void {
    // Counted from before the call: the lease began later on the store's clock.
    execution.leaseSureUntil = Math.max(execution.leaseSureUntil, sentAt + this.#timing.staleThreshold);
    execution.publish({
      type: "run:lease-renewed",
      leaseOwner: this.#owner,
      leaseExpiresAt: isoTime(leaseExpiresAt),
    });
  }

  /** Interrupts executions whose lease could not be renewed for its whole length: another worker may hold the run. */
  #giveUpExpired(): void {
    const now = this.#deps.host.monotonic();
    for (const execution of this.#kept.values()) {
      if (execution.leaseSureUntil <= now) execution.state.noteLostLease();
    }
  }

  /** Publishes an error if the event loop was blocked: no lease can be renewed meanwhile. */
  #reportDelay(ms: number): void {
    const { staleThreshold } = this.#timing;
    if (ms < staleThreshold / 3) return;
    this.#deps.hub.publishError(
      new Error(`The event loop was blocked for ${Math.round(ms)} ms, which endangers leases of ${staleThreshold} ms`),
    );
  }
}

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
