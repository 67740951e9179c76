import { runAround, type StepOutcome } from "../../model/around.ts";
import { type Duration, readDuration } from "../../values/duration.ts";
import { StepError, TimeoutError } from "../../model/error.ts";
import { isInstance, kindOf } from "../../values/unknown_values.ts";
import type { Failure } from "../../model/failure.ts";
import { pause } from "../../model/host.ts";
import type { StepOptions, StepTools } from "../../model/job/step_calls.ts";
import { decode, type Json, type JsonText } from "../../values/json.ts";
import { checkOptionNames } from "../../values/option_names.ts";
import { checkRetryPolicy, isNonRetryable, retryAfter, retryDelay, type RetryPolicy } from "../../model/retry.ts";
import { type ExecutingStep, idempotencyKeyOf, type SavedStep, type StepRecord } from "../../model/step.ts";
import { isoTime } from "../../values/iso_time.ts";
import type { Execution } from "../execution.ts";
import { Mistake } from "../transactions.ts";
import type { DueRetry, Parking } from "./parking.ts";
import type { RecordedHistory } from "../replay/recorded_history.ts";
import type { Replay, ReplayGuard } from "../replay/replay_guard.ts";
import { AttemptStreams } from "../streams/attempt_streams.ts";
import { StepNameNumbers } from "../replay/step_name_numbers.ts";

const STEP_OPTIONS: Record<keyof StepOptions, true> = { retry: true, timeout: true };

type Work = (tools: StepTools) => unknown;

/** What a step does. */
interface StepWork {
  /** The function that the job has given. */
  work: Work;
  /** Calls it in a transaction that records the step, too; `null`: it is called as it is. */
  transact: ((tools: StepTools, current: () => ExecutingStep) => Promise<Committed>) | null;
}

/** A step with its options. */
interface Attempted extends StepWork {
  name: string;
  index: number;
  retry: RetryPolicy;
  timeout: number | undefined;
}

/** The result of a transaction: of one that has recorded its step (`saved`), or of one whose record has to follow. */
export class Committed {
  readonly output: JsonText | null;
  readonly saved: SavedStep | undefined;

  constructor(output: JsonText | null, saved: SavedStep | undefined) {
    this.output = output;
    this.saved = saved;
  }
}

/** The result of an attempt at a step's function. `saved`: it is recorded already. */
type Performed =
  | { status: "completed"; output: JsonText | null; saved?: SavedStep | undefined }
  | { status: "failed"; failure: Failure; thrown: unknown; delayMs: number | null };

/** The recorded outcome of an attempt; after a failure with a `retry` another attempt follows. */
type Ended = { output: JsonText | null } | { failure: Failure; retry: DueRetry | null };

/** The running timeout of an attempt. */
interface StepTimeout {
  /** For the step's function: fires when the attempt is late, or the execution is interrupted. */
  abortSignal: AbortSignal;
  /** Rejects when the attempt is late. */
  exceeded: Promise<never>;
  /** What it rejects with; `undefined` before. */
  error: () => unknown;
  cancel: () => void;
}

// How many names of a run are checked for different functions: a job with more makes names up as it goes.
const MAX_FUNCTIONS = 1_000;
// During a shorter delay the run does not park: parking would cost more than it saves.
const LONGEST_DELAY_IN_MEMORY_MS = 1_000;

/**
 * Implements `step.run()`: returns recorded results, and executes and records new steps.
 *
 * ```text
 * run ── #execute ── #attempt ─┬─ #perform ── the step's function
 *        attempts    one of    └─ Execution.write ── retryStoreCall ── Store.saveStep
 *        and delays  them
 * ```
 */
export class StepCalls {
  readonly #execution: Execution;
  readonly #parking: Parking;
  readonly #names = new StepNameNumbers("step");
  readonly #history: RecordedHistory;
  readonly #guard: ReplayGuard;
  #nextIndex: number;
  /** The text of the first function of each name. */
  readonly #functions = new Map<string, string>();

  constructor(execution: Execution, parking: Parking, { history, guard }: Replay) {
    const { steps } = execution.claim;
    this.#execution = execution;
    this.#parking = parking;
    this.#history = history;
    this.#guard = guard;
    this.#nextIndex = steps.reduce((next, { index }) => Math.max(next, index + 1), 0);
  }

