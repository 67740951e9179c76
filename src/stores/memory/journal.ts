import type { Fact } from "../../model/fact.ts";
import type { Cursor, JournalPage, JournalRow } from "../../model/journal.ts";

// The default size of the journal, in characters of facts.
const MAX_LENGTH = 4_194_304;

interface KeptRow extends JournalRow {
  /** The size of its facts as JSON, in characters. */
  length: number;
}

/** The journal of a memory store: the facts of each call, in the order of the calls. */
export class MemoryJournal {
  #rows: KeptRow[] = [];
  #length = 0;
  /** The number of removed rows at the start of `#rows`: the array is trimmed only at intervals. */
  #trimmed = 0;
  #isWhole = true;
  #open: Fact[] = [];
  readonly #maxLength: number;

  /** @param maxLength The maximum size of the journal, in characters of facts. Default 4,194,304. */
  constructor(maxLength = MAX_LENGTH) {
    this.#maxLength = maxLength;
  }

  /** Adds a fact of the current call. */
  note(...facts: readonly Fact[]): void {
    this.#open.push(...facts);
  }

  /** Puts the triggers of the current call before its other facts, as a store does whose runs are these facts. */
  putTriggersFirst(): void {
    const isTrigger = (fact: Fact) => fact[1] === "triggered";
    this.#open = [...this.#open.filter(isTrigger), ...this.#open.filter((fact) => !isTrigger(fact))];
  }

  /** Appends the facts of the current call as a row. */
  commit(now: number): void {
    if (this.#open.length === 0) return;
    const facts = this.#open;
    this.#open = [];
    const length = JSON.stringify(facts).length;
    this.#rows.push({ position: this.end.position + facts.length, at: now, facts: structuredClone(facts), length });
    this.#length += length;
    this.#trim();
  }

  /** Discards the facts of the current call after the call has failed. */
  rollBack(): void {
    this.#open = [];
  }

  /** The end of the journal. */
  get end(): Cursor {
    return toCursor(this.#rows.at(-1));
  }

  /** See `Store.readJournal()`. */
  read(after: number, maxLength: number): JournalPage | null {
    if (!this.#reaches(after)) return null;
    const rows: JournalRow[] = [];
    let length = 0;
    for (let at = this.#firstAfter(after); at < this.#rows.length; at++) {
      const row = this.#rows[at]!;
      if (rows.length > 0 && length + row.length > maxLength) break;
      rows.push({ position: row.position, at: row.at, facts: structuredClone(row.facts) });
      length += row.length;
    }
    return { rows, end: this.end };
  }

  /** See `Store.findCursor()`. */
  find(cursor: Cursor | null): Cursor | null {
    if (cursor === null) return this.end;
    const { position, at } = cursor;
    if (!this.#reaches(position)) return null;
    if (position === 0) return at === 0 ? { position, at } : null;
    const row = this.#rows[this.#firstAfter(position - 1)];
    const isRow = row !== undefined && row.position === position && row.at === at;
    // If a cursor points right before the oldest kept row, its own row was removed. It cannot be checked, and counts as
    // unknown.
    return isRow ? { position, at } : null;
  }

  /** See `Store.findLastFact()`. */
  findLastFact(run: number, after: number, kinds: readonly Fact[1][] | null): number | null {
    const isWanted = ([of, kind]: Fact) => of === run && (kinds === null || kinds.includes(kind));
    for (let at = this.#rows.length - 1; at >= this.#trimmed; at--) {
      const { position, facts } = this.#rows[at]!;
      if (position <= after) return null;
      if (facts.some(isWanted)) return position;
    }
    return null;
  }

  /** Whether all rows after a position still exist. */
  #reaches(position: number): boolean {
    if (position > this.end.position) return false;
    const oldest = this.#rows[this.#trimmed];
    return this.#isWhole || (oldest !== undefined && position >= oldest.position - oldest.facts.length);
  }

  /** The index in `#rows` of the first row after a position. */
  #firstAfter(position: number): number {
    let [low, high] = [this.#trimmed, this.#rows.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#rows[middle]!.position > position) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /** Removes the oldest rows, but never the newest: its number would be reused. */
  #trim(): void {
    while (this.#length > this.#maxLength && this.#trimmed < this.#rows.length - 1) {
      this.#length -= this.#rows[this.#trimmed]!.length;
      this.#trimmed += 1;
      this.#isWhole = false;
    }
    if (this.#trimmed <= this.#rows.length / 2) return;
    this.#rows = this.#rows.slice(this.#trimmed);
    this.#trimmed = 0;
  }
}

function toCursor(row: JournalRow | undefined): Cursor {
  return { position: row?.position ?? 0, at: row?.at ?? 0 };
}
