import type { Chance } from "../support/chance.ts";

/** Which faults and requests may happen, by name. */
export interface Selection {
  without?: ReadonlySet<string>;
  only?: ReadonlySet<string> | null;
}

/**
 * Decides which faults and requests happen. Each has a name of its own, which does not depend on what else happened, so
 * that a failing seed can be repeated without some of them.
 */
export class Faults {
  readonly #without: ReadonlySet<string>;
  readonly #only: ReadonlySet<string> | null;
  readonly #happened = new Set<string>();
  #isOver = false;

  /** Lets happen what is in `only`, if that is given, but nothing that is in `without`. */
  constructor({ without = new Set(), only = null }: Selection = {}) {
    this.#without = without;
    this.#only = only;
  }

  /** The names of everything that happened. */
  get happened(): string[] {
    return [...this.#happened];
  }

  /** Whether no more faults happen. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** From now on no faults happen. */
  end(): void {
    this.#isOver = true;
  }

  /** Whether a planned fault or request happens. */
  happens(name: string): boolean {
    if (this.#isOver || this.#without.has(name) || this.#only?.has(name) === false) return false;
    this.#happened.add(name);
    return true;
  }

  /** Whether a fault that has a probability happens. Draws in any case, so that later draws are the same. */
  happensAtRandom(name: string, probability: number, chance: Chance): boolean {
    return chance.happens(probability) && this.happens(name);
  }
}
