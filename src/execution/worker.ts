import { HoldfastError, LeaseLostError, RunCancelledError, StoreError } from "../error.ts";
import { within } from "../host.ts";
import type { CatalogJob, JobCatalog } from "../job/job_catalog.ts";
import type { CancelledExecution, Claim, ClaimResult } from "../store/claim.ts";
import { isoTime } from "../values/iso_time.ts";
import { type ExecutionInfo, type ExecutionOutcome, runAround } from "../around.ts";
import { AloneRuns } from "./alone_runs.ts";
import { ClaimRequests } from "./claim_requests.ts";
import { type Executed, executeRun } from "./execute_run.ts";
import { executionInfo, toExecutionOutcome } from "./execution_info.ts";
import { Execution, type ExecutionDeps } from "./execution.ts";
import { LeaseKeeper } from "./leases/lease_keeper.ts";
import { DeadWorkerLeases } from "./leases/dead_worker_leases.ts";
import { releaseInterrupted } from "./leases/release_interrupted.ts";
import { InterruptibleSleep } from "./interruptible_sleep.ts";
import { Slots } from "./slots.ts";
import { retryStoreCall } from "../events/retry_store_call.ts";
import type { ChangePoller } from "../events/change_poller.ts";
import type { WorkerSettings } from "./worker_settings.ts";

// How long an interrupted job may take to return before its lease is released anyway.
const GRACE_MS = 250;
// How often a worker without a free slot looks after changes: all that it can find then are timers and cancelled children.
const FULL_REST_MS = 100;

/** Claims runs, executes them, and renews their leases. */
export class Worker {
  /** Unique; never reused. */
  readonly id: string;
  readonly #deps: ExecutionDeps;
  readonly #jobs: JobCatalog;
  readonly #settings: WorkerSettings;
  readonly #requests: ClaimRequests;
  readonly #executions = new Map<string, Execution>();
  /** Executions that are not over, including interrupted ones that have not released their leases yet. */
  readonly #running = new Set<Promise<void>>();
  readonly #slots: Slots;
  /** Resolves when the next slot becomes free, possibly before the lease of its run is released. */
  #slotFreed = Promise.withResolvers<void>();
  readonly #aloneRuns: AloneRuns;
  /** The execution of a run that was claimed alone, until it has recorded something: nothing is claimed beside it. */
  #alone: Execution | null = null;
  readonly #idle: InterruptibleSleep;
  readonly #keeper: LeaseKeeper;
  readonly #unrenewed: DeadWorkerLeases;
  readonly #stopping = new AbortController();
  /** Fires when the worker has stopped: the leases of jobs whose code still runs are released. */
  readonly #stopped = new AbortController();
  /** Fires at the end of a stop: pending calls to the store are abandoned. */
  readonly #givenUp = new AbortController();
  /** Runs that were cancelled here during a claim, which may still return them. */
  readonly #cancelled = new Set<string>();
  #loop: Promise<void> | null = null;
  #claiming: Promise<unknown> = Promise.resolve();
  #hasClaimed = false;
  /** Whether the last claim has left ready runs behind. */
  #hasMore = false;
  /** Whether a wake-up is scheduled. */
  #isWaking = false;
  /** Whether it was woken during this round by more than a change in the store. */
  #isUrgent = false;
  /** How many calls of {@linkcode Worker.drain} are under way. */
  #draining = 0;
  /** When the loop began, or completed its last round, on the monotonic clock; `null`: it does not run. */
  #roundAt: number | null = null;
  /** Claims that have failed since the last one that succeeded, on the monotonic clock; `null`: none has. */
  #failures: { error: unknown; firstAt: number; lastAt: number } | null = null;

