import { SerializationError } from "../model/error.ts";
import { isInstance, kindOf, propertyOf } from "./unknown_values.ts";
import { byteLength, tidyText } from "./text.ts";

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
  : T extends bigint ? NotJson<"a bigint: store it as a string">
  : T extends symbol ? NotJson<"a symbol">
  : T extends (...args: never[]) => unknown ? NotJson<"a function">
  : T extends ReadonlyMap<unknown, unknown> ? NotJson<"a Map: store [...map], or Object.fromEntries(map)">
  : T extends ReadonlySet<unknown> ? NotJson<"a Set: store [...set]">
  : T extends readonly unknown[] ? { -readonly [K in keyof T]: JsonifyItem<T[K]> }
  : [MethodOf<T>] extends [never] ? { [K in keyof T as K extends symbol ? never : K]: Jsonify<T[K]> }
  : NotJson<`an object with the method ${MethodOf<T>}(): store its data`>;

/** The type of an array's item after the round trip: `undefined` is refused there. */
export type JsonifyItem<T> = T extends undefined ? NotJson<"undefined in an array: store null"> : Jsonify<T>;

/** The type of what cannot be stored as JSON. `Reason` says what it is: a step that returns it fails. */
export interface NotJson<Reason extends string> {
  /** Why it cannot be stored. There is never such a value. */
  readonly cannotBeStoredAsJson: Reason;
}

/** The names of the methods that an object of this type always has: it is an instance of a class, a `Response` for example. */
export type MethodOf<T> = {
  [K in keyof T]-?: undefined extends T[K] ? never : T[K] extends (...args: never[]) => unknown ? K & string : never;
}[keyof T];

/** The name of a value, for error messages, and its size limit. */
export interface EncodeOptions {
  /** Names the value in an error: `step "read"`. */
  subject: string;
  /** The maximum size of its JSON, in bytes of UTF-8. */
  maxBytes: number;
  /** Whether errors in it are written as texts: `TypeError: no such card`. Default: they are refused. */
  errorsAsText?: boolean;
}

/** How many levels of arrays and objects a value may have: deeper ones could overflow the stack of recursive code. */
export const MAX_JSON_DEPTH = 1_000;

/**
 * Writes a value as JSON, or throws if JSON would lose part of it.
 *
 * `undefined` itself becomes `null`, not a string. A member that is `undefined` is left out. The value is checked before it is written, and the check ends at the size limit: a refusal is cheap,
 * however large or deep the value is. `toJSON()` is called once; getters are called for the check and for the JSON.
 *
 * @throws {SerializationError} For what JSON would lose (a cycle, a `bigint`, a function, a symbol, `NaN`,
 * `Infinity`, an item that is `undefined`, an instance of a class without `toJSON()`), naming its path, and for a value that is too large or nested too deep.
 */
export function encode(value: unknown, options: EncodeOptions): JsonText | null {
  if (value === undefined) return null;
  const walk = new ValueWalk(options);
  try {
    const text = JSON.stringify(walk.toPlain(value));
    if (isLongerThan(text, options.maxBytes)) throw tooLarge(options);
    return text;
  } catch (cause) {
    throw cause instanceof SerializationError ? cause : walk.unreadable(cause);
  }
}

