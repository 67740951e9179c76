import { describeFailure, type Failure, SerializationError, StepError } from "../error.ts";
import type { StepContext, StepTools } from "../job.ts";
import { decode, type Json, type JsonText } from "../json.ts";
import type { LogLevel } from "../log.ts";
import { stepId, type StepRecord } from "../step.ts";
import { tidyText } from "../text.ts";
import type { Execution } from "./execution.ts";
import { persist } from "./persist.ts";
import { Replay } from "./replay.ts";
import { StepNames } from "./step_names.ts";

type Work = (tools: StepTools) => unknown;

/** What a job's function works with: answers what was recorded, and executes and records what was not. */
export function stepContext(execution: Execution): StepContext {
  const steps = new Steps(execution);
  const { claim, abortSignal } = execution;
  const log = (level: LogLevel) => (message: string, data?: unknown) => steps.log(level, message, data);
  return {
    runId: claim.run.id,
    execution: claim.execution,
    abortSignal,
    run: <T>(name: string, work: (tools: StepTools) => T | Promise<T>) =>
      // What was recorded has the type that the function returns: it is the same step.
      settleQuietly(steps.run(name, work)) as ReturnType<StepContext["run"]> as never,
    progress: (current, total, message) => steps.progress(current, total, message),
    log: { info: log("info"), warn: log("warn"), error: log("error") },
  };
}

/** A failed step that nobody awaits must not end the process. */
function settleQuietly<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {});
  return promise;
}

class Steps {
  readonly #execution: Execution;
  readonly #names = new StepNames();
  readonly #recorded: Map<string, StepRecord>;
  readonly #replay: Replay;
  #nextIndex: number;

  constructor(execution: Execution) {
    const { claim: { steps }, deps: { host } } = execution;
    this.#execution = execution;
    this.#recorded = new Map(steps.map((step) => [step.name, step]));
    this.#replay = new Replay(steps.map((step) => step.recordedNo), host);
    this.#nextIndex = steps.reduce((next, { index }) => Math.max(next, index + 1), 0);
  }

  async run(givenName: string, work: Work): Promise<Json | undefined> {
    const outer = this.#execution.deps.currentStep.getStore();
    if (outer !== undefined) {
      throw new TypeError(`Step "${givenName}" cannot begin inside the function of step "${outer}"`);
    }
    this.#execution.throwIfOver();
    const name = this.#names.begin(givenName);
    try {
      const recorded = this.#recorded.get(name);
      return recorded === undefined ? await this.#execute(name, work) : await this.#answer(recorded);
    } finally {
      this.#names.end(givenName);
    }
  }

  async #answer({ name, attempts, result, recordedNo }: StepRecord): Promise<Json | undefined> {
    await this.#replay.deliver(recordedNo);
    if (result.status === "completed") return decode(result.output);
    throw new StepError(result.failure, { name, attempts });
  }

  async #execute(name: string, work: Work): Promise<Json | undefined> {
    const execution = this.#execution;
    this.#replay.end();
    // Nothing new begins while the engine stops: the interruption that is to come ends this.
    if (execution.isStopping) await execution.unlessInterrupted(new Promise<never>(() => {}));
    const attempt = execution.track(this.#attempt(name, work));
    return await execution.unlessInterrupted(attempt);
  }

  /** Executes a step and records how it ended. Goes on when the run is interrupted: its result may still count. */
  async #attempt(name: string, work: Work): Promise<Json | undefined> {
    const execution = this.#execution;
    const { claim, deps } = execution;
    const step = { name, index: this.#nextIndex++, attempts: 1, startedAt: deps.host.now() };
    const since = deps.host.monotonic();
    execution.executing.set(name, step);
    execution.publish({ type: "step:start", stepName: name, stepIndex: step.index, attempt: step.attempts });
    try {
      const ended = await this.#perform(name, work);
      const result = "failure" in ended
        ? { status: "failed" as const, failure: ended.failure }
        : { status: "completed" as const, output: ended.text };
      await persist(
        () => deps.store.saveStep(claim.lease, { ...step, result }, execution.progress),
        deps,
        execution.abortSignal,
      );
      const told = { stepName: name, stepIndex: step.index };
      if ("failure" in ended) {
        const { message } = ended.failure;
        execution.publish({ type: "step:fail", ...told, attempt: step.attempts, error: message, retryAt: null });
        throw new StepError(ended.failure, step);
      }
      const output = decode(ended.text);
      const duration = Math.round(deps.host.monotonic() - since);
      execution.publish({ type: "step:complete", ...told, output: output ?? null, duration });
      return output;
    } catch (error) {
      execution.noteRefusal(error);
      throw error;
    } finally {
      execution.executing.delete(name);
    }
  }

  /** Calls a step's function. What it throws after an interruption is no outcome, and is thrown on. */
  async #perform(name: string, work: Work): Promise<{ text: JsonText | null } | { failure: Failure }> {
    const { claim, deps, abortSignal } = this.#execution;
    try {
      const tools = { abortSignal, idempotencyKey: stepId(claim.run.id, name), attempt: 1 };
      const value = await deps.currentStep.run(name, () => work(tools));
      return { text: this.#execution.encode(value, `The result of step "${name}"`) };
    } catch (error) {
      if (this.#execution.isInterrupted && !(error instanceof SerializationError)) throw abortSignal.reason;
      return { failure: describeFailure(error) };
    }
  }

  progress(current: number, total?: number, message?: string): void {
    for (const number of [current, total]) {
      if (number !== undefined && !Number.isFinite(number)) {
        throw new RangeError(`Progress must be finite numbers, not ${number}`);
      }
    }
    if (this.#isSilent()) return;
    this.#execution.setProgress({
      current,
      ...(total === undefined ? {} : { total }),
      ...(message === undefined ? {} : { message: tidyText(String(message), MAX_MESSAGE_LENGTH) }),
    });
  }

  log(level: LogLevel, message: string, data: unknown): void {
    if (this.#isSilent()) return;
    this.#execution.publish({
      type: "log:write",
      stepName: this.#execution.deps.currentStep.getStore() ?? null,
      level,
      message: tidyText(String(message), MAX_LOG_LENGTH),
      data: this.#logData(data),
    });
  }

  /** A log line must not fail a run: data that cannot be kept says so instead. */
  #logData(data: unknown): Json {
    try {
      return decode(this.#execution.encode(data, "The data of this line")) ?? null;
    } catch (error) {
      return { error: describeFailure(error).message };
    }
  }

  /** What a replay passes was told before; what comes after an interruption is no longer true. */
  #isSilent(): boolean {
    return this.#replay.isUnderWay || this.#execution.isOver;
  }
}

const MAX_MESSAGE_LENGTH = 1_024;
const MAX_LOG_LENGTH = 8_192;
