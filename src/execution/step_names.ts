import { isName } from "../name.ts";

/**
 * Tells the steps (or the waits, or the sleeps) of one run apart by name and occurrence: the second use of a name is
 * `name#2`, so that loops work.
 */
export class StepNames {
  readonly #noun: string;
  readonly #uses = new Map<string, number>();
  readonly #open = new Set<string>();

  /** @param noun What is named, for messages. */
  constructor(noun: "step" | "wait" | "sleep") {
    this.#noun = noun;
  }

  /**
   * Begins a use of a name, and answers the name with its occurrence.
   *
   * @throws {TypeError} It cannot be a name, it ends like an occurrence, or an earlier use of it has not settled:
   * which of the two comes first in a replay could not be told.
   */
  begin(name: string): string {
    if (!isName(name)) {
      throw new TypeError(
        `The name of a ${this.#noun} is 1 to 255 characters, well-formed and without control characters`,
      );
    }
    if (/#\d+$/.test(name)) {
      throw new TypeError(`The name "${name}" cannot be given: "#" and digits at the end tell occurrences apart`);
    }
    if (this.#open.has(name)) {
      throw new TypeError(
        `The name "${name}" is in use by a ${this.#noun} that has not settled; name parallel ${this.#noun}s apart`,
      );
    }
    this.#open.add(name);
    const occurrence = (this.#uses.get(name) ?? 0) + 1;
    this.#uses.set(name, occurrence);
    return occurrence === 1 ? name : `${name}#${occurrence}`;
  }

  /** Ends the current use of a name. */
  end(name: string): void {
    this.#open.delete(name);
  }
}
