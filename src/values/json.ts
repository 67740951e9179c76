import { SerializationError } from "../error.ts";
import { kindOf } from "./kind_of.ts";
import { propertyOf } from "./property_of.ts";

/** A value that survives a round trip through JSON. */
export type Json =
  | null
  | boolean
  | number
  | string
  | Json[]
  | { [key: string]: Json };

/** A value written as JSON (RFC 8259). A `null` instead means `undefined`, which JSON cannot express. */
export type JsonText = string;

/** The type of a `T` after one round trip through JSON: a `Date` becomes a string, for example. */
export type Jsonify<T> = 0 extends 1 & T ? T // `any` stays `any`
  : unknown extends T ? unknown
  : T extends Json | undefined | void ? T
  : T extends { toJSON(...args: never[]): infer R } ? Jsonify<R>
  : T extends Unwritable ? never
  : T extends readonly unknown[] ? { -readonly [K in keyof T]: JsonifyItem<T[K]> }
  : T extends object ? { [K in keyof T as K extends symbol ? never : K]: Jsonify<T[K]> }
  : never;

/** The type of an array's item after the round trip: JSON writes `null` for `undefined`. */
export type JsonifyItem<T> = T extends undefined ? null : Jsonify<T>;

/** Types that JSON cannot express: {@linkcode Jsonify} makes these `never`. */
export type Unwritable =
  | bigint
  | symbol
  | ((...args: never[]) => unknown)
  | ReadonlyMap<unknown, unknown>
  | ReadonlySet<unknown>;

/** The name of a value, for error messages, and its size limit. */
export interface EncodeOptions {
  /** Names the value in an error: `step "read"`. */
  subject: string;
  /** The maximum size of its JSON, in bytes of UTF-8. */
  maxBytes: number;
}

/**
 * Writes a value as JSON, or throws if JSON would lose part of it.
 *
 * `undefined` itself becomes `null`, not a string. Inside a value it follows JSON: a member is left out, an item
 * becomes `null`.
 *
 * @throws {SerializationError} For what JSON would lose (a cycle, a `bigint`, a function, a symbol, `NaN`,
 * `Infinity`, a `Map` or the like), naming its path, and for a value that is too large.
 */
export function encode(value: unknown, options: EncodeOptions): JsonText | null {
  if (value === undefined) return null;
  const text = stringify(value, options.subject);
  if (isLongerThan(text, options.maxBytes)) {
    throw new SerializationError(
      `${options.subject} is too large: its JSON takes more than ${options.maxBytes} bytes`,
    );
  }
  return text;
}

/** Reads what {@linkcode encode} wrote. */
export function decode(text: JsonText | null): Json | undefined {
  return text === null ? undefined : JSON.parse(text);
}

/** Placeholder for a value that is too large to be read with its record. */
export interface LargeText {
  /** Marks the placeholder. */
  readonly isLarge: true;
}

/** A stored value: its JSON, or `null` for `undefined`. */
export type StoredValue = JsonText | LargeText | null;

/** A record with some values still as stored JSON. */
export type Stored<T, Values extends keyof T> = Omit<T, Values> & { [Name in Values]: StoredValue };

/**
 * Parses a stored value for display: `undefined` becomes `null`.
 *
 * @throws {TypeError} It is a placeholder for a large value.
 */
export function parseValue(value: StoredValue): Json {
  if (typeof value === "object" && value !== null) throw new TypeError("A large value must be read separately");
  return decode(value) ?? null;
}

/** Whether two values are equal as JSON, regardless of the order of object keys. */
export function isSameJson(left: Json, right: Json): boolean {
  return canonical(left) === canonical(right);
}

function canonical(value: Json): string {
  return JSON.stringify(
    value,
    (_key, item: Json) =>
      typeof item === "object" && item !== null && !Array.isArray(item)
        ? Object.fromEntries(Object.entries(item).sort(([a], [b]) => a < b ? -1 : 1))
        : item,
  );
}

function stringify(value: unknown, subject: string): JsonText {
  let text: string | undefined;
  try {
    text = JSON.stringify(value, function (this: Record<string, unknown>, key, item) {
      if (reasonToRefuse(item) !== null) throw new TypeError("refused");
      if (item === null && isInvalidDate(this[key])) throw new TypeError("refused");
      return item;
    });
  } catch (cause) {
    const culprit = findCulprit(value);
    throw new SerializationError(
      `${subject} cannot be stored as JSON: ${culprit ?? whyUnreadable(cause)}`,
      { cause },
    );
  }
  // JSON.stringify() returns `undefined` for an object whose `toJSON()` does.
  if (text === undefined) {
    throw new SerializationError(`${subject} cannot be stored as JSON: its toJSON() returns undefined`);
  }
  return text;
}

/** Each level of a value takes a part of the stack while it is written. */
function whyUnreadable(cause: unknown): string {
  return cause instanceof RangeError ? "it is nested too deep" : "reading it throws";
}

/** Kinds that JSON writes completely. Of others (a `Map`, an `Error`, a `Uint8Array`) it would lose something. */
const PLAIN_KINDS = new Set(["Object", "String", "Boolean"]);

function reasonToRefuse(value: unknown): string | null {
  switch (typeof value) {
    case "number":
      return Number.isFinite(value) ? null : String(value);
    case "bigint":
      return "a bigint";
    case "function":
      return "a function";
    case "symbol":
      return "a symbol";
    case "object": {
      if (value === null || Array.isArray(value)) return null;
      if (value instanceof Number) return reasonToRefuse(value.valueOf());
      const kind = Object.prototype.toString.call(value).slice("[object ".length, -1);
      return PLAIN_KINDS.has(kind) ? null : kindOf(value);
    }
    default:
      return null;
  }
}

/** Looks for the first part of a value that JSON would lose: `a Map at $.rows[2].byName`. */
function findCulprit(root: unknown): string | null {
  const pending: { value: unknown; path: string; ancestors: unknown[] }[] = [{ value: root, path: "$", ancestors: [] }];
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    const { path, ancestors } = next;
    let { value } = next;
    try {
      const toJson = propertyOf(value, "toJSON");
      if (isInvalidDate(value)) return `an invalid Date at ${path}`;
      if (typeof toJson === "function") value = toJson.call(value, path);
      const reason = reasonToRefuse(value);
      if (reason !== null) return `${reason} at ${path}`;
      if (typeof value !== "object" || value === null) continue;
      if (ancestors.includes(value)) return `a cycle at ${path}`;
      const inside = [...ancestors, value];
      const children = Object.entries(value).map(([key, child]) => ({
        value: child,
        path: Array.isArray(value) ? `${path}[${key}]` : `${path}.${key}`,
        ancestors: inside,
      }));
      pending.push(...children.reverse());
    } catch {
      return `a value at ${path} that throws when read`;
    }
  }
  return null;
}

function isInvalidDate(value: unknown): boolean {
  return value instanceof Date && Number.isNaN(value.getTime());
}

/** Whether a string takes more than a number of bytes of UTF-8. */
export function isLongerThan(text: string, maxBytes: number): boolean {
  if (text.length > maxBytes) return true;
  if (text.length * 3 <= maxBytes) return false;
  return new TextEncoder().encode(text).length > maxBytes;
}
