import { type EndedPause, type ExecutionInfo, type ExecutionOutcome, runAround } from "../model/around.ts";
import { LeaseLostError } from "../model/error.ts";
import type { ChangePoller } from "../events/change_poller.ts";
import { retryStoreCall } from "../events/retry_store_call.ts";
import { within } from "../model/host.ts";
import type { CatalogJob } from "../model/job/job_catalog.ts";
import type { CancelledExecution, Claim } from "../store/claim.ts";
import { traceOf } from "../model/origin.ts";
import { isInstance } from "../values/unknown_values.ts";
import { isoTime } from "../values/iso_time.ts";
import { type Executed, executeRun, type Outcome } from "./execute_run.ts";
import { Execution, type ExecutionDeps } from "./execution.ts";
import { LeaseKeeper } from "./leases.ts";
import { ItemSender } from "./streams/item_sender.ts";
import type { Slots } from "./slots.ts";
import type { WorkerSettings } from "./worker_settings.ts";

/** How long an interrupted job may take to return before its lease is released anyway, in milliseconds. */
export const GRACE_MS = 250;

/** What executions need of their worker. */
interface ExecutingWorker {
  id: string;
  settings: WorkerSettings;
  deps: ExecutionDeps;
  slots: Slots;
  poller: ChangePoller;
  /** Called when more runs may be claimed. */
  onFree: () => void;
  /** Called when a job has returned, and the end of its run is being saved. */
  onEnding: () => void;
}

/** The executions of a worker: begins them, keeps their leases, and ends them. */
export class Executions {
  readonly #worker: ExecutingWorker;
  readonly #keeper: LeaseKeeper;
  readonly #sender: ItemSender;
  readonly #byRun = new Map<string, Execution>();
  /** Executions that are not over, including interrupted ones that have not released their leases yet. */
  readonly #running = new Set<Promise<void>>();
  /** The execution of a run that was claimed alone, until it has recorded something: nothing is claimed beside it. */
  #alone: Execution | null = null;
  /** Fires when the worker has stopped: the leases of jobs whose code still runs are released. */
  readonly #stopped = new AbortController();
  /** Fires at the end of a stop: pending calls to the store are abandoned. */
  readonly #givenUp = new AbortController();

  constructor(worker: ExecutingWorker) {
    const { id, settings, deps, poller } = worker;
    this.#worker = worker;
    this.#keeper = new LeaseKeeper(deps, settings, id, poller);
    this.#sender = new ItemSender(deps);
  }

  /** How many there are. */
  get size(): number {
    return this.#byRun.size;
  }

  /** All of them, including those that have been interrupted. */
  get current(): Iterable<Execution> {
    return this.#byRun.values();
  }

  /** Whether nothing may be claimed beside the run that is executed. */
  get isAlone(): boolean {
    return this.#alone !== null && this.#byRun.get(this.#alone.claim.run.id) === this.#alone;
  }

  /** Whether the worker has stopped. */
  get isStopped(): boolean {
    return this.#stopped.signal.aborted;
  }

  /** Whether a run is executed. */
  has(runId: string): boolean {
    return this.#byRun.has(runId);
  }

  /** Checks at once whether a run can continue. */
  nudge(runId: string): void {
    this.#byRun.get(runId)?.nudge();
  }

