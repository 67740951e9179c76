import type { AsyncLocalStorage } from "node:async_hooks";
import { describeFailure, isInstance, LeaseLostError, StepError } from "../error.ts";
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

/** What executions share. */
export interface ExecutionDeps {
  /** Keeps what is recorded. */
  store: Store;
  /** Tells what happens. */
  hub: Hub;
  /** Time and chance. */
  host: Host;
  /** The name of the step in whose function the caller is. */
  currentStep: AsyncLocalStorage<string | undefined>;
  /** How large a value may be, in bytes of JSON. */
  maxValueBytes: number;
}

/** What an execution is begun with. */
export interface ExecutionOptions {
  /** How often and when steps are tried again, unless they say otherwise. */
  retry: RetryPolicy;
  /** Until when the lease is surely ours, on the monotonic clock. */
  leaseSureUntil: number;
  /** Renews the lease, or interrupts the execution. */
  renewLease: () => Promise<void>;
  /** Is called when there is something to report: the next write may come late. */
  onReport: () => void;
}

/**
 * What a claimed run, its steps and its worker know of each other while it is executed: whether it was interrupted,
 * which steps are being executed, and how far the job has come.
 */
export class Execution {
  /** The claimed run with its history. */
  readonly claim: Claim;
  /** How often and when its steps are tried again, unless they say otherwise. */
  readonly retry: RetryPolicy;
  /** What executions share. */
  readonly deps: ExecutionDeps;
  /** When the claim was answered, on the monotonic clock. */
  readonly claimedAt: number;
  /** The steps that are being executed, by name. */
  readonly executing = new Map<string, () => ExecutingStep>();
  readonly #interruption = new AbortController();
  readonly #attempts = new Set<Promise<unknown>>();
  /** Orders the results that reach the job. */
  readonly turns: ReplayOrder;
  /** Until when the lease is surely ours, on the monotonic clock. */
  leaseSureUntil: number;
  readonly #renewLease: () => Promise<void>;
  readonly #onReport: () => void;
  readonly #listeners = new Set<() => void>();
  readonly #interrupted = Promise.withResolvers<void>();
  readonly #parked = Promise.withResolvers<void>();
  /** Resolves when the job has come to a checkpoint that it does not pass, or has returned. */
  readonly #checkpoint = Promise.withResolvers<void>();
  #isAtCheckpoint = false;
  #parking: Promise<unknown> | null = null;
  #isParked = false;
  #hasReturned = false;
  #isStopping = false;
  #isSuperseded = false;
  /** Calls under way that give the lease up. */
  #leaving = 0;
  #isLostUnlessLeft = false;
  readonly #reports = new PendingReports();
  /** Writes under way that take reports along. */
  #writing = 0;

  /** Begins with nothing executed. */
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

  /** Fires when the execution is interrupted; its reason says why. */
  get abortSignal(): AbortSignal {
    return this.#interruption.signal;
  }

  /** Whether nothing that the job does counts any more. */
  get isInterrupted(): boolean {
    return this.abortSignal.aborted;
  }

  /** Ends the execution now. Nothing of it is recorded any more, unless a step returns while the lease holds. */
  interrupt(reason: Error): void {
    this.#interruption.abort(reason);
    this.#interrupted.resolve();
    this.#tellChange();
  }

  /** Ends the execution because of something newer that is told of the run: that it was cancelled, or taken up again. */
  supersede(reason: Error): void {
    this.#isSuperseded = true;
    this.interrupt(reason);
  }

  /** Whether something newer was told of the run than what this execution may still have to tell. */
  get isSuperseded(): boolean {
    return this.#isSuperseded;
  }