function tooLarge({ subject, maxBytes }: EncodeOptions): SerializationError {
  return new SerializationError(`${subject} is too large: its JSON takes more than ${maxBytes} bytes`);
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

/** Whether a stored value is a placeholder. */
export function isLarge(value: StoredValue): value is LargeText {
  return typeof value === "object" && value !== null;
}

/**
 * Parses a stored value for display: `undefined` becomes `null`.
 *
 * @throws {TypeError} It is a placeholder for a large value.
 */
export function parseValue(value: StoredValue): Json {
  if (isLarge(value)) throw new TypeError("A large value must be read separately");
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

/** An array or object whose members are being checked. */
interface Opened {
  value: Members;
  /** Members to replace by what their `toJSON()` has returned. */
  replaced: [name: string | number, plain: unknown][];
  /** The names of its members; `null` for an array. */
  names: readonly string[] | null;
  /** How many members it has, and how many of them were read. */
  size: number;
  read: number;
  /** What it is a member of, and at which level it is. */
  outer: Opened | null;
  level: number;
}

type Members = { [name: string | number]: unknown };

const MAX_PATH_LENGTH = 255;
const DATE_BYTES = '"1970-01-01T00:00:00.000Z"'.length;

/**
 * Checks a value before `JSON.stringify()` writes it.
 *
 * It counts the bytes that the JSON takes at least, and gives up at the limit, so that the JSON of what passes takes at
 * most a few times as many. A part that is found in several places is counted in each.
 */
class ValueWalk {
  readonly #options: EncodeOptions;
  #bytesLeft: number;
  /** Those that JSON leaves out take no bytes, but they take time. */
  #membersLeft: number;
  #opened: Opened | null = null;
  #plain: unknown;

  constructor(options: EncodeOptions) {
    this.#options = options;
    this.#bytesLeft = options.maxBytes;
    this.#membersLeft = options.maxBytes;
  }

  /** The value, or a copy in which the objects with a `toJSON()` are replaced. */
  toPlain(value: unknown): unknown {
    this.#plain = this.#take(value, "");
    if (this.#plain === undefined) throw this.#refusal("its toJSON() returns undefined");
    this.#checkSize();
    for (let opened = this.#opened; opened !== null; opened = this.#opened) this.#read(opened);
    return this.#plain;
  }

  /** Reads members up to one that has members itself: then that is the opened one. */
  #read(opened: Opened): void {
    const { value, names, size } = opened;
    while (opened.read < size) {
      const at = opened.read++;
      const name = names === null ? at : names[at]!;
      const member = value[name];
      const plain = this.#take(member, name);
      if (typeof name === "string") this.#bytesLeft -= plain === undefined ? 0 : name.length + 4;
      else if (plain === undefined) throw this.#refusalOf("undefined");
      else this.#bytesLeft -= 1;
      if (plain !== member) opened.replaced.push([name, plain]);
      this.#checkSize();
      if (this.#opened !== opened) return;
    }
    this.#close(opened);
  }

  #close({ value, names, replaced, outer }: Opened): void {
    this.#opened = outer;
    if (replaced.length === 0) return;
    const copy = (names === null ? Array.from(value as never) : { ...value }) as Members;
    for (const [name, plain] of replaced) copy[name] = plain;
    if (outer === null) this.#plain = copy;
    else outer.replaced.push([nameOf(outer), copy]);
  }

  /** @param isWritten Whether a `toJSON()` has returned it: JSON does not call another one. */
  #take(value: unknown, name: string | number, isWritten = false): unknown {
    switch (typeof value) {
      case "string":
        this.#bytesLeft -= value.length + 2;
        return value;
      case "number":
        if (!Number.isFinite(value)) throw this.#refusalOf(String(value));
        this.#bytesLeft -= (value | 0) === value ? 1 : 3;
        return value;
      case "boolean":
        this.#bytesLeft -= 4;
        return value;
      case "undefined":
        return undefined;
    }
    if (value === null) {
      this.#bytesLeft -= 4;
      return null;
    }
    const toJson = isWritten ? null : propertyOf(value, "toJSON");
    if (typeof toJson !== "function") return this.#open(value);
    if (value instanceof Date) {
      if (Number.isNaN(value.getTime())) throw this.#refusalOf("an invalid Date");
      if (toJson === Date.prototype.toJSON) {
        this.#bytesLeft -= DATE_BYTES;
        return value; // always the same string, which takes long to make
      }
    }
    return this.#take(toJson.call(value, String(name)), name, true);
  }

  #open(value: unknown): unknown {
    if (!isPlain(value)) {
      if (this.#options.errorsAsText && isInstance(value, Error)) return this.#take(String(value), "");
      throw this.#refusalOf(describe(value));
    }
    const level = (this.#opened?.level ?? 0) + 1;
    if (level > MAX_JSON_DEPTH) {
      throw this.#findCycle() ?? this.#refusal(`it is nested more than ${MAX_JSON_DEPTH} levels deep`);
    }
    const names = Array.isArray(value) ? null : Object.keys(value);
    const size = Array.isArray(value) ? value.length : names!.length;
    this.#bytesLeft -= size === 0 ? 2 : 1;
    this.#membersLeft -= size;
    if (size > 0) {
      this.#opened = { value: value as Members, replaced: [], names, size, read: 0, outer: this.#opened, level };
    }
    return value;
  }

  #checkSize(): void {
    if (this.#bytesLeft < 0 || this.#membersLeft < 0) throw this.#findCycle() ?? tooLarge(this.#options);
  }

  /** What is around the part that is read, from the outermost. */
  #around(): Opened[] {
    const around: Opened[] = [];
    for (let opened = this.#opened; opened !== null; opened = opened.outer) around.push(opened);
    return around.reverse();
  }

  /** The refusal if something is around itself. Every cycle reaches a limit: only then it is looked for. */
  #findCycle(): SerializationError | null {
    const around = this.#around();
    const seen = new Set<object>();
    const again = around.findIndex(({ value }) => seen.size === seen.add(value).size);
    return again === -1 ? null : this.#refusal(`a cycle at ${pathOf(around.slice(0, again))}`);
  }

  /** The refusal because a getter, a proxy or a `toJSON()` has thrown. */
  unreadable(cause: unknown): SerializationError {
    return this.#refusal(`a value at ${pathOf(this.#around())} that throws when read`, cause);
  }

  #refusalOf(part: string): SerializationError {
    return this.#refusal(`${part} at ${pathOf(this.#around())}`);
  }

  #refusal(reason: string, cause?: unknown): SerializationError {
    return new SerializationError(`${this.#options.subject} cannot be stored as JSON: ${reason}`, { cause });
  }
}

/** The member that was read last. */
function nameOf({ names, read }: Opened): string | number {
  return names === null ? read - 1 : names[read - 1]!;
}

function pathOf(around: readonly Opened[]): string {
  const names = around.map(nameOf).map((name) => typeof name === "number" ? `[${name}]` : `.${name}`);
  return tidyText(`$${names.join("")}`, MAX_PATH_LENGTH);
}

/** Whether JSON writes all of an array or object. Of an instance of a class it would lose at least the class. */
function isPlain(value: unknown): value is object {
  if (typeof value !== "object" || value === null) return false;
  if (Array.isArray(value)) return true;
  const prototype = Object.getPrototypeOf(value);
  // An object of another realm has another `Object.prototype`.
  return prototype === Object.prototype || prototype === null || Object.getPrototypeOf(prototype) === null;
}

/** Names what is not plain: `a Map`, `an instance of Point`. */
function describe(value: unknown): string {
  const kind = kindOf(value);
  const name = kind === "an object" ? propertyOf(propertyOf(value, "constructor"), "name") : null;
  return typeof name === "string" && name !== "" ? `an instance of ${name}` : kind;
}

/** Whether a string takes more than a number of bytes of UTF-8. */
export function isLongerThan(text: string, maxBytes: number): boolean {
  if (text.length > maxBytes) return true;
  if (text.length * 3 <= maxBytes) return false;
  return byteLength(text) > maxBytes;
}
