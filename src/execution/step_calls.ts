import { checkDuration } from "../duration.ts";
import { describeFailure } from "../describe_failure.ts";
import { NonRetryableError, StepError, TimeoutError } from "../error.ts";
import { isInstance } from "../is_instance.ts";
import type { Failure } from "../failure.ts";
import { pause } from "../host.ts";
import type { StepOptions, StepTools } from "../job.ts";
import { decode, type Json, type JsonText } from "../json.ts";
import { checkOptionNames } from "../option_names.ts";
import { checkRetryPolicy, retryAfter, retryDelay, type RetryPolicy } from "../retry.ts";
import { stepId, type StepRecord } from "../step.ts";
import { isoTime } from "../time.ts";
import type { Execution } from "./execution.ts";
import type { PauseCalls } from "./pause_calls.ts";
import type { DueRetry } from "./parking.ts";
import { retryStoreCall } from "../events/retry_store_call.ts";
import { StepNames } from "./step_names.ts";

const STEP_OPTIONS: Record<keyof StepOptions, true> = { retry: true, timeout: true };

type Work = (tools: StepTools) => unknown;

/** A step with its options. */
interface Attempted {
  name: string;
  index: number;
  work: Work;
  retry: RetryPolicy;
  timeout: number | undefined;
}

/** The outcome of an attempt at a step; after a failure with a `retry` another attempt follows. */
type Ended = { text: JsonText | null } | { failure: Failure; retry: DueRetry | null };

// During a shorter delay the run does not park: parking would cost more than it saves.
const LONGEST_DELAY_IN_MEMORY_MS = 1_000;

/** Implements `step.run()`: returns recorded results, and executes and records new steps. */
export class StepCalls {
  readonly #execution: Execution;
  readonly #pauses: PauseCalls;
  readonly #names = new StepNames("step");
  readonly #recorded: Map<string, StepRecord>;
  #nextIndex: number;

  constructor(execution: Execution, pauses: PauseCalls) {
    const { steps } = execution.claim;
    this.#execution = execution;
    this.#pauses = pauses;
    this.#recorded = new Map(steps.map((step) => [step.name, step]));
    this.#nextIndex = steps.reduce((next, { index }) => Math.max(next, index + 1), 0);
  }

  /** See `StepContext.run()`. */
  async run(givenName: string, work: Work, options: StepOptions): Promise<Json | undefined> {
    const outer = this.#execution.deps.currentStep.getStore();
    if (outer !== undefined) {
      throw new TypeError(`Step "${givenName}" cannot begin inside the function of step "${outer}"`);
    }
    checkOptionNames(options, STEP_OPTIONS, "step.run()");
    const { retry = this.#execution.retry, timeout } = options;
    checkRetryPolicy(retry);
    checkTimeout(timeout, givenName);
    const name = this.#names.begin(givenName);
    try {
      const recorded = this.#recorded.get(name);
      if (recorded !== undefined && recorded.result.status !== "retrying") {
        return await this.#answer(recorded);
      }
      const index = recorded?.index ?? this.#nextIndex++;
      return await this.#execute({ name, index, work, retry, timeout }, recorded);
    } finally {
      this.#names.end(givenName);
    }
  }

  async #answer({ name, attempts, result, recordedNo }: StepRecord): Promise<Json | undefined> {
    await this.#execution.untilDelivered(recordedNo);
    if (result.status === "completed") return decode(result.output);
    throw new StepError(result.failure, { name, attempts });
  }

