import type { AsyncLocalStorage } from "node:async_hooks";
import { describeFailure } from "../describe_failure.ts";
import { LeaseLostError, StepError } from "../error.ts";
import { isInstance } from "../is_instance.ts";
import type { RunHappening } from "../event.ts";
import type { Failure } from "../failure.ts";
import type { Host } from "../host.ts";
import { encode, type JsonText } from "../json.ts";
import type { Report } from "../report.ts";
import type { RetryPolicy } from "../retry.ts";
import type { ExecutingStep } from "../step.ts";
import type { Claim, Store } from "../store.ts";
import type { Hub } from "../events/hub.ts";
import { PendingReports, type Said } from "./pending_reports.ts";
import { ReplayOrder } from "./replay_order.ts";

/** The dependencies that all executions share. */
export interface ExecutionDeps {
  /** Stores the records. */
  store: Store;
  /** Publishes events. */
  hub: Hub;
  /** Timers and randomness. */
  host: Host;
  /** The name of the step whose function the caller runs in. */
  currentStep: AsyncLocalStorage<string | undefined>;
  /** The maximum size of a value, in bytes of JSON. */
  maxValueBytes: number;
}

/** The parameters of one execution. */
export interface ExecutionOptions {
  /** The default retry policy of steps. */
  retry: RetryPolicy;
  /** Until when the lease is certainly held, on the monotonic clock. */
  leaseSureUntil: number;
  /** Renews the lease, or interrupts the execution. */
  renewLease: () => Promise<void>;
  /** Called when there is something to report, since the next write may come late. */
  onReport: () => void;
}

/**
 * The shared state of one execution, for its steps and its worker: whether it was interrupted, which steps are being
 * executed, and which checkpoint the job has reached.
 */
export class Execution {
  /** The claimed run with its history. */
  readonly claim: Claim;
  /** The default retry policy of its steps. */
  readonly retry: RetryPolicy;
  /** The dependencies that all executions share. */
  readonly deps: ExecutionDeps;
  /** When the claim was answered, on the monotonic clock. */
  readonly claimedAt: number;
  /** The steps that are being executed, by name. */
  readonly executing = new Map<string, () => ExecutingStep>();
  readonly #interruption = new AbortController();
  readonly #attempts = new Set<Promise<unknown>>();
  /** Orders the results that reach the job. */
  readonly turns: ReplayOrder;
  /** Until when the lease is certainly held, on the monotonic clock. */
  leaseSureUntil: number;
  readonly #renewLease: () => Promise<void>;
  readonly #onReport: () => void;
  readonly #listeners = new Set<() => void>();
  readonly #interrupted = Promise.withResolvers<void>();
  readonly #parked = Promise.withResolvers<void>();
  /** Resolves when the job has stopped at a checkpoint, or has returned. */
  readonly #checkpoint = Promise.withResolvers<void>();
  #isAtCheckpoint = false;
  #parking: Promise<unknown> | null = null;
  #isParked = false;
  #hasReturned = false;
  #isStopping = false;
  #isSuperseded = false;
  /** Pending calls that release the lease. */
  #leaving = 0;
  #isLostUnlessLeft = false;
  readonly #reports = new PendingReports();
  /** Pending writes that carry reports. */
  #writing = 0;

  constructor(claim: Claim, options: ExecutionOptions, deps: ExecutionDeps) {
    this.claim = claim;
    this.turns = new ReplayOrder(recordedNos(claim), deps.host);
    this.retry = options.retry;
    this.leaseSureUntil = options.leaseSureUntil;
    this.#renewLease = options.renewLease;
    this.#onReport = options.onReport;
    this.deps = deps;

    this.claimedAt = deps.host.monotonic();
  }

  /** Fires when the execution is interrupted, with the reason. */
  get abortSignal(): AbortSignal {
    return this.#interruption.signal;
  }

  /** Whether the execution was interrupted: nothing more is recorded. */
  get isInterrupted(): boolean {
    return this.abortSignal.aborted;
  }

  /** Ends the execution now. Nothing more is recorded, unless a step returns while the lease is held. */
  interrupt(reason: Error): void {
    this.#interruption.abort(reason);
    this.#interrupted.resolve();
    this.#notifyChange();
  }

  /**
   * Ends the execution because a newer event of the run was published: it was cancelled, or claimed again.
   */
  supersede(reason: Error): void {
    this.#isSuperseded = true;
    this.interrupt(reason);
  }

  /** Whether a newer event of the run was published than any that this execution may still publish. */
  get isSuperseded(): boolean {
    return this.#isSuperseded;
  }

