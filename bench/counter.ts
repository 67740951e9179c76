/** Counts, and tells when a number is reached. */
export class Counter {
  #count = 0;
  #goal = Infinity;
  #reached: () => void = () => {};

  /** How many there were. */
  get count(): number {
    return this.#count;
  }

  /** One more. */
  add(): void {
    this.#count += 1;
    if (this.#count >= this.#goal) this.#reached();
  }

  /** Resolves when there were so many. One caller at a time. */
  reached(goal: number): Promise<void> {
    if (this.#count >= goal) return Promise.resolve();
    this.#goal = goal;
    return new Promise((resolve) => this.#reached = resolve);
  }
}
