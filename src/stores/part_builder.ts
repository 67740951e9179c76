import { isLongerThan, type LargeText, type StoredValue } from "../values/json.ts";
import type { Part } from "../store/run_query.ts";

/** A value with more bytes of JSON is not read with its record. */
export const LARGE_VALUE_BYTES = 32_768;

/** The least approximate size of a part of a value, in bytes. */
export const VALUE_PART_LENGTH = 65_536;

/**
 * About how many parts a value has at most. A database reads all of a value for each of them: with parts of one size,
 * the time would grow with the square of the value's size.
 */
export const VALUE_PARTS = 16;

/** The placeholder for a value that is not read with its record. */
export const LARGE: LargeText = Object.freeze({ isLarge: true });

/** A record with large values replaced, as in a part of this length. */
export function withoutLarge<Name extends string, T extends { [N in Name]: StoredValue }>(
  record: T,
  names: readonly Name[],
  maxLength: number,
): T {
  if (maxLength === Infinity) return record;
  const large = names.filter((name) => {
    const value = record[name];
    return typeof value === "string" && isLongerThan(value, LARGE_VALUE_BYTES);
  });
  return withPlaceholders(record, large);
}

/** A record with placeholders for some of its values, which are large. */
export function withPlaceholders<T extends object>(record: T, large: readonly string[]): T {
  return large.length === 0 ? record : { ...record, ...Object.fromEntries(large.map((name) => [name, LARGE])) };
}

/** Builds a part of a list: records are added until they reach a number of characters. */
export class PartBuilder<T> implements Part<T> {
  readonly items: T[] = [];
  #room: number;

  /**
   * Begins an empty part.
   *
   * @param maxLength The number of characters; the last record may exceed it.
   */
  constructor(maxLength: number) {
    this.#room = maxLength;
  }

  /** The remaining characters; at 0 or less nothing more is added. */
  get room(): number {
    return this.#room;
  }

  /** Whether the list may have more records. */
  get hasMore(): boolean {
    return this.#room <= 0;
  }

  /** Converts items to records and adds them until the part is full. */
  add<U>(sources: Iterable<U>, toRecord: (source: U) => T): Part<T> {
    for (const source of sources) {
      if (this.#room <= 0) break;
      const record = toRecord(source);
      this.items.push(record);
      if (this.#room !== Infinity) this.#room -= lengthOf(record);
    }
    return this.toPart();
  }

  /** The finished part. */
  toPart(): Part<T> {
    return { items: this.items, hasMore: this.hasMore };
  }
}

/** The approximate size of a record as JSON, in characters. All stores use it, so that their parts are equal. */
function lengthOf(value: unknown): number {
  if (typeof value === "string") return value.length;
  if (value === LARGE) return LARGE_VALUE_BYTES;
  if (typeof value !== "object" || value === null) return 4;
  let length = 0;
  // Records are plain objects, so these are their own fields; `Object.entries()` takes three times as long.
  for (const name in value) length += name.length + lengthOf(value[name as keyof typeof value]);
  return length;
}
