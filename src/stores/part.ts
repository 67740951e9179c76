import type { Part } from "../store.ts";

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

  /** Adds records as long as there is room. */
  add(records: Iterable<T>): void {
    for (const record of records) {
      if (this.#room <= 0) return;
      this.items.push(record);
      this.#room -= lengthOf(record);
    }
  }

  /** The part as it is answered. */
  toPart(): Part<T> {
    return { items: this.items, hasMore: this.hasMore };
  }
}

/** About how many characters a record has as JSON. The same for every store, whose parts are the same then. */
function lengthOf(value: unknown): number {
  if (typeof value === "string") return value.length;
  if (typeof value !== "object" || value === null) return 4;
  return Object.entries(value).reduce((length, [name, item]) => length + name.length + lengthOf(item), 0);
}
