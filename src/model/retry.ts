import { RetryAfterError } from "./error.ts";
import { isInstance, propertyOf } from "../values/unknown_values.ts";
import type { Host } from "./host.ts";
import { type Duration, readDuration, toMs } from "../values/duration.ts";
import { checkOptionNames, namesOf } from "../values/option_names.ts";

/**
 * A retry policy: how often and when a failed step is retried.
 *
 * An error sets the next delay itself if it is a {@linkcode RetryAfterError}, or if it has a member `retryAfter`: a
 * number of milliseconds. A {@linkcode NonRetryableError} ends the attempts.
 */
export interface RetryPolicy {
  /** The maximum number of attempts, the first one included. Default 1. */
  maxAttempts?: number;
  /** How long to wait before the second attempt. Default: 1 second. */
  delay?: Duration;
  /** Whether each further delay is the same, or twice as long as the one before. Default `fixed`. */
  backoff?: "fixed" | "exponential";
  /** The longest delay. Default: no limit. */
  maxDelay?: Duration;
  /**
   * The random part of a delay, so that steps that failed together are not retried together: from 0 (none) to 1
   * (all); `true` is 0.5. Jitter only shortens delays. Default 0.
   */
  jitter?: boolean | number;
}

const RETRY_OPTIONS = namesOf<keyof RetryPolicy>()("maxAttempts delay backoff maxDelay jitter");

/**
 * Checks a policy, when a job is defined and when a step begins.
 *
 * @param of Names its owner in an error: ` of step "read"`.
 * @throws {TypeError} It has an unknown member.
 * @throws {RangeError} A number is out of range.
 */
export function checkRetryPolicy(policy: RetryPolicy, of = ""): void {
  checkOptionNames(policy, RETRY_OPTIONS, "retry");
  const { maxAttempts = 1, delay = 0, backoff = "fixed", maxDelay = Infinity, jitter = 0 } = policy;
  if (!Number.isInteger(maxAttempts) || maxAttempts < 1) {
    throw new RangeError(`retry.maxAttempts${of} must be a positive integer, not ${maxAttempts}`);
  }
  if (readDuration(delay, `retry.delay${of}`) === Infinity) {
    throw new RangeError(`retry.delay${of} must be a finite number of milliseconds, not ${delay}`);
  }
  if (backoff !== "fixed" && backoff !== "exponential") {
    throw new RangeError(`retry.backoff${of} must be "fixed" or "exponential", not ${backoff}`);
  }
  readDuration(maxDelay, `retry.maxDelay${of}`);
  if (!(Number(jitter) >= 0 && Number(jitter) <= 1)) {
    throw new RangeError(`retry.jitter${of} must be from 0 to 1, not ${jitter}`);
  }
}

/** The delay after a number of attempts, in whole milliseconds. */
export function retryDelay(policy: RetryPolicy, attempts: number, host: Pick<Host, "random">): number {
  const { backoff = "fixed", jitter = 0 } = policy;
  const delay = readDuration(policy.delay ?? 1_000, "retry.delay");
  const maxDelay = readDuration(policy.maxDelay ?? Infinity, "retry.maxDelay");
  // The factor is limited too: 0 times infinity would be NaN.
  const grown = backoff === "exponential" ? delay * Math.min(2 ** (attempts - 1), MAX_DELAY_MS) : delay;
  const randomPart = jitter === true ? 0.5 : Number(jitter);
  const longest = Math.min(grown, maxDelay, MAX_DELAY_MS);
  return Math.round(longest * (1 - randomPart * host.random()));
}

// Some hundred years: an instant after this delay is still a valid date.
const MAX_DELAY_MS = 2 ** 42;

/** The next delay according to the error's member `retryAfter`, in milliseconds; `null` without a valid one. */
export function retryAfter(thrown: unknown, host: Pick<Host, "now">): number | null {
  try {
    const value = isInstance(thrown, RetryAfterError)
      ? thrown.retryAfterFrom(host.now())
      : toMs(propertyOf(thrown, "retryAfter"));
    return typeof value === "number" && value >= 0 ? Math.min(Math.ceil(value), MAX_DELAY_MS) : null;
  } catch {
    return null;
  }
}

/** Whether an error ends the attempts at a step: a `NonRetryableError`, perhaps that of another copy of this package. */
export function isNonRetryable(thrown: unknown): boolean {
  try {
    return propertyOf(thrown, "code") === "non_retryable";
  } catch {
    return false;
  }
}
