import type { AsyncLocalStorage } from "node:async_hooks";
import { LeaseLostError } from "../model/error.ts";
import type { RunHappening } from "../model/event.ts";
import type { Hub } from "../events/hub.ts";
import { retryStoreCall } from "../events/retry_store_call.ts";
import type { Failure, FailureKind } from "../model/failure.ts";
import { toFailure, withoutStacks } from "../model/to_failure.ts";
import { type Host, nextTurn } from "../model/host.ts";
import type { AroundHooks, ExecutionInfo } from "../model/around.ts";
import type { Soon } from "../values/at_once.ts";
import { decode, encode, type Json, type JsonText } from "../values/json.ts";
import type { Report } from "../model/execution_report.ts";
import type { OnDivergence } from "../model/hold.ts";
import type { CatalogJob } from "../model/job/job_catalog.ts";
import type { Lease } from "../model/lease.ts";
import type { ExecutingStep } from "../model/step.ts";
import type { KeyedRun } from "../model/job/job_messages.ts";
import type { SentMessage } from "../model/message.ts";
import type { Job } from "../model/job.ts";
import type { StepTriggerOptions, StepTriggerResult } from "../model/job/step_calls.ts";
import type { Labels } from "../model/run.ts";
import type { Recorder } from "../statistics/recorder.ts";
import type { Store } from "../store/store.ts";
import type { Claim } from "../store/claim.ts";
import type { NewRun } from "../store/new_run.ts";
import { JobCalls } from "./calls/job_calls.ts";
import { ExecutionState } from "./execution_state.ts";
import type { Surroundings } from "./surroundings.ts";
import type { Transactions } from "./transactions.ts";
import { ResultOrder } from "./replay/result_order.ts";
import { ReportOutbox } from "./reports.ts";
import type { Slot } from "./slots.ts";
import { RunStreams } from "./streams/run_streams.ts";

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
  /** The maximum size of a stream, in bytes of JSON. */
  maxStreamBytes: number;
  /** Whether the stacks of failures are stored. */
  storesStacks: boolean;
  /** Starts the runs that jobs ask for. */
  runs: {
    /**
     * Checks a request and builds its run: at once, if the schema of the job answers at once.
     *
     * @throws {ValidationError} The input does not fit the job's schema, or an option is not valid.
     */
    create(job: Job | string, input: unknown, options: StepTriggerOptions & { labels: Labels }): Soon<NewRun>;
    /** Adds a run, or finds one, and publishes that. One that was added before and deleted since counts as created. */
    add(run: NewRun): Promise<StepTriggerResult>;
  };
  /** Sends a message of a job. One with the same id was sent by an earlier attempt. */
  send(to: string | KeyedRun, name: string, payload: unknown, id: string): Promise<SentMessage>;
  /** What is done with a run that diverges, if its job does not say it. */
  onDivergence: OnDivergence;
  /** Counts what happens. */
  recorder: Recorder;
  /** Reports what is no error, but probably a mistake. */
  warn: (message: string) => void;
  /** What plugins do around executions, steps and triggers. */
  around: AroundHooks;
  /** Who calls the functions of jobs and steps, and whether the store is polled. */
  surroundings: Surroundings;
  /** Makes transactions. */
  transactions: Transactions;
}

/** The parameters of one execution. */
interface ExecutionOptions {
  /** The definition of the job. */
  definition: CatalogJob;
  /** Its slot. */
  slot: Slot;
  /** Until when the lease is certainly held, on the monotonic clock. */
  leaseSureUntil: number;
  /** Renews the lease, or interrupts the execution. */
  renewLease: () => Promise<void>;
  /** Called when there is something to report, since the next write may come late. */
  onReport: () => void;
  /** Called when there are items of streams to store. */
  onItems: () => void;
  /** Called when the run has recorded a step. */
  onStep: () => void;
  /** Called when the job has returned and the end of the run is about to be saved. */
  onEnding: () => void;
  /** What plugins learn of it; `null`: there is no plugin that learns of executions. */
  info: ExecutionInfo | null;
}

