import {
  causeOptions,
  describeFailedRun,
  type Failure,
  type FailureKind,
  failureText,
  setRecordedStack,
  toError,
} from "./failure.ts";
import { readRetryAfter, type RetryDelay } from "./retry_after.ts";
import { cutBytes, tidyText } from "./text.ts";

/**
 * The reason of a refusal, for programs. Those that a client of the HTTP handler can meet are listed in the
 * README; the others stay in the process.
 */
export type ErrorCode =
  | "invalid_request"
  | "invalid_input"
  | "forbidden"
  | "cross_origin"
  | "not_found"
  | "method_not_allowed"
  | "body_timeout"
  | "conflict"
  | "key_in_use"
  | "wait_expired"
  | "body_too_large"
  | "unsupported_encoding"
  | "unknown_host"
  | "too_many_streams"
  | "internal"
  | "unavailable"
  | "lease_lost"
  | "step_failed"
  | "run_failed"
  | "run_cancelled"
  | "timeout"
  | "non_retryable"
  | "retry_after";

/** What every error of this package is: a message for people and a `code` for programs. */
export class HoldfastError extends Error {
  /** The reason, for programs. */
  readonly code: ErrorCode;

  /** Makes an error with a reason; `options.cause` is the error behind it. */
  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
    this.name = new.target.name;
  }
}

/** One thing that a schema refused. */
export interface Issue {
  /** Where in the value: keys and positions from the outside in. */
  path: (string | number)[];
  /** What is wrong there. */
  message: string;
}

/** What was handed in does not have the form that is asked for. */
export class ValidationError extends HoldfastError {
  /** What was refused: the message without the issues. */
  readonly summary: string;
  /** What a schema refused, at most 20 entries and 8 KiB of JSON; empty if no schema was asked. */
  readonly issues: Issue[];
  /** How many more issues the schema had. */
  readonly issuesLeftOut: number;

  /**
   * Makes a refusal of an input (by a schema) or of a request (by this package). The message is `summary` and the first
   * of the issues.
   */
  constructor(
    summary: string,
    options: ErrorOptions & {
      code?: "invalid_input" | "invalid_request";
      issues?: Issue[];
      issuesLeftOut?: number;
    } = {},
  ) {
    const { code = "invalid_request", issues = [], issuesLeftOut = 0 } = options;
    super(code, describeRefusal(summary, issues, issuesLeftOut), options);
    this.summary = summary;
    this.issues = issues;
    this.issuesLeftOut = issuesLeftOut;
  }
}

// A message is read by people.
const MAX_DESCRIBED_ISSUES = 5;

function describeRefusal(summary: string, issues: readonly Issue[], issuesLeftOut: number): string {
  if (issues.length === 0) return summary;
  const described = issues.slice(0, MAX_DESCRIBED_ISSUES);
  const texts = described.map(({ path, message }) => path.length === 0 ? message : `${path.join(".")}: ${message}`);
  const left = issues.length - described.length + issuesLeftOut;
  return `${summary}: ${[...texts, ...(left === 0 ? [] : [`and ${left} more`])].join("; ")}`;
}

/** There is no such job, run or wait. */
export class NotFoundError extends HoldfastError {
  /** Makes a refusal that says what was looked for. */
  constructor(message: string, options?: ErrorOptions) {
    super("not_found", message, options);
  }
}

/** The state of the run or the wait does not allow it. */
export class ConflictError extends HoldfastError {
  /** Makes a refusal that says how things stand. */
  constructor(message: string, options: ErrorOptions & { code?: "conflict" | "key_in_use" } = {}) {
    super(options.code ?? "conflict", message, options);
  }
}

/** The deadline of the wait passed before any signal came. */
export class WaitExpiredError extends HoldfastError {
  /** Makes a refusal that names the wait. */
  constructor(message: string, options?: ErrorOptions) {
    super("wait_expired", message, options);
  }
}

/**
 * A step failed for good. It is built from what was recorded, so a job sees the same error the first time and
 * on every replay: `name`, `message`, `stack` and `cause` are those of the error that the step's function threw.
 */
