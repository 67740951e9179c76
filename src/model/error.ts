import { causeOptions, describeFailedRun, type Failure, failureText, setRecordedStack, toError } from "./failure.ts";
import { type Duration, toMs } from "../values/duration.ts";
import { readRetryAfter, type RetryDelay } from "../values/retry_after_header.ts";

/**
 * The reason for a refusal, for programs. The codes that a client of the HTTP handler can receive are listed in
 * `docs/reference/errors.md`; the others never leave the process.
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
  | "run_ended"
  | "wait_expired"
  | "stream_reset"
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

/** The base class of this package's errors: a message for people and a `code` for programs. */
export class HoldfastError extends Error {
  /** The reason, for programs. */
  readonly code: ErrorCode;

  /** Creates an error; `options.cause` is the error that led to it. */
  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
    this.name = new.target.name;
  }
}

/** One reason why a schema refused a value. */
export interface Issue {
  /** The path to the refused part of the value: object keys and array indexes, outermost first. */
  path: (string | number)[];
  /** What is wrong at that path. */
  message: string;
}

/** An input, an option or a request is not valid. */
export class ValidationError extends HoldfastError {
  /** What was refused: the message without the issues. */
  readonly summary: string;
  /** The issues that a schema reported, at most 20 and 8 KiB of JSON; empty if no schema was involved. */
  readonly issues: Issue[];
  /** How many further issues the schema reported. */
  readonly issuesLeftOut: number;

  /**
   * Creates the refusal of an input (by a schema) or of a request (by this package). The message is `summary`,
   * followed by the first issues.
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

/** The job, run or wait does not exist. */
export class NotFoundError extends HoldfastError {
  /** Creates a refusal whose message says what was not found. */
  constructor(message: string, options?: ErrorOptions) {
    super("not_found", message, options);
  }
}

/** The state of the run or the wait does not allow the operation. */
export class ConflictError extends HoldfastError {
  /** Creates a refusal whose message says which state prevents the operation. */
  constructor(message: string, options: ErrorOptions & { code?: "conflict" | "key_in_use" | "run_ended" } = {}) {
    super(options.code ?? "conflict", message, options);
  }
}

/** The deadline of the wait passed before any signal arrived. */
export class WaitExpiredError extends HoldfastError {
  /** Creates a refusal whose message names the wait. */
  constructor(message: string, options?: ErrorOptions) {
    super("wait_expired", message, options);
  }
}

/**
 * A step failed permanently. The error is built from the recorded failure, so a job sees the same error the first
 * time and on every replay: `name`, `message`, `stack` and `cause` are those of the error that the step's function
 * threw.
 */
export class StepError extends HoldfastError {
  /** The name of the step, with its occurrence (`fetch#2`). */
  readonly stepName: string;
  /** How many attempts were made. */
  readonly attempts: number;
  readonly #failure: Failure;

  /** Creates the error from a recorded failure. */
  constructor(failure: Failure, step: { name: string; attempts: number }) {
    super("step_failed", failure.message, causeOptions(failure));
    this.name = failure.name;
    this.stepName = step.name;
    this.attempts = step.attempts;
    this.#failure = failure;
    setRecordedStack(this, failure);
  }

  /** The recorded failure of the last attempt. */
  get failure(): Failure {
    return this.#failure;
  }
}

/**
 * The awaited run has failed. `cause` is the error that it failed with, built from the recorded failure. If it failed
 * because of a child, and that of another one, the message names the awaited run and the one that failed first.
 */
export class RunFailedError extends HoldfastError {
  /** The run that failed. */
  readonly runId: string;
  /** The name of its job. */
  readonly jobName: string;
  /** The step that failed, with its occurrence; `null` if no step did. */
  readonly stepName: string | null;

  /** Creates the error from a run's recorded failure. */
  constructor(run: { runId: string; jobName: string; stepName: string | null; failure: Failure }) {
    const { runId, jobName, stepName, failure } = run;
    super("run_failed", `${describeFailedRun(run)}: ${reasonOf(failure)}`, { cause: toError(failure) });
    this.runId = runId;
    this.jobName = jobName;
    this.stepName = stepName;
  }
}

// Descriptions of failed runs, of which another one follows.
const RUNS_BETWEEN = /^(?:Run "[^"]*" of job ".*?" failed(?: in step ".*?")?: )+(?=Run "[^"]*" of job ".*" failed)/s;

/** Why a run failed. If that is a child of a child, the runs between are left out: each would repeat the message. */
function reasonOf(failure: Failure): string {
  const text = failureText(failure);
  return failure.name === "RunFailedError" ? text.replace(RUNS_BETWEEN, "") : text;
}

/** The awaited run was cancelled. */
export class RunCancelledError extends HoldfastError {
  /** The run that was cancelled. */
  readonly runId: string;

