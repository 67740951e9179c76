import { StepError } from "./error.ts";
import type { Failure, FailureKind } from "./failure.ts";
import { isInstance } from "./is_instance.ts";
import { cutBytes, tidyText } from "./text.ts";

const MAX_MESSAGE_LENGTH = 8_192;
const MAX_STACK_BYTES = 8_192;
// The total for an error and its causes.
const MAX_ERRORS = 5;

/** Describes any thrown value. Never throws. */
export function toFailure(thrown: unknown, kind: FailureKind = "error"): Failure {
  return describe(thrown, kind, []);
}

function describe(thrown: unknown, kind: FailureKind, outer: readonly unknown[]): Failure {
  // A run that fails because of a step keeps the failure recorded for the step.
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

/** Describes a value that was thrown, or given as a cause, and is not an `Error`. */
function describeOther(value: unknown, isCause: boolean): string {
  const isNothing = value === undefined || value === null;
  const what = isNothing ? `${value}` : `${/^[aeiou]/.test(typeof value) ? "An" : "A"} ${typeof value}`;
  const text = isNothing ? null : readText(() => JSON.stringify(value)) ?? readText(() => String(value));
  return `${what} was ${isCause ? "given as the cause" : "thrown"} instead of an Error${
    text === null ? "" : `: ${text}`
  }`;
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

/** The return value of a function; `null` if it throws. */
function read<T>(get: () => T): T | null {
  try {
    return get();
  } catch {
    return null;
  }
}
