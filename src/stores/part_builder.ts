import { isLongerThan, type LargeText, type StoredValue } from "../json.ts";
import type { Part } from "../store.ts";

/** A value whose JSON takes more bytes is not read with its record. */
export const LARGE_VALUE_BYTES = 32_768;

/** How much of a value is read at once, about. */
export const VALUE_PART_LENGTH = 65_536;

/** What stands for every value that is not read with its record. */
export const LARGE: LargeText = Object.freeze({ isLarge: true });

/** A record as it is in a part of this length. */
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
  return large.length === 0 ? record : { ...record, ...Object.fromEntries(large.map((name) => [name, LARGE])) };
}

/** Puts a part of a list together: records are added until they have so many characters. */
export class PartBuilder<T> implements Part<T> {
  readonly items: T[] = [];
  #room: number;

  /** @param maxLength How many characters it has, apart from the last record, which may go beyond. */
  constructor(maxLength: number) {
    this.#room = maxLength;
  }

  /** How many characters are left; 0 or less: nothing more is added. */
  get room(): number {
    return this.#room;
  }

  /** Whether it ended before the list. */
  get hasMore(): boolean {
    return this.#room <= 0;
  }

  /** Makes records of something and adds them, as long as there is room. */
  add<U>(sources: Iterable<U>, toRecord: (source: U) => T): Part<T> {
    for (const source of sources) {
      if (this.#room <= 0) break;
      const record = toRecord(source);
      this.items.push(record);
      this.#room -= lengthOf(record);
    }
    return this.toPart();
  }

  /** The part as it is answered. */
  toPart(): Part<T> {
    return { items: this.items, hasMore: this.hasMore };
  }
}

/** About how many characters a record has as JSON. The same for every store, whose parts are the same then. */
function lengthOf(value: unknown): number {
  if (typeof value === "string") return value.length;
  if (value === LARGE) return LARGE_VALUE_BYTES;
  if (typeof value !== "object" || value === null) return 4;
  return Object.entries(value).reduce((length, [name, item]) => length + name.length + lengthOf(item), 0);
}
