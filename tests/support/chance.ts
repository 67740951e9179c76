/** Random numbers that depend on a seed alone, so that what they decided can be repeated. */
export class Chance {
  #state: number;

  /**
   * Two of one seed and path draw the same numbers.
   *
   * @param path Tells the uses of one seed apart, so that drawing for one does not change the draws of another.
   */
  constructor(seed: number, ...path: (string | number)[]) {
    this.#state = path.length === 0 ? seed : hashText(`${seed}/${path.join("/")}`);
  }

  /** At least 0 and below 1 (mulberry32). */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  /** Whether something happens that has this probability. */
  happens(probability: number): boolean {
    return this.next() < probability;
  }

  /** An integer, at least 0 and below `below`. */
  int(below: number): number {
    return Math.floor(this.next() * below);
  }

  /** A number, at least `from` and below `to`. */
  between(from: number, to: number): number {
    return from + this.next() * (to - from);
  }

  /** One of some items, which are not none. */
  pick<T>(items: readonly T[]): T {
    return items[this.int(items.length)]!;
  }

  /** One of some items, each as likely as its weight says. */
  weighted<T>(items: readonly (readonly [weight: number, item: T])[]): T {
    let left = this.next() * items.reduce((sum, [weight]) => sum + weight, 0);
    for (const [weight, item] of items) {
      left -= weight;
      if (left < 0) return item;
    }
    return items.at(-1)![1];
  }
}

/** A number of 32 bits that a text always has (FNV-1a), optionally going on from an earlier one. */
export function hashText(text: string, hash = 0x811c9dc5): number {
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return hash;
}