  /**
   * Notes a call that may give the lease up: while it is under way, nothing else says what became of the lease.
   *
   * @param hasLeft Whether it did, according to the answer.
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

  /** Takes note that the lease is gone, or may be: unless the execution gives it up itself at this moment. */
  noteLostLease(): void {
    if (this.#leaving > 0) this.#isLostUnlessLeft = true;
    else this.interrupt(new LeaseLostError(this.claim.lease));
  }

  /** Resolves when the execution is interrupted. */
  get interrupted(): Promise<void> {
    return this.#interrupted.promise;
  }

  /** Ends the execution at the job's next checkpoint, a step or a pause: what runs may end, nothing new begins. */
  stop(reason: Error): void {
    if (this.#isStopping) return;
    this.#isStopping = true;
    this.#interruptAtCheckpoint(reason);
  }

  /** Calls back when something may have changed for what the job pauses on. */
  onChange(listener: () => void): void {
    this.#listeners.add(listener);
  }

  #tellChange(): void {
    for (const listener of this.#listeners) listener();
  }

  /** Makes it look at once whether a pause is over. */
  nudge(): void {
    this.#tellChange();
  }

  /** Notes that the job's function has returned or thrown: what it left behind begins nothing more. */
  noteReturn(): void {
    this.#hasReturned = true;
    this.#checkpoint.resolve();
    this.#tellChange();
  }

  /** Notes that the job waits for something that never comes: it executes no code of its own any more. */
  noteCheckpoint(): void {
    this.#isAtCheckpoint = true;
    this.#checkpoint.resolve();
  }

  /** Resolves when no code of the job runs here any more. After an interruption that may be never. */
  async bodyEnded(): Promise<void> {
    await this.#checkpoint.promise;
    await this.attemptsSettled();
  }

  /** A promise for the job that never settles. */
  #never(): Promise<never> {
    this.noteCheckpoint();
    return new Promise<never>(() => {});
  }

  /** Whether the job's function has returned, or nothing that it does counts any more. */
  get isOver(): boolean {
    return this.#hasReturned || this.isInterrupted || this.#isParked;
  }

  /** Whether no attempt at a step is under way. */
  get isQuiet(): boolean {
    return this.#attempts.size === 0 && !this.turns.isHolding;
  }

  /** Whether one attempt at a step is all that goes on. */
  get isAlone(): boolean {
    return this.#attempts.size === 1 && !this.turns.isHolding;
  }

  /** Holds back new steps while the store is asked to park the run; for ever, if it does. */
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
   * returned: what is left of the job does not go on, and cannot fail where nobody listens. Nor does it settle once a
   * branch of a job that is to stop has come to its checkpoint: the others stay where they are.
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

  /** Resolves when the store may be asked about something that is known: never, if the job is over. */
  async mayAsk(): Promise<void> {
    while (this.#parking !== null) await this.#parking;
    if (this.isOver) await this.#never();
  }

  /**
   * Begins something new as soon as it may: never, if the job is over or the engine stops. Nothing comes between the
   * decision and the beginning, so that a job that is over is over.
   */
  async begin<T>(what: () => Promise<T>): Promise<T> {
    while (true) {
      await this.mayAsk();
      if (this.isOver || this.#isStopping) await this.#never();
      if (this.#parking !== null) continue;
      if (this.deps.host.monotonic() < this.leaseSureUntil) return await what();
      // After the event loop was blocked, or the process suspended, the run may be another worker's.
      await this.track(this.#renewLease()); // what is about to begin keeps the run from parking
    }
  }

  async #interruptAtCheckpoint(reason: Error): Promise<void> {
    await this.#checkpoint.promise;
    do {
      await this.attemptsSettled();
      // Another branch of the job may have been waiting for just this, and the job may return now.
      await new Promise<void>((resolve) => this.deps.host.defer(resolve));
    } while (this.#attempts.size > 0);
    if (!this.#hasReturned) this.interrupt(reason);
  }

  /** Keeps track of an attempt at a step until it has settled. */
  track<T>(attempt: Promise<T>): Promise<T> {
    const settled = attempt.then(() => {}, () => {}).finally(() => {
      this.#attempts.delete(settled);
      if (this.isQuiet) this.#tellChange();
    });
    this.#attempts.add(settled);
    return attempt;
  }

  /** Resolves when it is the turn of something that was recorded before this execution. */
  untilDelivered(recordedNo: number): Promise<void> {
    return this.track(this.turns.wait(recordedNo)); // the run does not park meanwhile: the job goes on after it
  }

  /** Resolves when no attempt at a step is under way. */
  async attemptsSettled(): Promise<void> {
    while (this.#attempts.size > 0) await Promise.all(this.#attempts);
  }

  /** Publishes what happened to the run, in this process. */
  publish(happening: RunHappening): void {
    this.deps.hub.publish(this.claim.run, happening);
  }

  /** PendingReports something that no row keeps, and publishes it in this process: the run's next write takes it to the others. */
  report(said: Said): void {
    const at = this.deps.host.now();
    this.#reports.add(said, at);
    this.deps.hub.publish(this.claim.run, toHappening(said), at);
    this.#onReport();
  }

  /** Whether something was reported that no write has kept. */
  get hasReports(): boolean {
    return !this.#reports.isEmpty;
  }

  /** Since when something reported waits for a write; `null`: nothing does, or a write is under way. */
  get reportsWaitSince(): number | null {
    return this.#writing > 0 ? null : this.#reports.oldestAt;
  }

  /** What was reported, for a write that is no part of the execution. */
  sendReports(): readonly Report[] {
    return this.#reports.send();
  }

  /** Makes a write that keeps what was reported. */
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

  /** Notes that a write has kept what it was sent with: what was reported meanwhile follows. */
  noteKeptReports(reports: readonly Report[]): void {
    this.#reports.noteKept(reports);
    if (this.hasReports && !this.isOver) this.#onReport();
  }

  /** Writes a value as JSON, within the limits of this engine. */
  encode(value: unknown, subject: string): JsonText | null {
    return encode(value, { subject, maxBytes: this.deps.maxValueBytes });
  }

  /** Takes note of a refused write: somebody else has the run now. */
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

/** The places of everything that a replay may deliver. */
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
    // A step that took too long made an error of it: the run itself was not out of time.
    failure: { ...describeFailure(thrown), kind: "error" },
    failedStepName: findFailedStep(thrown),
    thrown,
  };
}

// As many errors as are kept of a failure.
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
