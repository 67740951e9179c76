/**
 * Why something failed: `error`: something was thrown; `timeout`: the `timeout` of a step ended the attempt; `expired`:
 * a deadline passed; `abandoned`: workers claimed the run too often without recording anything.
 */
export type FailureKind = "error" | "timeout" | "expired" | "abandoned";

/** What is kept of something that was thrown. It stays in the process: clients are shown the message alone. */
export interface Failure {
  /** Why it failed. */
  kind: FailureKind;
  /** The error's `name`, cut after 8,192 characters. */
  name: string;
  /** The error's `message`, cut after 8,192 characters. Of something that is no `Error` it says what it was. */
  message: string;
  /** The error's `stack`, 8 KiB of it at most; `null` if there is none. */
  stack: string | null;
  /** What the error named as its `cause`, down to the fifth error; `null` if it named none. */
  cause: Failure | null;
}

/** The text of a failure for people: its message, or its name if it has none. */
export function failureText({ name, message }: Pick<Failure, "name" | "message">): string {
  return message === "" ? name : message;
}

/** All that is known of a failure, for a log: its stack, and those of its causes. */
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

/** An error that stands for one that was recorded, perhaps in another process. */
export function toError(failure: Failure): Error {
  const error = new Error(failure.message, causeOptions(failure));
  Object.defineProperty(error, "name", { value: failure.name, configurable: true, writable: true });
  setRecordedStack(error, failure);
  return error;
}

/** What an error that stands for a recorded one is made with, besides its message. */
export function causeOptions({ cause }: Failure): ErrorOptions {
  return cause === null ? {} : { cause: toError(cause) };
}

/** Where the error was made that was recorded, not where it was read. */
export function setRecordedStack(error: Error, { name, message, stack }: Failure): void {
  const value = stack ?? (message === "" ? name : `${name}: ${message}`);
  Object.defineProperty(error, "stack", { value, configurable: true, writable: true });
}
