import type { Fact } from "../../../model/fact.ts";

/**
 * The facts of the open transaction, and the numbers that it has drawn. A fact is noted where a row has changed, so
 * that a call that is repeated or refused notes nothing, and all of them are written right before the commit.
 */
export class NotedFacts {
  #facts: Fact[] = [];
  #runs = new Set<number>();
  #lastNumber: number | null = null;
  #hasBegun = false;
  #minute = 0;

  /** The facts, in order. */
  get all(): readonly Fact[] {
    return this.#facts;
  }

  /** The number of facts. */
  get length(): number {
    return this.#facts.length;
  }

  /** Whether one of them is about a run. */
  hasFactOf(run: number): boolean {
    return this.#runs.has(run);
  }

  /** Adds facts of the open transaction. */
  note(...facts: readonly Fact[]): void {
    for (const fact of facts) {
      this.#facts.push(fact);
      this.#runs.add(fact[0]);
    }
  }

  /**
   * Draws the next numbers.
   *
   * @param readLast Reads the last number that is in use.
   * @returns The last of them.
   */
  drawNumbers(count: number, readLast: () => number): number {
    this.#lastNumber = (this.#lastNumber ?? readLast()) + count;
    return this.#lastNumber;
  }

  /** Whether no number was drawn or asked for before. */
  isFirstDraw(): boolean {
    const isFirst = this.#lastNumber === null && !this.#hasBegun;
    this.#hasBegun = true;
    return isFirst;
  }

  /** Whether no other commit of this process was in the minute of `now`. */
  isFirstInMinute(now: number): boolean {
    const minute = Math.floor(now / 60_000);
    const isFirst = minute !== this.#minute;
    this.#minute = minute;
    return isFirst;
  }

  /** Removes all facts after the first `length`: the write that noted them was refused. */
  cutBackTo(length: number): void {
    if (length === this.#facts.length) return;
    this.#facts.length = length;
    this.#runs = new Set(this.#facts.map(([run]) => run));
  }

  /** Clears the facts and the numbers: the transaction ends. */
  clear(): void {
    this.#facts = [];
    this.#runs.clear();
    this.#lastNumber = null;
    this.#hasBegun = false;
  }
}
