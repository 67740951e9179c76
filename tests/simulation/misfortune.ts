import type { Chance } from "../support/chance.ts";

/** What may go wrong, by name. */
export interface Selection {
  without?: ReadonlySet<string>;
  only?: ReadonlySet<string> | null;
}

/**
 * Decides what goes wrong. Each thing that can go wrong has a name of its own, which does not depend on what else
 * went wrong: so that a failing seed can be repeated without this and that.
 */
export class Misfortune {
  readonly #without: ReadonlySet<string>;
  readonly #only: ReadonlySet<string> | null;
  readonly #struck = new Set<string>();
  #isOver = false;

  /** Lets go wrong what is in `only`, if that is given, but nothing that is in `without`. */
  constructor({ without = new Set(), only = null }: Selection = {}) {
    this.#without = without;
    this.#only = only;
  }

  /** The names of everything that went wrong. */
  get struck(): string[] {
    return [...this.#struck];
  }

  /** Whether nothing goes wrong any more. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** From now on nothing goes wrong. */
  end(): void {
    this.#isOver = true;
  }

  /** Whether something planned happens. */
  strikes(name: string): boolean {
    if (this.#isOver || this.#without.has(name) || this.#only?.has(name) === false) return false;
    this.#struck.add(name);
    return true;
  }

  /** Whether something that has a probability happens. Draws in any case, so that later draws are the same. */
  befalls(name: string, probability: number, chance: Chance): boolean {
    return chance.happens(probability) && this.strikes(name);
  }
}