  /** Creates the error for a cancelled run. */
  constructor(runId: string) {
    super("run_cancelled", `Run "${runId}" was cancelled`);
    this.runId = runId;
  }
}

/** Something took longer than its time limit. */
export class TimeoutError extends HoldfastError {
  /** Creates the error for an operation that exceeded its time limit. */
  constructor(message: string, options?: ErrorOptions) {
    super("timeout", message, options);
  }
}

/** A value cannot be stored: JSON would lose part of it, or it is too large. */
export class SerializationError extends HoldfastError {
  /** Creates a refusal whose message names the value and the path inside it. */
  constructor(message: string, options?: ErrorOptions) {
    super("invalid_input", message, options);
  }
}

/**
 * A step's function throws this when a retry cannot help: the step fails without further attempts.
 *
 * @example
 * ```ts
 * import { NonRetryableError, type StepContext } from "@holdfast/jobs";
 *
 * async function fetchRows(step: StepContext, url: string) {
 *   return await step.run("fetch", async ({ abortSignal }) => {
 *     const response = await fetch(url, { signal: abortSignal });
 *     if (response.status === 404) throw new NonRetryableError(`There is nothing at ${url}`);
 *     return await response.text();
 *   }, { retry: { maxAttempts: 5 } });
 * }
 * ```
 */
export class NonRetryableError extends HoldfastError {
  /** Creates an error that ends the attempts at a step. */
  constructor(message: string, options?: ErrorOptions) {
    super("non_retryable", message, options);
  }
}

/**
 * A step's function throws this to set the delay before the next attempt, instead of the retry policy. The policy
 * still limits the number of attempts.
 *
 * A member `retryAfter` (milliseconds) on any other error has the same effect.
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
   * Creates an error that sets the next delay.
   *
   * @param delay A duration, the instant of the next attempt, or the value of a `Retry-After` header (RFC 9110,
   * section 10.2.3): seconds or an HTTP-date. Any other value is ignored, so that it does not hide why the attempt
   * failed: the policy's delay then applies. An instant in the past is a delay of 0.
   */
  constructor(delay: Duration | Date | string, message = "Try again later", options?: ErrorOptions) {
    super("retry_after", message, options);
    this.#time = toRetryDelay(delay);
  }

  /** The delay from now, in milliseconds; `null` if the value that was given is not a valid delay. */
  get retryAfter(): number | null {
    return this.retryAfterFrom(Date.now());
  }

  /** The delay from an instant of your own clock, in milliseconds. */
  retryAfterFrom(now: number): number | null {
    if (this.#time === null) return null;
    return "at" in this.#time ? Math.max(0, this.#time.at - now) : this.#time.afterMs;
  }
}

function toRetryDelay(delay: unknown): RetryDelay | null {
  const ms = toMs(delay);
  if (typeof ms === "number") return ms >= 0 ? { afterMs: ms } : null;
  if (typeof delay === "string") return readRetryAfter(delay);
  const at = delay instanceof Date ? delay.getTime() : NaN;
  return Number.isNaN(at) ? null : { at };
}

/**
 * A write was refused, without any effect, because its lease is no longer the run's current one: the run was
 * cancelled, or another worker has claimed it.
 */
export class LeaseLostError extends HoldfastError {
  /** Creates the refusal of a write under a lease that is no longer current. */
  constructor(lease: { runId: string; generation: number }) {
    super("lease_lost", `Lease ${lease.generation} on run "${lease.runId}" is no longer the current one`);
  }
}

/** A transaction has failed, as a rule since its function has thrown: `cause` is why. It has committed nothing, unless the function itself has. */
export class WorkError extends HoldfastError {
  /** Creates the error of a transaction whose function has thrown. */
  constructor(cause: unknown) {
    super("internal", "The function of the transaction has thrown", { cause });
  }
}

/**
 * The store cannot answer now: it is busy, full, read-only, damaged or out of reach. The error says nothing about the
 * run or the step; the caller may try again.
 */
export class StoreError extends HoldfastError {
  /** Whether the write may have been committed despite the error. */
  readonly outcomeUnknown: boolean;

  /** Creates the error for a call that the store could not carry out. */
  constructor(
    message: string,
    options: ErrorOptions & { code?: "unavailable" | "internal"; outcomeUnknown?: boolean } = {},
  ) {
    super(options.code ?? "unavailable", message, options);
    this.outcomeUnknown = options.outcomeUnknown ?? false;
  }
}