  /** Makes attempts at a step until one succeeds or none is left. */
  async #execute(step: Attempted, recorded: StepRecord | undefined): Promise<Json | undefined> {
    const execution = this.#execution;
    execution.turns.noteNew();
    // The remaining delay at the claim, counted from the start of this execution.
    let retry = recorded?.result.status === "retrying"
      ? { at: recorded.result.retry.at, dueAt: execution.claimedAt + recorded.result.retry.inMs }
      : null;
    for (let attempt = (recorded?.attempts ?? 0) + 1;; attempt++) {
      if (retry !== null) await this.#untilRetry(step.name, retry);
      const ended = await execution.begin(() => execution.track(this.#attempt(step, attempt)));
      if ("text" in ended) return decode(ended.text);
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
      : this.#pauses.untilRetry(stepName, retry));
  }

  /**
   * Makes one attempt and records its outcome. It continues when the run is interrupted: its result may still be
   * recorded.
   */
  async #attempt(step: Attempted, attempt: number): Promise<Ended> {
    const execution = this.#execution;
    const { claim, deps } = execution;
    const { name, index } = step;
    const since = deps.host.monotonic();
    const msSinceStart = () => Math.round(deps.host.monotonic() - since);
    const executing = { name, index, attempts: attempt };
    execution.executing.set(name, () => ({ ...executing, startedAgoMs: msSinceStart() }));
    execution.report({ kind: "start", stepName: name, stepIndex: index, attempt });
    try {
      const ended = await this.#perform(step, attempt);
      const duration = msSinceStart();
      const delayMs = "delayMs" in ended ? ended.delayMs : null;
      const result = "text" in ended
        ? { status: "completed" as const, output: ended.text }
        : delayMs === null
        ? { status: "failed" as const, failure: ended.failure }
        : { status: "retrying" as const, failure: ended.failure, delayMs };
      const save = () =>
        execution.writeWithReports((reports) =>
          deps.store.saveStep(claim.lease, { ...executing, startedAgoMs: msSinceStart(), result }, reports)
        );
      const { recordedNo, retry } = await execution.turns.expect(retryStoreCall(save, deps, execution.abortSignal));
      const stepFields = { stepName: name, stepIndex: index };
      if ("text" in ended) {
        execution.publish({ type: "step:complete", ...stepFields, output: decode(ended.text) ?? null, duration });
        await this.#pauses.untilTurn(recordedNo);
        return ended;
      }
      const { failure: { message: error }, thrown } = ended;
      execution.publish({
        type: "step:fail",
        ...stepFields,
        attempt,
        error,
        retryAt: isoTime(retry?.at ?? null),
        thrown,
      });
      if (retry === null) await this.#pauses.untilTurn(recordedNo);
      return { failure: ended.failure, retry: retry && { at: retry.at, dueAt: deps.host.monotonic() + retry.inMs } };
    } catch (error) {
      execution.noteRefusal(error);
      throw error;
    } finally {
      execution.executing.delete(name);
    }
  }

  /** Calls a step's function. What it throws after an interruption is not an outcome, and is rethrown. */
  async #perform(
    step: Attempted,
    attempt: number,
  ): Promise<{ text: JsonText | null } | { failure: Failure; thrown: unknown; delayMs: number | null }> {
    const { abortSignal } = this.#execution;
    const late = new AbortController();
    let value: unknown;
    try {
      value = await this.#call(step, attempt, late);
    } catch (error) {
      if (abortSignal.aborted) throw abortSignal.reason;
      const kind = late.signal.aborted && error === late.signal.reason ? "timeout" : "error";
      const delayMs = this.#delayAfter(error, step.retry, attempt);
      return { failure: describeFailure(error, kind), thrown: error, delayMs };
    }
    try {
      return { text: this.#execution.encode(value, `The result of step "${step.name}"`) };
    } catch (error) {
      return { failure: describeFailure(error), thrown: error, delayMs: null };
    }
  }

  /** @param late Fires when the attempt has exceeded its timeout. */
  async #call({ name, work, timeout }: Attempted, attempt: number, late: AbortController): Promise<unknown> {
    const { claim, deps, abortSignal } = this.#execution;
    const tools = { idempotencyKey: stepId(claim.originId, name), attempt };
    const call = (abortSignal: AbortSignal) =>
      deps.currentStep.run(name, async () => await work({ ...tools, abortSignal }));
    if (timeout === undefined) return await call(abortSignal);

    const { promise: timedOut, reject } = Promise.withResolvers<never>();
    const cancel = deps.host.schedule(timeout, () => {
      const error = new TimeoutError(`Step "${name}" took longer than ${timeout} ms`);
      late.abort(error);
      reject(error);
    });
    try {
      return await Promise.race([call(AbortSignal.any([abortSignal, late.signal])), timedOut]);
    } finally {
      cancel();
    }
  }

  #delayAfter(thrown: unknown, policy: RetryPolicy, attempts: number): number | null {
    if (isInstance(thrown, NonRetryableError) || attempts >= (policy.maxAttempts ?? 1)) return null;
    return retryAfter(thrown, this.#execution.deps.host) ?? retryDelay(policy, attempts, this.#execution.deps.host);
  }
}

function checkTimeout(timeout: number | undefined, name: string): void {
  if (timeout === undefined) return;
  checkDuration(timeout, `The timeout of step "${name}"`);
  if (timeout === 0 || timeout === Infinity) {
    throw new RangeError(`The timeout of step "${name}" must be positive and finite, not ${timeout}`);
  }
}