  /** See `StepContext.run()`. */
  run(givenName: string, work: Work, options?: StepOptions): Promise<Json | undefined> {
    return this.step(givenName, { work, transact: null }, options);
  }

  /**
   * Does a step: {@linkcode StepCalls.run}, or one that is done in another way. It is one asynchronous function: each
   * more would cost every replayed step four promises.
   *
   * @param isUnique Whether no other call of this execution has its name, which is not checked then.
   */
  async step(
    givenName: string,
    { work, transact }: StepWork,
    options: StepOptions | undefined,
    isUnique = false,
  ): Promise<Json | undefined> {
    const { retry } = checkOptions(options, givenName);
    const timeout = readTimeout(options?.timeout, givenName);
    this.checkOutside(givenName);
    const name = isUnique ? givenName : this.#names.begin(givenName);
    this.#checkFunction(givenName, name === givenName, work);
    try {
      const recorded = this.#history.step(name);
      if (recorded !== undefined && recorded.result.status !== "retrying") {
        await this.#execution.untilDelivered(recorded.recordedNo);
        return answerOf(recorded);
      }
      const isNew = { kind: "step", name } as const;
      if (recorded === undefined && this.#guard.mustWait(isNew)) await this.#guard.untilMayBegin(isNew);
      return await this.#execute({
        work,
        transact,
        // A step that was renamed between two attempts keeps its old name, and so its idempotency key.
        name: recorded?.name ?? this.#history.unfinishedName("step", name),
        index: recorded?.index ?? this.#nextIndex++,
        retry: retry ?? this.#execution.definition.job.retry,
        timeout,
      }, recorded);
    } finally {
      if (!isUnique) this.#names.end(givenName);
    }
  }

  /** Refuses a step inside the function of another one. */
  checkOutside(name: string): void {
    const outer = this.#execution.deps.currentStep.getStore();
    if (outer === undefined) return;
    throw new TypeError(
      `Step "${name}" cannot begin inside the function of step "${outer}": call it before or after that step`,
    );
  }

  /** Warns of a name that stands for several functions: when one more is added before, the results shift. */
  #checkFunction(name: string, isFirst: boolean, work: Work): void {
    if (typeof work !== "function") return; // the attempt fails
    if (isFirst) {
      if (this.#functions.size < MAX_FUNCTIONS) this.#functions.set(name, Function.prototype.toString.call(work));
      return;
    }
    const first = this.#functions.get(name);
    if (first !== undefined && first !== Function.prototype.toString.call(work)) {
      this.#execution.deps.warn(
        `Job "${this.#execution.claim.run.jobName}" uses the name "${name}" for steps with different functions. ` +
          "If one is added before another, it takes the recorded result of that one: give each a name of its own",
      );
    }
  }

  /** Makes attempts at a step until one succeeds or none is left. */
  async #execute(step: Attempted, recorded: StepRecord | undefined): Promise<Json | undefined> {
    const execution = this.#execution;
    execution.order.noteNew();
    // The remaining delay at the claim, counted from the start of this execution.
    let retry = recorded?.result.status === "retrying"
      ? { at: recorded.result.retry.at, dueAt: execution.claimedAt + recorded.result.retry.inMs }
      : null;
    for (let attempt = (recorded?.attempts ?? 0) + 1;; attempt++) {
      await (retry === null ? null : this.#untilRetry(step.name, retry)); // the function is called after this call
      const ended = await execution.begin(() => this.#attemptAround(step, attempt));
      if ("output" in ended) return decode(ended.output);
      if (ended.retry === null) throw new StepError(ended.failure, { name: step.name, attempts: attempt });
      retry = ended.retry;
    }
  }

  async #untilRetry(stepName: string, retry: DueRetry): Promise<void> {
    const execution = this.#execution;
    const { host } = execution.deps;
    const leftMs = retry.dueAt - host.monotonic();
    if (leftMs <= 0) return;
    await (leftMs <= LONGEST_DELAY_IN_MEMORY_MS
      ? execution.track(pause(host, leftMs, execution.abortSignal))
      : this.#parking.untilRetry(stepName, retry));
  }

  /** Makes one attempt, and calls the plugins' hooks around steps. */
  #attemptAround(step: Attempted, attempt: number): Promise<Ended> {
    const { info, deps: { around } } = this.#execution;
    if (around.step === null || info === null) return this.#attempt(step, attempt);
    return runAround(
      around.step,
      { execution: info, stepName: step.name, attempt },
      (end) => this.#attempt(step, attempt, end),
      () => ({ kind: "cancelled" as const }),
    );
  }

  /**
   * Makes one attempt and records its outcome. It continues when the run is interrupted: its result may still be
   * recorded.
   */
  async #attempt(step: Attempted, attempt: number, end?: (outcome: StepOutcome) => void): Promise<Ended> {
    const execution = this.#execution;
    const { deps } = execution;
    const { name, index } = step;
    const since = deps.host.monotonic();
    const current = () => ({
      name,
      index,
      attempts: attempt,
      startedAgoMs: Math.round(deps.host.monotonic() - since),
    });
    execution.beginWork();
    execution.executing.set(name, current);
    execution.reports.add({ kind: "start", stepName: name, stepIndex: index, attempt });
    try {
      const streams = new AttemptStreams(name, execution, execution.abortSignal);
      const performed = await this.#perform(step, attempt, current, streams);
      const { startedAgoMs: duration } = current();
      const saved = performed.status === "completed" ? performed.saved : undefined;
      const { recordedNo, retry } = saved ?? await this.#save(performed, current, streams);
      streams.noteRecorded();
      execution.noteStep(recordedNo);
      this.#publish(step, attempt, performed, { duration, retryAt: retry?.at ?? null });
      end?.(toStepOutcome(performed, retry !== null));
      if (retry === null && !this.#parking.isNext) await this.#parking.untilTurn(recordedNo);
      if (performed.status === "completed") return performed;
      const { failure } = performed;
      return { failure, retry: retry && { at: retry.at, dueAt: deps.host.monotonic() + retry.inMs } };
    } finally {
      execution.executing.delete(name);
      execution.endWork();
    }
  }

  #save(performed: Performed, current: () => ExecutingStep, streams: AttemptStreams): Promise<SavedStep> {
    const execution = this.#execution;
    const result = toResult(performed);
    const chunks = streams.chunksFor(result);
    const more = chunks.length === 0 ? undefined : { chunks };
    return execution.order.expect(
      execution.write((reports) =>
        execution.deps.store.saveStep(execution.lease, { ...current(), result, ...more }, reports)
      ),
    );
  }

  #publish(
    { name: stepName, index: stepIndex }: Attempted,
    attempt: number,
    performed: Performed,
    { duration, retryAt }: { duration: number; retryAt: number | null },
  ): void {
    if (performed.status === "completed") {
      const output = this.#execution.outputFor("step:complete", performed.output);
      this.#execution.publish({ type: "step:complete", stepName, stepIndex, output, duration });
    } else {
      const { failure: { message: error }, thrown } = performed;
      const at = isoTime(retryAt);
      const { claim, deps } = this.#execution;
      deps.recorder.noteFailed(claim.run.jobName, "stepDuration", duration);
      this.#execution.publish({ type: "step:fail", stepName, stepIndex, attempt, error, retryAt: at, thrown });
    }
  }

  /** Calls a step's function. What it throws after an interruption is not an outcome, and is rethrown. */
  async #perform(
    step: Attempted,
    attempt: number,
    current: () => ExecutingStep,
    streams: AttemptStreams,
  ): Promise<Performed> {
    const { abortSignal } = this.#execution;
    const timeout = this.#startTimeout(step);
    if (timeout !== null) streams.abortSignal = timeout.abortSignal;
    let value: unknown;
    try {
      const call = this.#call(step, attempt, current, streams);
      value = await (timeout === null ? call : Promise.race([call, timeout.exceeded]));
      const failed = streams.close() ? await streams.end() : null;
      if (failed !== null) throw failed.error;
      if (isInstance(value, Committed)) return { status: "completed", ...(value as Committed) };
    } catch (thrown) {
      if (streams.close()) await streams.end();
      if (abortSignal.aborted) throw abortSignal.reason;
      const isMistake = isInstance(thrown, Mistake);
      const error = isMistake ? (thrown as Mistake).cause : thrown;
      const kind = timeout !== null && error === timeout.error() ? "timeout" : "error";
      const delayMs = isMistake ? null : this.#delayAfter(error, step.retry, attempt);
      const { maxAttempts = 1 } = step.retry;
      const more = maxAttempts > 1 ? { maxAttempts } : {};
      return {
        status: "failed",
        failure: { ...this.#execution.toFailure(error, kind), ...more },
        thrown: error,
        delayMs,
      };
    } finally {
      timeout?.cancel();
    }
    try {
      return { status: "completed", output: this.#execution.encode(value, `The result of step "${step.name}"`) };
    } catch (error) {
      return { status: "failed", failure: this.#execution.toFailure(error), thrown: error, delayMs: null };
    }
  }

  #call(
    { name, work, transact }: Attempted,
    attempt: number,
    current: () => ExecutingStep,
    streams: AttemptStreams,
  ): Promise<unknown> {
    if (typeof work !== "function") throw new TypeError(`Step "${name}" needs a function, not ${kindOf(work)}`);
    const { claim, deps } = this.#execution;
    const tools: StepTools = {
      idempotencyKey: idempotencyKeyOf(name, claim.originId, claim.copied?.undone),
      attempt,
      abortSignal: streams.abortSignal,
      stream: (stream) => {
        // The record of a transaction is written by your database, which does not know of items.
        if (transact !== null) {
          throw new TypeError(`Step "${name}" is a transaction: a stream is written in step.run()`);
        }
        return streams.open(stream);
      },
      readStream: (stream) => streams.read(stream),
    };
    // A lazy result (a query with `then()`) also runs in the step's context.
    const perform = transact === null ? () => work(tools) : () => transact(tools, current);
    const call = { claim, stepName: name, tools, work: perform };
    return deps.currentStep.run(name, () => Promise.resolve(deps.surroundings.callStep(call)));
  }

  /** Starts the timeout of an attempt; `null` if the step has none. */
  #startTimeout({ name, timeout }: Attempted): StepTimeout | null {
    if (timeout === undefined) return null;
    const late = new AbortController();
    const { promise: exceeded, reject } = Promise.withResolvers<never>();
    const cancel = this.#execution.deps.host.schedule(timeout, () => {
      const error = new TimeoutError(`Step "${name}" took longer than ${timeout} ms`);
      reject(error); // first: the function may throw something else when it is aborted
      late.abort(error);
    });
    return {
      abortSignal: AbortSignal.any([this.#execution.abortSignal, late.signal]),
      exceeded,
      error: () => late.signal.reason,
      cancel,
    };
  }

  #delayAfter(thrown: unknown, policy: RetryPolicy, attempts: number): number | null {
    if (isNonRetryable(thrown) || attempts >= (policy.maxAttempts ?? 1)) return null;
    return retryAfter(thrown, this.#execution.deps.host) ?? retryDelay(policy, attempts, this.#execution.deps.host);
  }
}

