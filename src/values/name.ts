import { ValidationError } from "../model/error.ts";
import type { Labels } from "../model/run.ts";

const MAX_LENGTH = 255;

/** The rule of {@linkcode isName}, for messages. */
export const NAME_RULE = ruleOf(MAX_LENGTH);

/** Whether a string can be a name or a key: 1 to 255 characters, well-formed Unicode, no control characters. */
export function isName(text: unknown): text is string {
  return typeof text === "string" && text.length > 0 && text.length <= MAX_LENGTH &&
    text.isWellFormed() && !/\p{Cc}/u.test(text);
}

/**
 * Checks a name or a key that came from outside.
 *
 * @param maxLength The maximum number of characters, up to 255.
 * @throws {ValidationError} It is not valid; the message begins with `subject`.
 */
export function checkName(text: unknown, subject: string, maxLength = MAX_LENGTH): asserts text is string {
  if (isName(text) && text.length <= maxLength) return;
  throw new ValidationError(`${subject} ${ruleOf(maxLength)}`);
}

/** The rule of a name of up to so many characters, for messages. */
export function ruleOf(maxLength: number): string {
  return `must be a string of 1 to ${maxLength} characters, well-formed and without control characters`;
}

/** The name of a step or a pause as its job gives it: `charge` for `charge#2`. */
export function withoutOccurrence(name: string): string {
  return name.replace(/#\d+$/, "");
}

/** The maximum number of labels of a run. */
export const MAX_LABELS = 64;
const LABEL_KEY = /^[A-Za-z0-9\-_./]{1,63}$/;

/** Whether a value can be the key of a label: 1 to 63 characters of `A-Za-z0-9-_./`. */
export function isLabelKey(key: unknown): boolean {
  return typeof key === "string" && LABEL_KEY.test(key);
}

/** Whether a value can be the value of a label: a name, or empty. */
export function isLabelValue(value: unknown): boolean {
  return value === "" || isName(value);
}

/**
 * Checks the labels of a run and copies them, so that the caller cannot change them later.
 *
 * @throws {ValidationError} More than 64 labels, or one that {@linkcode copyLabels} refuses.
 */
export function checkLabels(labels: unknown): Labels {
  const copy = copyLabels(labels);
  if (Object.keys(copy).length > MAX_LABELS) throw new ValidationError(`A run has at most ${MAX_LABELS} labels`);
  return copy;
}

/**
 * Checks and copies any number of labels.
 *
 * @throws {ValidationError} Not a plain object, a key that is not 1 to 63 characters of `A-Za-z0-9-_./`, or a value
 * that is not a well-formed string of up to 255 characters without control characters.
 */
export function copyLabels(labels: unknown): Labels {
  if (!isPlainObject(labels)) throw new ValidationError("labels must be an object of strings");
  const entries = Object.entries(labels);
  for (const [key, value] of entries) {
    if (!isLabelKey(key)) {
      throw new ValidationError(`A label's key must be 1 to 63 characters of A-Za-z0-9-_./`);
    }
    if (!isLabelValue(value)) {
      throw new ValidationError(
        `The value of label "${key}" must be a string of up to ${MAX_LENGTH} characters, well-formed and without control characters`,
      );
    }
  }
  // fromEntries() makes own properties of all keys, `__proto__` included.
  return Object.freeze(Object.fromEntries(entries));
}

/** Rejects a Map or an object with inherited properties: copying its own properties would lose them. */
function isPlainObject(value: unknown): value is object {
  if (typeof value !== "object" || value === null) return false;
  const prototype = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}