/**
 * One execution of a run, shared by its steps, its pauses and its worker. It decides whether the job may begin
 * something new, counts the work under way, and sends the writes.
 */
export class Execution {
  /** The claimed run with its history. */
  readonly claim: Claim;
  /** The definition of its job. */
  readonly definition: CatalogJob;
  /** What is done if the job does not ask for what the run has recorded. */
  readonly onDivergence: OnDivergence;
  /** The dependencies that all executions share. */
  readonly deps: ExecutionDeps;
  /** When the claim was answered, on the monotonic clock. */
  readonly claimedAt: number;
  /** The steps that are being executed, by name. */
  readonly executing = new Map<string, () => ExecutingStep>();
  /** Ends the run if it is past its deadline, though its timer has not fired yet. Set by `executeRun()`. */
  checkDeadline: () => void = () => {};
  /** Whether the execution holds its lease, has released it, or was interrupted. */
  readonly state: ExecutionState;
  /** Orders the results that reach the job. */
  readonly order: ResultOrder;
  /** What the job has called. */
  readonly calls: JobCalls;
  /** Publishes reports, and sends them with the next write. */
  readonly reports: ReportOutbox;
  /** Its slot: nothing begins without it. */
  readonly slot: Slot;
  /** What plugins learn of it; `null`: there was no plugin that learns of executions when it began. */
  readonly info: ExecutionInfo | null;
  /** Until when the lease is certainly held, on the monotonic clock. */
  leaseSureUntil: number;
  #lease: Lease;
  readonly #renewLease: () => Promise<void>;
  readonly #onEnding: () => void;
  readonly #onStep: () => void;
  readonly #onItems: () => void;
  #streams: RunStreams | null = null;
  readonly #listeners = new Set<() => void>();
  /** The attempts at steps, and other work of the job, that are under way. */
  #working = 0;
  readonly #whenQuiet: (() => void)[] = [];

  constructor(claim: Claim, options: ExecutionOptions, deps: ExecutionDeps) {
    this.claim = claim;
    this.#lease = claim.lease;
    this.deps = deps;
    this.definition = options.definition;
    this.slot = options.slot;
    this.info = options.info;
    const { onDivergence } = options.definition.job.changes;
    this.onDivergence = claim.continues ? "continue" : onDivergence ?? deps.onDivergence;
    this.leaseSureUntil = options.leaseSureUntil;
    this.claimedAt = deps.host.monotonic();
    this.state = new ExecutionState(claim.lease, () => this.nudge());
    this.calls = new JobCalls(this.state, (what) => deps.warn(`Job "${claim.run.jobName}" ${what}`));
    this.order = new ResultOrder(recordedNos(claim), deps.host);
    this.reports = new ReportOutbox(claim.run, deps.hub, deps.host, () => {
      if (!this.state.isOver) options.onReport();
    });
    this.#onItems = options.onItems;
    this.#renewLease = options.renewLease;
    this.#onEnding = options.onEnding;
    this.#onStep = options.onStep;
  }

  /** What its steps write to streams. */
  get streams(): RunStreams {
    return this.#streams ??= this.#newStreams();
  }

