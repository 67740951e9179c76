import type { Fact } from "../fact.ts";

/**
 * The facts of the open transaction. A fact is noted where a row has changed, so that a call that is repeated or refused
 * notes nothing, and all of them are written right before the commit.
 */
export class NotedFacts {
  #facts: Fact[] = [];

  /** Those that were noted, in their order. */
  get all(): readonly Fact[] {
    return this.#facts;
  }

  /** How many there are. */
  get length(): number {
    return this.#facts.length;
  }

  /** Notes facts that the open transaction makes true. */
  note(...facts: readonly Fact[]): void {
    this.#facts.push(...facts);
  }

  /** Keeps only the first so many: the write that noted the others was refused. */
  cutBackTo(length: number): void {
    this.#facts.length = length;
  }

  /** Forgets them: they are written, or the transaction was rolled back. */
  clear(): void {
    this.#facts = [];
  }
}