export class StepError extends HoldfastError {
  /** The name of the step, with its occurrence (`fetch#2`). */
  readonly stepName: string;
  /** How many attempts ended. */
  readonly attempts: number;
  readonly #failure: Failure;

  /** Makes the error of a recorded failure. */
  constructor(failure: Failure, step: { name: string; attempts: number }) {
    super("step_failed", failure.message, causeOptions(failure));
    this.name = failure.name;
    this.stepName = step.name;
    this.attempts = step.attempts;
    this.#failure = failure;
    setRecordedStack(this, failure);
  }

  /** What was recorded of the last attempt. */
  get failure(): Failure {
    return this.#failure;
  }
}

/** The run that was waited for has failed. `cause` is what it failed of, built from what was recorded. */
export class RunFailedError extends HoldfastError {
  /** The run that failed. */
  readonly runId: string;
  /** The name of its job. */
  readonly jobName: string;
  /** The step that failed, with its occurrence; `null` if no step did. */
  readonly stepName: string | null;

  /** Makes the error of a failed run. */
  constructor(run: { runId: string; jobName: string; stepName: string | null; failure: Failure }) {
    const { runId, jobName, stepName, failure } = run;
    super("run_failed", `${describeFailedRun(run)}: ${failureText(failure)}`, { cause: toError(failure) });
    this.runId = runId;
    this.jobName = jobName;
    this.stepName = stepName;
  }
}

/** The run that was waited for was cancelled. */
export class RunCancelledError extends HoldfastError {
  /** The run that was cancelled. */
  readonly runId: string;

  /** Makes the error of a cancelled run. */
  constructor(runId: string) {
    super("run_cancelled", `Run "${runId}" was cancelled`);
    this.runId = runId;
  }
}

/** Something took longer than it was given. */
export class TimeoutError extends HoldfastError {
  /** Makes the error of a wait that was given up. */
  constructor(message: string, options?: ErrorOptions) {
    super("timeout", message, options);
  }
}

/** A value cannot be kept: JSON would lose part of it, or it is too large. */
export class SerializationError extends HoldfastError {
  /** Makes a refusal that names the value and the path inside it. */
  constructor(message: string, options?: ErrorOptions) {
    super("invalid_input", message, options);
  }
}

/** Thrown by a step's function: trying again will not help. */
export class NonRetryableError extends HoldfastError {
  /** Makes an error that ends the attempts at a step. */
  constructor(message: string, options?: ErrorOptions) {
    super("non_retryable", message, options);
  }
}

/**
 * Thrown by a step's function: try again after this delay, instead of the policy's. The policy still says how
 * many attempts there are.
 *
 * The member `retryAfter` of any other error, a number of milliseconds, does the same.
 *
 * @example
 * ```ts
 * import { RetryAfterError, type StepContext } from "@holdfast/jobs";
 *
 * async function fetchRows(step: StepContext, url: string) {
 *   return await step.run("fetch", async ({ abortSignal }) => {
 *     const response = await fetch(url, { signal: abortSignal });
 *     const header = response.headers.get("retry-after");
 *     if (response.status === 429 && header !== null) throw new RetryAfterError(header);
 *     return await response.text();
 *   }, { retry: { maxAttempts: 5 } });
 * }
 * ```
 */
export class RetryAfterError extends HoldfastError {
  readonly #time: RetryDelay | null;

  /**
   * Makes an error that sets the next delay.
   *
   * @param delay Milliseconds, the instant of the next attempt, or the value of a `Retry-After` header (RFC 9110, section
   * 10.2.3): seconds or an HTTP-date. What is none of these is ignored, rather than hiding why the attempt failed: the
   * delay is then that of the policy. An instant in the past is a delay of 0.
   */
  constructor(delay: number | Date | string, message = "Try again later", options?: ErrorOptions) {
    super("retry_after", message, options);
    this.#time = toRetryDelay(delay);
  }

  /** The delay from now, in milliseconds; `null` if it was given as something else than a delay. */
  get retryAfter(): number | null {
    return this.retryAfterFrom(Date.now());
  }

