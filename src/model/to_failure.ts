import { StepError } from "./error.ts";
import type { Failure, FailureKind } from "./failure.ts";
import { isInstance } from "../values/unknown_values.ts";
import { encode } from "../values/json.ts";
import { byteLength, cutBytes, tidyText } from "../values/text.ts";

const MAX_MESSAGE_LENGTH = 8_192;
const MAX_STACK_BYTES = 8_192;
// Of all names, messages and stacks together.
const MAX_BYTES = 16_384;
// So many of them are left to the names and messages of the causes.
const LEFT_FOR_CAUSES = 2_048;
// The total for an error and its causes.
const MAX_ERRORS = 5;

/** Describes any thrown value. Never throws. */
export function toFailure(thrown: unknown, kind: FailureKind = "error"): Failure {
  return describe(thrown, kind, { outer: [], bytesLeft: MAX_BYTES, next: [] });
}

/** A failure without its stacks. */
export function withoutStacks({ cause, ...failure }: Failure): Failure {
  return { ...failure, stack: null, cause: cause === null ? null : withoutStacks(cause) };
}

/** What has been described already. */
interface Described {
  /** The errors of which this one is the cause. */
  outer: readonly unknown[];
  /** How many bytes their descriptions have left. */
  bytesLeft: number;
  /** Further errors of an `AggregateError` or a `SuppressedError`: they follow as causes. */
  next: readonly unknown[];
}

function describe(thrown: unknown, kind: FailureKind, { outer, bytesLeft, next }: Described): Failure {
  // A run that fails because of a step keeps the failure recorded for the step.
  const recorded = outer.length === 0 && isInstance(thrown, StepError) ? read(() => thrown.failure) : null;
  if (recorded !== null) return recorded;
  const causes = [...outer, thrown];
  if (!isInstance(thrown, Error)) {
    const message = cutBytes(describeOther(thrown, outer.length > 0), bytesLeft);
    const described = { outer: causes, bytesLeft: bytesLeft - byteLength(message), next: [] };
    const isLast = next.length === 0 || causes.length === MAX_ERRORS;
    const cause = isLast ? null : describe(next[0], "error", { ...described, next: next.slice(1) });
    return { kind, name: "Error", message, stack: null, cause };
  }
  const cut = (text: string | null, left = 0) => {
    const kept = text === null ? null : cutBytes(text, Math.max(0, bytesLeft - left));
    bytesLeft -= byteLength(kept ?? "");
    return kept;
  };
  const name = cut(readText(() => thrown.name)) ?? "Error";
  const message = cut(readText(() => thrown.message)) ?? "An error whose message cannot be read";
  const stack = cut(readStack(thrown), LEFT_FOR_CAUSES);
  const [cause = null, ...others] = next.length > 0 ? next : causesOf(thrown);
  const isLast = cause === null || causes.length === MAX_ERRORS || causes.includes(cause);
  return {
    kind,
    name,
    message,
    stack,
    cause: isLast ? null : describe(cause, "error", { outer: causes, bytesLeft, next: others }),
  };
}

/** What an error names as its cause; of an `AggregateError` or a `SuppressedError` without one, its errors, one after another. */
function causesOf(thrown: Error): unknown[] {
  const cause = read(() => thrown.cause) ?? null;
  if (cause !== null) return [cause];
  const errors = read(() => {
    const { errors, error, suppressed } = thrown as AggregateError & { error: unknown; suppressed: unknown };
    return "suppressed" in thrown ? [error, suppressed] : errors;
  });
  return Array.isArray(errors) ? read(() => errors.slice(0, MAX_ERRORS - 1)) ?? [] : [];
}

/** Describes a value that was thrown, or given as a cause, and is not an `Error`. */
function describeOther(value: unknown, isCause: boolean): string {
  const isNothing = value === undefined || value === null;
  const what = isNothing ? `${value}` : `${/^[aeiou]/.test(typeof value) ? "An" : "A"} ${typeof value}`;
  const text = isNothing ? null : readText(() => encode(value, { subject: what, maxBytes: MAX_BYTES })) ??
    readText(() => Array.isArray(value) ? null : String(value)); // of an array that would be all of its items
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
