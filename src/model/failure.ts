/**
 * Why a run or a step failed: `error`: its function threw; `timeout`: the `timeout` of a step ended the attempt, or the
 * run did not end within its `finishWithin`; `expired`: the run did not start within its `startWithin`; `abandoned`:
 * workers claimed the run too often without recording anything.
 */
export type FailureKind = "error" | "timeout" | "expired" | "abandoned";

/** Every kind of failure. */
export const FAILURE_KINDS: readonly FailureKind[] = ["error", "timeout", "expired", "abandoned"];

/** The stored description of a thrown value. It never leaves the process: clients see only the message. */
export interface Failure {
  /** Why it failed. */
  kind: FailureKind;
  /** The error's `name`, cut after 8,192 characters. */
  name: string;
  /** The error's `message`, cut after 8,192 characters. If the value was not an `Error`, it describes the value. */
  message: string;
  /** The error's `stack`, 8 KiB of it at most; `null` if there is none. */
  stack: string | null;
  /**
   * What the error named as its `cause`, down to the fifth error; `null` if it named none. Of an `AggregateError` without a
   * cause it is the first of its errors, whose cause is the second, up to the fourth. All names, messages and stacks
   * together take 16 KiB at most.
   */
  cause: Failure | null;
  /** Of an attempt at a step that can be repeated: how many attempts its retry policy allows. */
  maxAttempts?: number;
}

/** A one-line description of a failure: its message, or its name if the message is empty. */
export function failureText({ name, message }: Pick<Failure, "name" | "message">): string {
  return message === "" ? name : message;
}

/** The full description of a failure for a log: its stack and those of its causes. */
export function failureReport({ name, message, stack, cause }: Failure): string {
  const title = name === "Error" || message === "" ? failureText({ name, message }) : `${name}: ${message}`;
  const own = stack === null ? title : stack.includes(message) ? stack : `${title}\n${stack}`;
  return cause === null ? own : `${own}\nCaused by: ${failureReport(cause)}`;
}

/** Says which run failed, and in which step. */
export function describeFailedRun(run: { runId: string; jobName: string; stepName: string | null }): string {
  const where = run.stepName === null ? "" : ` in step "${run.stepName}"`;
  return `Run "${run.runId}" of job "${run.jobName}" failed${where}`;
}

/** Rebuilds an error from its record, which another process may have written. */
export function toError(failure: Failure): Error {
  const error = new Error(failure.message, causeOptions(failure));
  Object.defineProperty(error, "name", { value: failure.name, configurable: true, writable: true });
  setRecordedStack(error, failure);
  return error;
}

/** The options to rebuild a recorded error with, besides its message. */
export function causeOptions({ cause }: Failure): ErrorOptions {
  return cause === null ? {} : { cause: toError(cause) };
}

/** Sets the recorded stack: where the error was thrown, not where it was rebuilt. */
export function setRecordedStack(error: Error, { name, message, stack }: Failure): void {
  const value = stack ?? (message === "" ? name : `${name}: ${message}`);
  Object.defineProperty(error, "stack", { value, configurable: true, writable: true });
}

/** Why a run failed that missed a deadline of its own: `startWithin` (`expired`) or `finishWithin` (`timeout`). */
export function deadlineFailure(kind: Extract<FailureKind, "expired" | "timeout">, withinMs: number): Failure {
  const message = kind === "expired"
    ? `The run did not start within ${withinMs} ms after it was due (startWithin)`
    : `The run did not end within ${withinMs} ms after its start (finishWithin)`;
  return { kind, name: kind === "expired" ? "Error" : "TimeoutError", message, stack: null, cause: null };
}