  /** The delay from another instant, in milliseconds: that of a clock of your own. */
  retryAfterFrom(now: number): number | null {
    if (this.#time === null) return null;
    return "at" in this.#time ? Math.max(0, this.#time.at - now) : this.#time.afterMs;
  }
}

function toRetryDelay(delay: unknown): RetryDelay | null {
  if (typeof delay === "string") return readRetryAfter(delay);
  if (typeof delay === "number") return delay >= 0 ? { afterMs: delay } : null;
  const at = delay instanceof Date ? delay.getTime() : NaN;
  return Number.isNaN(at) ? null : { at };
}

/**
 * A write named a lease that is no longer the run's current one, and was refused without a trace: the run was
 * cancelled, or another worker has taken it over.
 */
export class LeaseLostError extends HoldfastError {
  /** Makes the refusal of a write by a former holder. */
  constructor(lease: { runId: string; generation: number }) {
    super("lease_lost", `Lease ${lease.generation} on run "${lease.runId}" is no longer the current one`);
  }
}

/**
 * The store cannot answer now: it is busy, full, read-only, damaged or out of reach. It says nothing about the
 * run or the step; whoever was writing may try again.
 */
export class StoreError extends HoldfastError {
  /** Whether the write may have been committed all the same. */
  readonly outcomeUnknown: boolean;

  /** Makes the error of a call that the store could not carry out. */
  constructor(
    message: string,
    options: ErrorOptions & { code?: "unavailable" | "internal"; outcomeUnknown?: boolean } = {},
  ) {
    super(options.code ?? "unavailable", message, options);
    this.outcomeUnknown = options.outcomeUnknown ?? false;
  }
}

const MAX_MESSAGE_LENGTH = 8_192;
const MAX_STACK_BYTES = 8_192;
// An error and its causes, taken together.
const MAX_ERRORS = 5;

/** Describes anything that was thrown, however odd: never throws itself. */
export function describeFailure(thrown: unknown, kind: FailureKind = "error"): Failure {
  return describe(thrown, kind, []);
}

function describe(thrown: unknown, kind: FailureKind, outer: readonly unknown[]): Failure {
  // A run that fails of a step keeps what was recorded of the step.
  const recorded = outer.length === 0 && isInstance(thrown, StepError) ? read(() => thrown.failure) : null;
  if (recorded !== null) return recorded;
  if (!isInstance(thrown, Error)) {
    return { kind, name: "Error", message: describeOther(thrown, outer.length > 0), stack: null, cause: null };
  }
  const causes = [...outer, thrown];
  const cause = read(() => thrown.cause) ?? null;
  const isLast = cause === null || causes.length === MAX_ERRORS || causes.includes(cause);
  return {
    kind,
    name: readText(() => thrown.name) ?? "Error",
    message: readText(() => thrown.message) ?? "An error whose message cannot be read",
    stack: readStack(thrown),
    cause: isLast ? null : describe(cause, "error", causes),
  };
}

/** Says what was thrown instead of an error, or given as the cause of one. */
function describeOther(value: unknown, isCause: boolean): string {
  const isNothing = value === undefined || value === null;
  const what = isNothing ? `${value}` : `${/^[aeiou]/.test(typeof value) ? "An" : "A"} ${typeof value}`;
  const text = isNothing ? null : readText(() => JSON.stringify(value)) ?? readText(() => String(value));
  return `${what} was ${isCause ? "given as the cause" : "thrown"} instead of an Error${
    text === null ? "" : `: ${text}`
  }`;
}

/** Whether something is an instance of a class. Never throws, as `instanceof` may for a proxy. */
export function isInstance<T>(value: unknown, type: abstract new (...parameters: never[]) => T): value is T {
  try {
    return value instanceof type;
  } catch {
    return false;
  }
}

function readText(get: () => unknown): string | null {
  return readString(get, (text) => tidyText(text, MAX_MESSAGE_LENGTH));
}

function readStack(error: Error): string | null {
  return readString(() => error.stack, (stack) => cutBytes(tidyText(stack, MAX_STACK_BYTES), MAX_STACK_BYTES));
}

function readString(get: () => unknown, tidy: (text: string) => string): string | null {
  const text = read(get);
  return typeof text === "string" ? tidy(text) : null;
}

/** What a function answers; `null` if it throws. */
function read<T>(get: () => T): T | null {
  try {
    return get();
  } catch {
    return null;
  }
}
