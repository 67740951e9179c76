import { HoldfastError, RunCancelledError } from "../model/error.ts";
import { InterruptibleSleep, within } from "../model/host.ts";
import type { JobCatalog } from "../model/job/job_catalog.ts";
import type { CancelledExecution } from "../store/claim.ts";
import { Claiming } from "./claiming.ts";
import type { ExecutionDeps } from "./execution.ts";
import { Executions, GRACE_MS } from "./executions.ts";
import { DeadWorkerLeases } from "./leases.ts";
import { Slots } from "./slots.ts";
import { retryStoreCall } from "../events/retry_store_call.ts";
import type { ChangePoller } from "../events/change_poller.ts";
import type { WorkerSettings } from "./worker_settings.ts";

// How often a worker without a free slot looks after changes: all that it can find then are timers and cancelled children.
const FULL_REST_MS = 100;

/** What {@linkcode Worker.drain} has done. */
interface Drained {
  /** How many runs it has executed. */
  executed: number;
  /** When the next timer expires, by the store's clock; `null`: there is none; `now`: it ended before it had looked. */
  nextTimerAt: number | null | "now";
}

/** Decides when runs are claimed: at intervals, after changes, when a slot becomes free. Starts and stops all of it. */
export class Worker {
  /** Unique; never reused. */
  readonly id: string;
  readonly #deps: ExecutionDeps;
  readonly #settings: WorkerSettings;
  readonly #slots: Slots;
  readonly #executions: Executions;
  readonly #claiming: Claiming;
  /** Resolves when the next slot becomes free, possibly before the lease of its run is released. */
  #slotFreed = Promise.withResolvers<void>();
  readonly #idle: InterruptibleSleep;
  readonly #unrenewed: DeadWorkerLeases;
  readonly #stopping = new AbortController();
  #loop: Promise<void> | null = null;
  /** Whether a wake-up is scheduled. */
  #isWaking = false;
  /** Whether it was woken during this round by more than a change in the store. */
  #isUrgent = false;
  /** How many calls of {@linkcode Worker.drain} are under way. */
  #draining = 0;
  /** When the loop began, or completed its last round, on the monotonic clock; `null`: it does not run. */
  #roundAt: number | null = null;