  /** The runs whose jobs do something outside of their steps, such as awaiting a call of their own. */
  inOwnCode(): string[] {
    return [...this.#byRun].filter(([, execution]) => execution.isInOwnCode).map(([runId]) => runId);
  }

  /** Ends all of them as the death of the process does, at once and without a trace. */
  discard(): void {
    for (const [runId, execution] of this.#byRun) {
      execution.state.discard();
      execution.slot.end(null);
      this.#keeper.drop(runId);
      this.#sender.drop(execution);
    }
    this.#byRun.clear();
  }

  /** The execution of a run that is being cancelled; `null` if there is none here. */
  cancelled(runId: string): CancelledExecution | null {
    const execution = this.#byRun.get(runId);
    if (execution === undefined) return null;
    return {
      lease: execution.lease,
      steps: [...execution.executing.values()].map((step) => step()),
      reports: execution.reports.send(),
    };
  }

  /** Ends the execution of a run whose lease has ended. */
  supersede(runId: string, reason: Error): void {
    this.#byRun.get(runId)?.state.supersede(reason);
  }

  /** Renews the leases that should have been renewed by now. */
  renewOverdue(): Promise<void> {
    return this.#keeper.renewOverdue();
  }

  /** Lets every job reach its next checkpoint, and resolves when all executions have ended. */
  async reachCheckpoints(reason: Error): Promise<void> {
    for (const execution of this.#byRun.values()) execution.stop(reason);
    this.#worker.slots.serve(true);
    await this.ended();
  }

  /** Interrupts those that are left, and releases their leases. */
  interrupt(reason: Error): void {
    for (const execution of this.#byRun.values()) execution.state.interrupt(reason);
    this.#stopped.abort(reason);
  }

  /** Abandons the calls to the store that have not been answered. */
  giveUp(reason: Error): void {
    this.#givenUp.abort(reason);
  }

  /** Resolves when all of them are over, and have released their leases. */
  async ended(): Promise<void> {
    while (this.#running.size > 0) await Promise.all(this.#running);
    await this.#sender.idle();
  }

  /**
   * Begins the execution of a claimed run.
   *
   * @param sentAt When the claim was sent, on the monotonic clock: the lease began then at the earliest.
   * @param isAlone Whether nothing may be claimed beside it.
   */
  begin(claim: Claim, definition: CatalogJob, { sentAt, isAlone }: { sentAt: number; isAlone: boolean }): void {
    const { run, execution: number, leaseExpiresAt } = claim;
    const { around } = this.#worker.deps;
    // Its lease has ended, since it was claimed again: interrupt the old execution before the new one begins.
    const former = this.#byRun.get(run.id);
    if (former !== undefined) {
      former.slot.end(null);
      former.state.supersede(new LeaseLostError(former.claim.lease));
    }
    const execution = new Execution(claim, {
      definition,
      slot: this.#worker.slots.begin(claim.steps.length + claim.pauses.length, claim.isResumed),
      leaseSureUntil: sentAt + this.#worker.settings.staleThreshold,
      renewLease: () => this.#keeper.renew(),
      onReport: () => this.#keeper.sendReportsSoon(),
      onItems: () => this.#sender.add(execution),
      onStep: () => this.#noteStep(execution),
      onEnding: () => this.#noteEnding(execution),
      info: around.execution === null && around.step === null
        ? null
        : executionInfo(claim, this.#worker.id, this.#worker.settings.staleThreshold),
    }, this.#worker.deps);
    this.#byRun.set(run.id, execution);
    this.#keeper.keep(execution);
    if (claim.startDelayMs !== null) this.#worker.deps.recorder.noteStart(run.jobName, claim.startDelayMs);
    if (claim.isResumed) execution.publish({ type: "run:resume", by: null });
    execution.publish({ type: "run:leased", leaseOwner: this.#worker.id, leaseExpiresAt: isoTime(leaseExpiresAt) });
    execution.publish({ type: "run:start", execution: number });
    const running = this.#executeRun(execution).finally(() => this.#running.delete(running));
    this.#running.add(running);
    if (isAlone) this.#alone = execution;
  }

  /** Notes that a run has recorded a step: if it was claimed alone, others may be claimed now. */
  #noteStep(execution: Execution): void {
    if (execution !== this.#alone) return;
    this.#alone = null;
    this.#worker.onFree();
  }

  #noteEnding(execution: Execution): void {
    execution.slot.noteEnding();
    this.#worker.onEnding();
  }

  async #executeRun(execution: Execution): Promise<void> {
    const { run } = execution.claim;
    const { outcome, bodyEnded } = await this.#executeAround(execution);
    const isLost = outcome.kind === "interrupted" && execution.abortSignal.reason instanceof LeaseLostError;
    this.#worker.deps.recorder.noteExecution(run.jobName, isLost ? "lost" : outcome.kind);
    // A result that a step returns right after the signal is still recorded.
    if (outcome.kind === "interrupted") await within(this.#worker.deps.host, GRACE_MS, bodyEnded);
    if (this.#byRun.get(run.id) === execution) {
      this.#byRun.delete(run.id);
      this.#keeper.drop(run.id);
    }
    this.#sender.drop(execution);
    execution.slot.end(outcome.kind === "interrupted" ? null : outcome.kind !== "held");
    this.#worker.onFree();
    const isLate = outcome.kind === "failed" && outcome.stillExecuting === true;
    if (outcome.kind !== "interrupted" && !isLate) return;
    await this.#releaseInterrupted(execution, bodyEnded);
    this.#worker.onFree();
  }

  /** Executes a run, and calls the plugins' hooks around executions. */
  #executeAround(execution: Execution): Promise<Executed> {
    const { info, deps: { around } } = execution;
    if (around.execution === null || info === null) return executeRun(execution);
    return runAround(around.execution, info, async (end) => {
      const executed = await executeRun(execution);
      end(toExecutionOutcome(executed.outcome, execution));
      return executed;
    }, () => ({ kind: "interrupted" as const }));
  }

  /**
   * Releases the lease of an interrupted or late execution when no code of the job runs here any more, or the worker has stopped.
   * Until then, while the lease lasts, no other execution of the run begins, and a cancelled or late run keeps its
   * concurrency key.
   *
   * @param bodyEnded Resolves when no code of the job runs here any more.
   */
  async #releaseInterrupted({ reports, lease }: Execution, bodyEnded: Promise<void>): Promise<void> {
    await untilEither(bodyEnded, this.#stopped.signal);
    const release = () => this.#worker.deps.store.release(lease, reports.send());
    // After an outage of the store, the lease lasts for one length of it.
    const maxPauseMs = this.#worker.settings.staleThreshold / 3;
    await retryStoreCall(release, this.#worker.deps, this.#givenUp.signal, { maxPauseMs })
      .catch((error) => this.#worker.deps.hub.publishError(error));
  }
}

/** Waits for a promise, at most until a signal fires. */
async function untilEither(work: Promise<void>, abortSignal: AbortSignal): Promise<void> {
  if (abortSignal.aborted) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  const end = () => resolve();
  abortSignal.addEventListener("abort", end, { once: true });
  work.then(end);
  await promise;
  abortSignal.removeEventListener("abort", end);
}

/** What plugins learn of an execution, from its claim by a worker that asks for leases of `leaseMs`. */
function executionInfo(claim: Claim, workerId: string, leaseMs: number): ExecutionInfo {
  const { run: { id: runId, jobName, labels }, execution, startedAgoMs, startDelayMs, leaseExpiresAt, resumed } = claim;
  const claimedAt = leaseExpiresAt - leaseMs;
  const resumedFrom = resumed.filter(({ firstResumedAt }) => firstResumedAt === claimedAt);
  return {
    runId,
    jobName,
    labels,
    execution,
    workerId,
    startedAgoMs,
    startDelayMs,
    trace: traceOf(claim.trace),
    resumedFrom: resumedFrom.flatMap(({ kind, trace, firstResumedAt: _, ...pause }): EndedPause[] =>
      kind === "patch" ? [] : [{ ...pause, kind, trace: traceOf(trace) }]
    ),
  };
}

/** What plugins learn of how an execution ended. */
function toExecutionOutcome(outcome: Outcome, { state }: Execution): ExecutionOutcome {
  switch (outcome.kind) {
    case "failed":
      return { kind: "failed", failure: outcome.failure };
    case "interrupted":
      return { kind: isInstance(state.abortSignal.reason, LeaseLostError) ? "lost" : "interrupted" };
    default:
      return { kind: outcome.kind };
  }
}