  constructor(
    jobs: JobCatalog,
    settings: WorkerSettings,
    deps: ExecutionDeps,
    poller: ChangePoller,
  ) {
    this.id = deps.host.newId();
    this.#deps = deps;
    this.#jobs = jobs;
    this.#settings = settings;
    this.#requests = new ClaimRequests(this.id, jobs, settings, deps.host);
    this.#slots = new Slots(settings, deps.host, () => this.#wakeSoon());
    this.#aloneRuns = new AloneRuns(settings.staleThreshold, deps.host);
    this.#idle = new InterruptibleSleep(deps.host);
    this.#keeper = new LeaseKeeper(deps, settings, this.id, poller);
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
    if (this.#failures === null) return null;
    const { error, firstAt, lastAt } = this.#failures;
    return { error, forMs: lastAt - firstAt };
  }

  /** How many runs it executes, and how many more it could. */
  get slots(): { busy: number; free: number } {
    return { busy: this.#slots.busy, free: Math.max(0, this.#freeSlots()) };
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
    this.#executions.get(runId)?.nudge();
  }

  /** The runs whose jobs do something outside of their steps, such as awaiting a call of their own. */
  runsInOwnCode(): string[] {
    return [...this.#executions].filter(([, execution]) => execution.isInOwnCode).map(([runId]) => runId);
  }

  /** Ends all executions as the death of the process does, at once and without a trace. */
  discard(): void {
    for (const [runId, execution] of this.#executions) {
      execution.state.discard();
      execution.slot.end(null);
      this.#keeper.drop(runId);
    }
    this.#executions.clear();
  }

  /** The execution of a run that is being cancelled; `null` if this worker does not execute it. */
  executionOf(runId: string): CancelledExecution | null {
    const execution = this.#executions.get(runId);
    if (execution === undefined) return null;
    return {
      lease: execution.lease,
      steps: [...execution.executing.values()].map((step) => step()),
      reports: execution.reports.send(),
    };
  }

  /** Ends the execution of a run that was cancelled. */
  cancel(runId: string): void {
    if (this.#requests.isUnanswered) this.#cancelled.add(runId);
    this.#executions.get(runId)?.state.supersede(new RunCancelledError(runId));
  }

  /**
   * Executes everything that is due, and resolves with the number of executed runs.
   *
   * @param maxRuns The maximum number of claims; a run that is claimed again, after a pause, counts again.
   * @param enough When it fires, nothing more is claimed; the current executions are awaited.
   */
  async drain(maxRuns = Infinity, enough?: AbortSignal): Promise<number> {
    this.#draining += 1;
    try {
      return await this.#drain(maxRuns, enough);
    } finally {
      this.#draining -= 1;
    }
  }

  async #drain(maxRuns: number, enough: AbortSignal | undefined): Promise<number> {
    const executed = new Set<string>();
    const ends = enough === undefined ? this.#stopping.signal : AbortSignal.any([this.#stopping.signal, enough]);
    let claimed = 0;
    let isLastLook = false;
    while (!ends.aborted && claimed < maxRuns) {
      if (this.#freeSlots() <= 0) {
        await this.#untilSlotMayBeFree();
        continue;
      }
      const { claims, hasMore } = await retryStoreCall(() => this.#claim(maxRuns - claimed), this.#deps, ends);
      claimed += claims.length;
      for (const { run } of claims) executed.add(run.id);
      if (claims.length > 0 || hasMore) isLastLook = false;
      else if (this.#executions.size > 0) await this.#slotFreed.promise;
      else if (isLastLook) break;
      else {
        // An interrupted run may soon release its lease and its key.
        isLastLook = true;
        await within(this.#deps.host, GRACE_MS, this.#allEnded());
      }
    }
    const isExecuting = (runId: string) => this.#executions.has(runId);
    while (!this.#stopping.signal.aborted && [...executed].some(isExecuting)) await this.#slotFreed.promise;
    return executed.size;
  }

  async #untilSlotMayBeFree(): Promise<void> {
    const { drainsForMs } = this.#aloneRuns;
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
    if (this.#executions.size > 0) this.#noteStopping();
    await within(host, timeout, this.#reachCheckpoints(reason));
    for (const execution of this.#executions.values()) execution.state.interrupt(reason);
    this.#stopped.abort(reason);
    await within(host, 2 * GRACE_MS, this.#allEnded().then(() => this.#forget()));
    this.#givenUp.abort(reason);
  }

  async #reachCheckpoints(reason: Error): Promise<void> {
    await this.#loop;
    await this.#claiming.catch(() => {});
    for (const execution of this.#executions.values()) execution.stop(reason);
    this.#slots.serve(true);
    await this.#allEnded();
  }

  async #noteStopping(): Promise<void> {
    await this.#deps.store.noteStopping(this.id).catch((error) => this.#deps.hub.publishError(error));
  }

  async #forget(): Promise<void> {
    if (!this.#hasClaimed) return;
    await this.#deps.store.forgetWorker(this.id).catch((error) => this.#deps.hub.publishError(error));
  }

  async #allEnded(): Promise<void> {
    while (this.#running.size > 0) await Promise.all(this.#running);
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
        const { nextTimerAt, hasMore, now, cancelled } = await this.#claim();
        if (!this.#deps.surroundings.polls) idleMs = Infinity;
        await this.#unrenewed.look();
        if (cancelled.length > 0) this.wake(); // there may be more of them
        idleMs = Math.min(idleMs, this.#aloneRuns.drainsForMs);
        if (this.#freeSlots() > 0) {
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
    while (this.#freeSlots() <= 0 && !this.#isUrgent && !this.#stopping.signal.aborted) {
      const restMs = until - this.#deps.host.monotonic();
      if (restMs <= 0) return;
      await this.#idle.sleep(restMs);
    }
  }

  /** How many more runs may be claimed: none while it executes one alone, or is to hold nothing before it claims one. */
  #freeSlots(): number {
    const isAlone = this.#alone !== null && this.#executions.get(this.#alone.claim.run.id) === this.#alone;
    return isAlone || (this.#executions.size > 0 && this.#aloneRuns.isDraining) ? 0 : this.#slots.free;
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

  /**
   * Notes that the job of an execution has returned. If more runs are ready, they are claimed while the end is being
   * saved: a store that commits groups of writes commits both together.
   */
  #noteEnding(execution: Execution): void {
    if (this.#executions.get(execution.claim.run.id) !== execution) return; // the run was claimed again meanwhile
    execution.slot.noteEnding();
    if (this.#hasMore) this.#wakeSoon();
  }

  /** Claims as many runs as there are free slots. One claim at a time: two would fill the same slots. */
  #claim(most = Infinity): Promise<ClaimResult> {
    const claiming = this.#claiming.catch(() => {}).then(() => this.#claimNow(most));
    claiming.then(() => void (this.#failures = null), (error) => this.#noteFailure(error));
    this.#claiming = claiming;
    return claiming;
  }

  #noteFailure(error: unknown): void {
    const now = this.#deps.host.monotonic();
    this.#failures = { error, firstAt: this.#failures?.firstAt ?? now, lastAt: now };
  }

  async #claimNow(most: number): Promise<ClaimResult> {
    await this.#keeper.renewOverdue();
    const first = this.#executions.size === 0 && this.#aloneRuns.isDraining ? await this.#claimAlone() : null;
    if (first !== null && (first.claims.length > 0 || first.hasMore)) return first;
    this.#slots.serve();
    const early = this.#slots.areTrialsOverdue ? await this.#tryHeld(1) : null;
    const left = most - (early?.claims.length ?? 0);
    const result = await this.#sendClaim(Math.min(left, Math.max(0, this.#freeSlots())));
    if (!result.hasHeld) this.#slots.noteTrials(0, 0);
    const mayBeAlone = first === null && result.aloneSince !== null && !result.hasMore;
    const alone = mayBeAlone ? await this.#claimAlone() : null;
    // Held runs come after all others.
    const mayTry = result.hasHeld && !result.hasMore && early === null;
    const tried = mayTry ? await this.#tryHeld(left - result.claims.length) : early;
    const all = [first, result, alone, tried].filter((one) => one !== null);
    return {
      ...result,
      claims: all.flatMap(({ claims }) => claims),
      failed: all.flatMap(({ failed }) => failed),
      cancelled: all.flatMap(({ cancelled }) => cancelled),
      nextTimerAt: all.map((one) => one.nextTimerAt).reduce(earliest),
    };
  }

  /** Claims a run that is claimed alone; `null`: it holds others. */
  async #claimAlone(): Promise<ClaimResult | null> {
    if (this.#executions.size > 0 || this.#stopping.signal.aborted) return null;
    return await this.#sendClaim(1, { isAlone: true });
  }

  /** Claims held runs, to try whether the code fits them now; `null`: none may be tried. */
  async #tryHeld(most: number): Promise<ClaimResult | null> {
    const limit = Math.min(most, this.#freeSlots(), this.#slots.countTrials(this.#draining > 0));
    if (limit <= 0 || this.#stopping.signal.aborted) return null;
    const tried = await this.#sendClaim(limit, { triesHeld: true });
    this.#slots.noteTrials(tried.claims.length, limit);
    return tried;
  }

  async #sendClaim(limit: number, { triesHeld = false, isAlone = false } = {}): Promise<ClaimResult> {
    const { store, hub } = this.#deps;
    const executions = this.#executions.values();
    const { request, sentAt } = this.#requests.next({ executions, limit, triesHeld, isAlone });
    this.#hasClaimed = true;
    const result = await store.claim(request);
    this.#requests.noteAnswer();
    this.#aloneRuns.noteAnswer(request, result);
    if (request.limit > 0 && !request.triesHeld && !request.isAlone) this.#hasMore = result.hasMore;
    for (const { run, error, failureKind } of result.failed) {
      hub.publish(run, { type: "run:fail", error, failedStepName: null, failureKind });
    }
    for (const run of result.cancelled) {
      this.#executions.get(run.id)?.state.supersede(new RunCancelledError(run.id));
      hub.publish(run, { type: "run:cancel" });
    }
    for (const claim of result.claims) {
      const job = this.#jobs.executing(claim.run.jobName, claim.version);
      if (this.#stopped.signal.aborted || this.#cancelled.has(claim.run.id)) this.#releaseUnstarted(claim);
      else if (job === undefined) hub.publishError(unknownJobError(claim));
      else {
        this.#countTimeouts(claim, result.now);
        const execution = this.#begin(claim, job, sentAt);
        if (request.isAlone) this.#alone = execution;
      }
    }
    this.#cancelled.clear();
    return result;
  }

  /**
   * Releases a claimed run without executing it: it was cancelled, or the worker stopped, before the claim was
   * answered.
   */
  #releaseUnstarted({ lease }: Claim): void {
    const { store, hub } = this.#deps;
    store.release(lease, []).catch((error) => hub.publishError(error));
  }

  /** Counts the waits that timed out and because of which the run resumes now. */
  #countTimeouts({ run, pauses }: Claim, now: number): void {
    for (const { firstResumedAt } of pauses) {
      if (firstResumedAt === now) this.#deps.recorder.noteWait(run.jobName, "timeout");
    }
  }

  #begin(claim: Claim, definition: CatalogJob, sentAt: number): Execution {
    const { run, execution: number, leaseExpiresAt } = claim;
    const { around } = this.#deps;
    // Its lease has ended, since it was claimed again: interrupt the old execution before the new one begins.
    const former = this.#executions.get(run.id);
    if (former !== undefined) {
      former.slot.end(null);
      former.state.supersede(new LeaseLostError(former.claim.lease));
    }
    const execution = new Execution(claim, {
      definition,
      slot: this.#slots.begin(claim.steps.length + claim.pauses.length, claim.isResumed),
      leaseSureUntil: sentAt + this.#settings.staleThreshold,
      renewLease: () => this.#keeper.renew(),
      onReport: () => this.#keeper.sendReportsSoon(),
      onStep: () => this.#noteStep(execution),
      onEnding: () => this.#noteEnding(execution),
      info: around.execution === null && around.step === null
        ? null
        : executionInfo(claim, this.id, this.#settings.staleThreshold),
    }, this.#deps);
    this.#executions.set(run.id, execution);
    this.#keeper.keep(execution);
    if (claim.startDelayMs !== null) this.#deps.recorder.noteStart(run.jobName, claim.startDelayMs);
    if (claim.isResumed) execution.publish({ type: "run:resume" });
    execution.publish({ type: "run:leased", leaseOwner: this.id, leaseExpiresAt: isoTime(leaseExpiresAt) });
    execution.publish({ type: "run:start", execution: number });
    const running = this.#executeRun(execution).finally(() => this.#running.delete(running));
    this.#running.add(running);
    return execution;
  }

  /** Notes that a run has recorded a step: if it was claimed alone, others may be claimed now. */
  #noteStep(execution: Execution): void {
    if (execution !== this.#alone) return;
    this.#alone = null;
    this.#wakeSoon();
  }

  async #executeRun(execution: Execution): Promise<void> {
    const { run } = execution.claim;
    const { outcome, bodyEnded } = await this.#executeAround(execution);
    const isLost = outcome.kind === "interrupted" && execution.abortSignal.reason instanceof LeaseLostError;
    this.#deps.recorder.noteExecution(run.jobName, isLost ? "lost" : outcome.kind);
    // A result that a step returns right after the signal is still recorded.
    if (outcome.kind === "interrupted") await within(this.#deps.host, GRACE_MS, bodyEnded);
    if (this.#executions.get(run.id) === execution) {
      this.#executions.delete(run.id);
      this.#keeper.drop(run.id);
    }
    execution.slot.end(outcome.kind === "interrupted" ? null : outcome.kind !== "held");
    this.#wakeSoon();
    if (outcome.kind !== "interrupted") return;
    await releaseInterrupted(execution, bodyEnded, {
      stopped: this.#stopped.signal,
      givenUp: this.#givenUp.signal,
      // After an outage of the store, the lease lasts for one length of it.
      maxPauseMs: this.#settings.staleThreshold / 3,
    });
    this.#wakeSoon();
  }

  /** Executes a run, and calls the plugins' hooks around executions. */
  #executeAround(execution: Execution): Promise<Executed> {
    const { info, deps: { around } } = execution;
    if (around.execution === null || info === null) return executeRun(execution);
    return runAround<ExecutionInfo, ExecutionOutcome, Executed>(around.execution, info, async (end) => {
      const executed = await executeRun(execution);
      end(toExecutionOutcome(executed.outcome, execution));
      return executed;
    }, () => ({ kind: "interrupted" }));
  }
}

function earliest(one: number | null, other: number | null): number | null {
  return one === null || other === null ? one ?? other : Math.min(one, other);
}

/** The error of a store that has claimed a run which the worker cannot execute. The lease of that run expires. */
function unknownJobError({ run: { id, jobName }, version }: Claim): StoreError {
  const message =
    `The store has claimed run "${id}" of job "${jobName}" version ${version} for a worker that does not know this job`;
  return new StoreError(message, { code: "internal" });
}