  #newStreams(): RunStreams {
    const { store, hub, host, maxStreamBytes, recorder } = this.deps;
    const { id: runId, jobName } = this.claim.run;
    const onStored = (items: number, bytes: number) => recorder.noteItems(jobName, items, bytes);
    const ofRun = { store, hub, host, maxStreamBytes, runId, abortSignal: this.abortSignal, onStored };
    return new RunStreams(ofRun, () => {
      if (!this.state.isInterrupted) this.#onItems();
    });
  }

  /** The lease, for a call to the store that is made now: it says how many records the execution knows. */
  get lease(): Lease {
    return this.#lease;
  }

  /** Notes the number of a record that the store has answered: a store that lacks it is not the one that was written to. */
  noteRecorded(recordedNo: number): void {
    if (recordedNo > this.#lease.recorded) this.#lease = { ...this.#lease, recorded: recordedNo };
  }

  /** Notes that a step was recorded, and with which number. */
  noteStep(recordedNo: number): void {
    this.noteRecorded(recordedNo);
    this.#onStep();
  }

  /** Fires when the execution is interrupted or the run is late, with the reason. */
  get abortSignal(): AbortSignal {
    return this.state.abortSignal;
  }

  /** Ends the execution at the job's next checkpoint (a step or a pause): running steps may end, nothing new begins. */
  stop(reason: Error): void {
    if (this.state.isStopping) return;
    this.state.noteStop();
    this.#interruptAtCheckpoint(reason);
  }

  async #interruptAtCheckpoint(reason: Error): Promise<void> {
    await this.state.bodyStopped;
    do {
      await this.workEnded();
      // Another branch of the job may have waited for this, and the job may return now.
      await nextTurn(this.deps.host);
    } while (this.#working > 0);
    if (!this.state.hasReturned) this.state.interrupt(reason);
  }

  /** Calls back when a pause of the job may have ended. */
  onChange(listener: () => void): void {
    this.#listeners.add(listener);
  }

  /** Triggers a check of the pauses at once. */
  nudge(): void {
    for (const listener of this.#listeners) listener();
  }

  /** Resolves when no code of the job runs here any more; after an interruption possibly never. */
  async bodyEnded(): Promise<void> {
    await this.state.bodyStopped;
    await this.workEnded();
  }

  /** Whether no code of the job runs here any more. */
  get hasEnded(): boolean {
    return (this.state.hasReturned || this.state.isBodyWaiting) && this.#working === 0;
  }

  /** Whether no work of the job is under way, and no result is held back. */
  get isQuiet(): boolean {
    return this.#working === 0 && !this.order.isHolding;
  }

  /** Whether this many registered works are the only activity. */
  isQuietBut(works: number): boolean {
    return this.#working === works && !this.order.isHolding;
  }

  /** Whether one attempt at a step is the only activity. */
  get isAlone(): boolean {
    return this.#working === 1 && !this.order.isHolding;
  }

  /** Whether the job does something of its own: its function has not returned, and awaits none of its calls here. */
  get isInOwnCode(): boolean {
    return this.calls.areSettled && !this.state.isOver && !this.state.isBodyWaiting;
  }

  /** Resolves when the store may be asked about existing records; never, if the job is over. */
  async mayAsk(): Promise<void> {
    for (let answered; (answered = this.state.releaseAnswered) !== null;) await answered;
    if (this.state.isOver) await this.#never();
  }

  /**
   * Begins something new as soon as possible; never, if the job is over or the engine stops. Decision and start are
   * synchronous, so nothing begins after the job is over.
   */
  begin<T>(what: () => Promise<T>): Promise<T> {
    return this.isLeaseSure && this.slot.isTaken && this.state.mayBegin
      ? what()
      : this.#untilMayBegin().then(() => this.begin(what));
  }

  async #untilMayBegin(): Promise<void> {
    await this.mayAsk();
    if (this.state.isStopping) await this.#never();
    if (!this.slot.isTaken) await this.track(this.slot.take());
    // After the event loop was blocked, or the process suspended, another worker may hold the run.
    if (!this.isLeaseSure) await this.track(this.#renewLease());
  }

  #never(): Promise<never> {
    this.state.noteWaiting();
    return new Promise<never>(() => {});
  }

  /** Whether the lease is certainly held. */
  get isLeaseSure(): boolean {
    return this.deps.host.monotonic() < this.leaseSureUntil;
  }

  /** Renews the lease now, or interrupts the execution. */
  renewLease(): Promise<void> {
    return this.#renewLease();
  }

  /** Registers work of the job: the run does not park until {@linkcode Execution.endWork}. */
  beginWork(): void {
    this.#working += 1;
  }

  /** Registers the end of work of the job. */
  endWork(): void {
    this.#working -= 1;
    if (this.#working === 0) { for (const resolve of this.#whenQuiet.splice(0)) resolve(); }
    if (this.isQuiet) this.nudge();
  }

  /** Registers a promise as work of the job until it settles. Returns the same promise. */
  track<T>(work: Promise<T>): Promise<T> {
    this.beginWork();
    const end = () => this.endWork();
    work.then(end, end);
    return work;
  }

  /** Resolves when no work of the job is under way. */
  async workEnded(): Promise<void> {
    while (this.#working > 0) await new Promise<void>((resolve) => this.#whenQuiet.push(resolve));
  }

  /** Resolves when a result that was recorded before this execution may be delivered to the job. */
  untilDelivered(recordedNo: number): Promise<void> {
    this.beginWork(); // prevents parking: the job continues after it
    return this.order.wait(recordedNo, () => this.endWork());
  }

  /**
   * Sends a write of the job with the pending reports, and repeats it until the store answers. A lost lease interrupts
   * the execution. When the run is late, nothing is sent any more.
   *
   * @param send Makes one attempt.
   */
  write<T>(send: (reports: readonly Report[]) => Promise<T>): Promise<T> {
    return this.writeLate((take) => send(take()));
  }

  /**
   * Sends a write whose content is known late, as {@linkcode Execution.write} does. `take` returns the pending reports
   * when it is: until then others can send them.
   */
  writeLate<T>(send: (take: () => readonly Report[]) => Promise<T>): Promise<T> {
    this.checkDeadline();
    if (this.state.isLate) return Promise.reject(this.abortSignal.reason);
    return this.#send(send, false);
  }

  /** Sends the write that ends the run, as {@linkcode Execution.write} does, also when the run is late. */
  writeEnd(send: (reports: readonly Report[]) => Promise<void>): Promise<void> {
    if (this.state.hasReturned) this.#onEnding(); // the code of a late run may still go on
    return this.#send((take) => send(take()), true);
  }

  async #send<T>(send: (take: () => readonly Report[]) => Promise<T>, isEnd: boolean): Promise<T> {
    let sent: readonly Report[] | null = null;
    let stored: readonly Report[] = [];
    const take = () => {
      if (sent === null) this.reports.beginWrite();
      return sent = this.reports.send();
    };
    try {
      const abortSignal = isEnd ? this.state.interruption : this.abortSignal;
      const answer = await retryStoreCall(() => send(take), this.deps, abortSignal);
      stored = sent ?? [];
      return answer;
    } catch (error) {
      // The failure of a late run releases the lease, perhaps before another write arrives.
      if (error instanceof LeaseLostError && (isEnd || !this.state.isLate)) this.state.interrupt(error);
      throw error;
    } finally {
      if (sent !== null) this.reports.endWrite(stored);
    }
  }

  /** Publishes an event of the run in this process. */
  publish(happening: RunHappening): void {
    this.deps.hub.publish(this.claim.run, happening);
  }

  /** An output for an event; `null` if nobody hears it. */
  outputFor(type: "step:complete" | "run:complete", output: JsonText | null): Json {
    return this.deps.hub.hears(type) ? decode(output) ?? null : null;
  }

  /** Encodes a value as JSON, within the limits of this engine. */
  encode(value: unknown, subject: string): JsonText | null {
    return encode(value, { subject, maxBytes: this.deps.maxValueBytes });
  }

  /** The description of what was thrown, as it is stored. */
  toFailure(thrown: unknown, kind: FailureKind = "error"): Failure {
    const failure = toFailure(thrown, kind);
    return this.deps.storesStacks ? failure : withoutStacks(failure);
  }
}

/** The positions of all records that a replay may deliver. */
function recordedNos({ steps, pauses }: Claim): number[] {
  return [
    ...steps.filter(({ result }) => result.status !== "retrying").map(({ recordedNo }) => recordedNo),
    ...pauses.flatMap(({ preparedNo, resolution }) => [preparedNo ?? 0, resolution?.recordedNo ?? 0]),
  ];
}