  constructor(jobs: JobCatalog, settings: WorkerSettings, deps: ExecutionDeps, poller: ChangePoller) {
    this.id = deps.host.newId();
    this.#deps = deps;
    this.#settings = settings;
    const onFree = () => this.#wakeSoon();
    // If more runs are ready, they are claimed while the end of a run is being saved: a store that commits groups of
    // writes commits both together.
    const onEnding = () => {
      if (this.#claiming.hasMore) this.#wakeSoon();
    };
    const slots = new Slots(settings, deps.host, onFree);
    const worker = { id: this.id, settings, deps, slots };
    const executions = new Executions({ ...worker, poller, onFree, onEnding });
    this.#slots = slots;
    this.#executions = executions;
    const stopping = this.#stopping.signal;
    this.#claiming = new Claiming({ ...worker, jobs, executions, stopping, isUnpaced: () => this.#draining > 0 });
    this.#idle = new InterruptibleSleep(deps.host);
    this.#unrenewed = new DeadWorkerLeases(deps.store, settings.staleThreshold, deps.host);
  }

  /** Polls for work until {@linkcode Worker.stop}. */
  start(): void {
    this.#loop ??= this.#work();
  }

  /** How long ago the loop completed a round, and after how long it is stuck; `null` if it does not run. */
  get condition(): { roundAgoMs: number; limitMs: number } | null {
    if (this.#roundAt === null) return null;
    const { pollingInterval, staleThreshold } = this.#settings;
    return {
      roundAgoMs: this.#deps.host.monotonic() - this.#roundAt,
      limitMs: 3 * (pollingInterval + staleThreshold / 3),
    };
  }

  /** Why claims fail, and for how long they have; `null`: the last one has succeeded. */
  get failedClaims(): { error: unknown; forMs: number } | null {
    return this.#claiming.failed;
  }

  /** How many runs it executes, and how many more it could. */
  get slots(): { busy: number; free: number } {
    return { busy: this.#slots.busy, free: Math.max(0, this.#claiming.freeSlots) };
  }

  /** Polls for work at once. */
  wake(): void {
    this.#isUrgent = true;
    this.#wakeSoon();
  }

  /** Polls for work because something in the store has changed: at once, or soon if it has no free slot. */
  noteChange(): void {
    this.#wakeSoon();
  }

  /** Checks at once whether a run that it executes can continue. */
  nudge(runId: string): void {
    this.#executions.nudge(runId);
  }

  /** The runs whose jobs do something outside of their steps, such as awaiting a call of their own. */
  runsInOwnCode(): string[] {
    return this.#executions.inOwnCode();
  }

  /** Ends all executions as the death of the process does, at once and without a trace. */
  discard(): void {
    this.#executions.discard();
  }

  /** The execution of a run that is being cancelled; `null` if this worker does not execute it. */
  executionOf(runId: string): CancelledExecution | null {
    return this.#executions.cancelled(runId);
  }

  /** Ends the execution of a run that was cancelled. */
  cancel(runId: string): void {
    this.#claiming.noteCancel(runId);
    this.#executions.supersede(runId, new RunCancelledError(runId));
  }

  /**
   * Executes everything that is due.
   *
   * @param maxRuns The maximum number of claims; a run that is claimed again, after a pause, counts again.
   * @param enough When it fires, nothing more is claimed; the current executions are awaited.
   */
  async drain(maxRuns = Infinity, enough?: AbortSignal): Promise<Drained> {
    this.#draining += 1;
    try {
      return await this.#drain(maxRuns, enough);
    } finally {
      this.#draining -= 1;
    }
  }

  async #drain(maxRuns: number, enough: AbortSignal | undefined): Promise<Drained> {
    const executed = new Set<string>();
    const ends = enough === undefined ? this.#stopping.signal : AbortSignal.any([this.#stopping.signal, enough]);
    let claimed = 0;
    let isLastLook = false;
    let nextTimerAt: number | null | "now" = "now"; // unless a claim finds that there is nothing left
    while (!ends.aborted && claimed < maxRuns) {
      if (this.#claiming.freeSlots <= 0) {
        await this.#untilSlotMayBeFree();
        continue;
      }
      const { claims, hasMore, cancelled, ...claim } = await retryStoreCall(
        () => this.#claiming.claim(maxRuns - claimed),
        this.#deps,
        ends,
      );
      claimed += claims.length;
      for (const { run } of claims) executed.add(run.id);
      // Of cancelled children, and of what they held up, there may be more.
      if (claims.length > 0 || hasMore || cancelled.length > 0) isLastLook = false;
      else if (this.#executions.size > 0) await this.#slotFreed.promise;
      else if (isLastLook) {
        nextTimerAt = claim.nextTimerAt;
        break;
      } else {
        // An interrupted run may soon release its lease and its key.
        isLastLook = true;
        await within(this.#deps.host, GRACE_MS, this.#executions.ended());
      }
    }
    const isExecuting = (runId: string) => this.#executions.has(runId);
    while (!this.#stopping.signal.aborted && [...executed].some(isExecuting)) await this.#slotFreed.promise;
    return { executed: executed.size, nextTimerAt };
  }

  async #untilSlotMayBeFree(): Promise<void> {
    const { drainsForMs } = this.#claiming;
    if (drainsForMs === Infinity) return await this.#slotFreed.promise;
    await within(this.#deps.host, drainsForMs, this.#slotFreed.promise);
  }

  /**
   * Claims nothing more, lets every job reach its next checkpoint (a step, a pause or its end), then interrupts the
   * rest, and releases all leases. Safe to call twice.
   *
   * @param timeout How long jobs may continue, in milliseconds.
   */
  async stop(timeout: number): Promise<void> {
    const reason = new HoldfastError("unavailable", "The engine is stopping");
    this.#stopping.abort(reason);
    this.#idle.wake();
    const { host } = this.#deps;
    if (this.#executions.size > 0) this.#claiming.sayStopping();
    await within(host, timeout, this.#reachCheckpoints(reason));
    this.#executions.interrupt(reason);
    await within(host, 2 * GRACE_MS, this.#executions.ended().then(() => this.#claiming.forget()));
    this.#executions.giveUp(reason);
  }

  async #reachCheckpoints(reason: Error): Promise<void> {
    await this.#loop;
    await this.#claiming.ended();
    await this.#executions.reachCheckpoints(reason);
  }

  async #work(): Promise<void> {
    const { host, hub } = this.#deps;
    this.#roundAt = host.monotonic();
    while (!this.#stopping.signal.aborted) {
      // A worker counts as alive for the length of its leases after each claim.
      const { pollingInterval, staleThreshold } = this.#settings;
      let idleMs = Math.min(pollingInterval * (0.9 + host.random() / 5), staleThreshold / 3);
      this.#isUrgent = false;
      try {
        const { nextTimerAt, hasMore, now, cancelled } = await this.#claiming.claim();
        if (!this.#deps.surroundings.polls) idleMs = Infinity;
        await this.#unrenewed.look();
        if (cancelled.length > 0) this.wake(); // there may be more of them
        idleMs = Math.min(idleMs, this.#claiming.drainsForMs);
        if (this.#claiming.freeSlots > 0) {
          if (hasMore) this.#wakeSoon();
          if (nextTimerAt !== null) idleMs = Math.min(idleMs, Math.max(1, nextTimerAt - now));
        }
      } catch (error) {
        hub.publishError(error);
      }
      this.#roundAt = host.monotonic();
      await this.#idle.sleep(idleMs);
      await this.#restWhileFull(this.#roundAt + Math.min(idleMs, FULL_REST_MS));
    }
    this.#roundAt = null;
  }

  /** Waits for an instant, on the monotonic clock, unless a slot becomes free or there is more to do than to look. */
  async #restWhileFull(until: number): Promise<void> {
    while (this.#claiming.freeSlots <= 0 && !this.#isUrgent && !this.#stopping.signal.aborted) {
      const restMs = until - this.#deps.host.monotonic();
      if (restMs <= 0) return;
      await this.#idle.sleep(restMs);
    }
  }

  /** Wakes the loop in the next macrotask, so that runs that become due together are claimed together. */
  #wakeSoon(): void {
    if (this.#isWaking) return;
    this.#isWaking = true;
    this.#deps.host.defer(() => {
      this.#isWaking = false;
      this.#slotFreed.resolve();
      this.#slotFreed = Promise.withResolvers();
      this.#idle.wake();
    });
  }
}
