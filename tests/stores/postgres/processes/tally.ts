/** Counts what happens in a storm. */
export class Tally {
  readonly #counts = new Map<string, number>();

  /** Counts one more. */
  add(what: string, count = 1): void {
    this.#counts.set(what, this.get(what) + count);
  }

  /** How often it has happened. */
  get(what: string): number {
    return this.#counts.get(what) ?? 0;
  }

  /** All counts, by what they count. */
  toRecord(): Record<string, number> {
    return Object.fromEntries(this.#counts);
  }

  /** All counts. */
  describe(): string {
    return [...this.#counts].map(([what, count]) => `${what}: ${count.toLocaleString("en")}`).join(", ");
  }
}