function answerOf({ name, attempts, result }: StepRecord): Json | undefined {
  if (result.status === "completed") return decode(result.output);
  throw new StepError(result.failure, { name, attempts });
}

function toStepOutcome(performed: Performed, isRetried: boolean): StepOutcome {
  if (performed.status === "completed") return { kind: "completed" };
  return { kind: isRetried ? "retried" : "failed", failure: performed.failure };
}

function toResult(performed: Performed) {
  if (performed.status === "completed") return { status: performed.status, output: performed.output };
  const { failure, delayMs } = performed;
  return delayMs === null ? { status: "failed" as const, failure } : { status: "retrying" as const, failure, delayMs };
}

const NO_OPTIONS: StepOptions = {};

function checkOptions(options: StepOptions | undefined, stepName: string): StepOptions {
  if (options === undefined) return NO_OPTIONS;
  checkOptionNames(options, STEP_OPTIONS, "step.run()");
  if (options.retry !== undefined) checkRetryPolicy(options.retry, ` of step "${stepName}"`);
  return options;
}

function readTimeout(timeout: Duration | undefined, name: string): number | undefined {
  if (timeout === undefined) return undefined;
  const ms = readDuration(timeout, `The timeout of step "${name}"`);
  if (ms === 0 || ms === Infinity) {
    throw new RangeError(
      `The timeout of step "${name}" must be a positive, finite number of milliseconds, not ${timeout}`,
    );
  }
  return ms;
}
