import type { Fact } from "../fact.ts";

/**
 * The facts of the open transaction. A fact is noted where a row has changed, so that a call that is repeated or refused
 * notes nothing, and all of them are written right before the commit.
 */
export class NotedFacts {
  #facts: Fact[] = [];
  #lastNumber: number | null = null;

  /** Those that were noted, in their order. */
  get all(): readonly Fact[] {
    return this.#facts;
  }

  /** How many there are. */
  get length(): number {
    return this.#facts.length;
  }

  /** Whether there is one of a run. */
  tellOf(run: number): boolean {
    return this.#facts.some(([seq]) => seq === run);
  }

  /**
   * Draws the next numbers.
   *
   * @param readLast Reads which number is the last one that is in use.
   * @returns The last of them.
   */
  drawNumbers(count: number, readLast: () => number): number {
    this.#lastNumber = (this.#lastNumber ?? readLast()) + count;
    return this.#lastNumber;
  }

  /** Notes facts that the open transaction makes true. */
  note(...facts: readonly Fact[]): void {
    this.#facts.push(...facts);
  }

  /** Keeps only the first so many: the write that noted the others was refused. */
  cutBackTo(length: number): void {
    this.#facts.length = length;
  }

  /** Forgets everything: the transaction ends. */
  clear(): void {
    this.#facts = [];
    this.#lastNumber = null;
  }
}