  /**
   * Registers a call that may release the lease: while it is pending, only its answer decides whether the lease was
   * lost.
   *
   * @param hasLeft Whether the answer says that the lease was released.
   */
  async leave<T>(answer: Promise<T>, hasLeft: (answer: T) => boolean): Promise<T> {
    this.#leaving += 1;
    try {
      const value = await answer;
      if (this.#isLostUnlessLeft && !hasLeft(value)) this.interrupt(new LeaseLostError(this.claim.lease));
      return value;
    } finally {
      this.#leaving -= 1;
    }
  }

  /** Handles a lease that is lost or may be lost, unless the execution is releasing it at this moment. */
  noteLostLease(): void {
    if (this.#leaving > 0) this.#isLostUnlessLeft = true;
    else this.interrupt(new LeaseLostError(this.claim.lease));
  }

  /** Resolves when the execution is interrupted. */
  get interrupted(): Promise<void> {
    return this.#interrupted.promise;
  }

  /** Ends the execution at the job's next checkpoint (a step or a pause): running steps may end, nothing new begins. */
  stop(reason: Error): void {
    if (this.#isStopping) return;
    this.#isStopping = true;
    this.#interruptAtCheckpoint(reason);
  }

  /** Calls back when a pause of the job may have ended. */
  onChange(listener: () => void): void {
    this.#listeners.add(listener);
  }

  #notifyChange(): void {
    for (const listener of this.#listeners) listener();
  }

  /** Triggers a check of the pauses at once. */
  nudge(): void {
    this.#notifyChange();
  }

  /** Records that the job's function has returned or thrown: the branches that it left behind begin nothing more. */
  noteReturn(): void {
    this.#hasReturned = true;
    this.#checkpoint.resolve();
    this.#notifyChange();
  }

  /** Records that the job waits permanently: it executes no more code of its own. */
  noteCheckpoint(): void {
    this.#isAtCheckpoint = true;
    this.#checkpoint.resolve();
  }

  /** Resolves when no code of the job runs here any more; after an interruption possibly never. */
  async bodyEnded(): Promise<void> {
    await this.#checkpoint.promise;
    await this.attemptsSettled();
  }

  /** A promise for the job that never settles. */
  #never(): Promise<never> {
    this.noteCheckpoint();
    return new Promise<never>(() => {});
  }

  /** Whether the job's function has returned, or the execution was interrupted. */
  get isOver(): boolean {
    return this.#hasReturned || this.isInterrupted || this.#isParked;
  }

  /** Whether no attempt at a step is under way. */
  get isQuiet(): boolean {
    return this.#attempts.size === 0 && !this.turns.isHolding;
  }

  /** Whether one attempt at a step is the only activity. */
  get isAlone(): boolean {
    return this.#attempts.size === 1 && !this.turns.isHolding;
  }

  /** Holds back new steps while the store is asked to park the run; permanently, if it parks. */
  async park<T extends { parked: boolean }>(asking: Promise<T>): Promise<T> {
    this.#parking = asking.catch(() => {});
    try {
      const answer = await this.track(asking);
      this.#isParked = answer.parked;
      if (answer.parked) this.#parked.resolve();
      return answer;
    } finally {
      this.#parking = null;
    }
  }

  /** Resolves when the run has parked. */
  get parked(): Promise<void> {
    return this.#parked.promise;
  }

  /**
   * The same promise for the job. It never settles once the run has parked, was interrupted, or its function has
   * returned: what is left of the job does not go on, and cannot cause an unhandled rejection. Nor does it settle
   * once a branch of a stopping job has reached its checkpoint: the other branches stop too.
   */
  async forJob<T>(promise: Promise<T>): Promise<T> {
    const mayGoOn = () => !this.isOver && !(this.#isStopping && this.#isAtCheckpoint);
    try {
      const value = await promise;
      if (mayGoOn()) return value;
    } catch (error) {
      if (mayGoOn()) throw error;
    }
    return await this.#never();
  }

  /** Resolves when the store may be asked about existing records; never, if the job is over. */
  async mayAsk(): Promise<void> {
    while (this.#parking !== null) await this.#parking;
    if (this.isOver) await this.#never();
  }

  /**
   * Begins something new as soon as possible; never, if the job is over or the engine stops. Decision and start are
   * synchronous, so nothing begins after the job is over.
   */
  async begin<T>(what: () => Promise<T>): Promise<T> {
    while (true) {
      await this.mayAsk();
      if (this.isOver || this.#isStopping) await this.#never();
      if (this.#parking !== null) continue;
      if (this.deps.host.monotonic() < this.leaseSureUntil) return await what();
      // After the event loop was blocked, or the process suspended, another worker may hold the run.
      await this.track(this.#renewLease()); // a pending start prevents parking
    }
  }

  async #interruptAtCheckpoint(reason: Error): Promise<void> {
    await this.#checkpoint.promise;
    do {
      await this.attemptsSettled();
      // Another branch of the job may have waited for this, and the job may return now.
      await new Promise<void>((resolve) => this.deps.host.defer(resolve));
    } while (this.#attempts.size > 0);
    if (!this.#hasReturned) this.interrupt(reason);
  }

  /** Tracks an attempt at a step until it settles. */
  track<T>(attempt: Promise<T>): Promise<T> {
    const settled = attempt.then(() => {}, () => {}).finally(() => {
      this.#attempts.delete(settled);
      if (this.isQuiet) this.#notifyChange();
    });
    this.#attempts.add(settled);
    return attempt;
  }

  /** Resolves when a result recorded before this execution has its turn. */
  untilDelivered(recordedNo: number): Promise<void> {
    return this.track(this.turns.wait(recordedNo)); // prevents parking: the job continues after it
  }

  /** Resolves when no attempt at a step is under way. */
  async attemptsSettled(): Promise<void> {
    while (this.#attempts.size > 0) await Promise.all(this.#attempts);
  }

  /** Publishes an event of the run in this process. */
  publish(happening: RunHappening): void {
    this.deps.hub.publish(this.claim.run, happening);
  }

  /**
   * Reports something that no row keeps: publishes it in this process and sends it with the run's next write.
   */
  report(said: Said): void {
    const at = this.deps.host.now();
    this.#reports.add(said, at);
    this.deps.hub.publish(this.claim.run, toHappening(said), at);
    this.#onReport();
  }

  /** Whether there are reports that no write has stored. */
  get hasReports(): boolean {
    return !this.#reports.isEmpty;
  }

  /** Since when a report waits for a write; `null` if none does, or a write is pending. */
  get reportsWaitSince(): number | null {
    return this.#writing > 0 ? null : this.#reports.oldestAt;
  }

  /** The pending reports, for a write outside of the execution. */
  sendReports(): readonly Report[] {
    return this.#reports.send();
  }

  /** Performs a write that carries the pending reports. */
  async writeWithReports<T>(write: (reports: readonly Report[]) => Promise<T>): Promise<T> {
    const reports = this.#reports.send();
    this.#writing += 1;
    try {
      const answer = await write(reports);
      this.#reports.noteKept(reports);
      return answer;
    } finally {
      this.#writing -= 1;
      if (this.hasReports && !this.isOver) this.#onReport();
    }
  }

  /** Removes the reports that a write has stored, and schedules later ones. */
  noteKeptReports(reports: readonly Report[]): void {
    this.#reports.noteKept(reports);
    if (this.hasReports && !this.isOver) this.#onReport();
  }

  /** Encodes a value as JSON, within the limits of this engine. */
  encode(value: unknown, subject: string): JsonText | null {
    return encode(value, { subject, maxBytes: this.deps.maxValueBytes });
  }

  /** Interrupts the execution after a refused write: the lease is lost. */
  noteRefusal(error: unknown): void {
    if (error instanceof LeaseLostError) this.interrupt(error);
  }
}

function toHappening(said: Said): RunHappening {
  switch (said.kind) {
    case "start": {
      const { stepName, stepIndex, attempt } = said;
      return { type: "step:start", stepName, stepIndex, attempt };
    }
    case "progress":
      return { type: "run:progress", progress: said.progress };
    case "log": {
      const { stepName, level, message, data } = said;
      return { type: "log:write", stepName, level, message, data };
    }
  }
}

/** The positions of all records that a replay may deliver. */
function recordedNos({ steps, pauses }: Claim): number[] {
  return [
    ...steps.filter(({ result }) => result.status !== "retrying").map(({ recordedNo }) => recordedNo),
    ...pauses.flatMap(({ preparedNo, resolution }) => [preparedNo ?? 0, resolution?.recordedNo ?? 0]),
  ];
}

/** How an execution of a run ended. */
export type Outcome =
  | { kind: "completed"; text: JsonText | null }
  | { kind: "failed"; failure: Failure; failedStepName: string | null; thrown: unknown }
  | { kind: "waiting" }
  | { kind: "interrupted" };

/** The failure of a run whose function threw. */
export function failedOutcome(thrown: unknown): Outcome {
  return {
    kind: "failed",
    // A timeout of a step is an error of the run: the run itself did not time out.
    failure: { ...describeFailure(thrown), kind: "error" },
    failedStepName: findFailedStep(thrown),
    thrown,
  };
}

// The number of errors in a stored failure.
const MAX_ERRORS = 5;

/** The step whose failure was thrown, or is the cause of what was thrown; `null` if there is none. */
function findFailedStep(thrown: unknown): string | null {
  let error = thrown;
  for (let depth = 0; depth < MAX_ERRORS && isInstance(error, Error); depth++) {
    if (isInstance(error, StepError)) return error.stepName;
    try {
      error = error.cause;
    } catch {
      return null; // a getter that throws
    }
  }
  return null;
}
