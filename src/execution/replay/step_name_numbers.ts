import { ANSWER_PREFIX } from "../../model/message.ts";
import { kindOf } from "../../values/unknown_values.ts";
import { isName } from "../../values/name.ts";

/** How often a name was used, and whether the last use has not settled. */
interface Use {
  count: number;
  isOpen: boolean;
}

/**
 * Distinguishes the steps (or the waits, or the sleeps) of one run by name and occurrence: the second use of a name is
 * `name#2`, so that loops work.
 */
export class StepNameNumbers {
  readonly #noun: string;
  readonly #uses = new Map<string, Use>();

  /** @param noun The kind of thing that is named, for messages. */
  constructor(noun: "step" | "wait" | "sleep" | "receive" | "child run" | "patch") {
    this.#noun = noun;
  }

  /**
   * Begins a use of a name, and returns the name with its occurrence.
   *
   * @throws {TypeError} It is not a valid name, it is reserved, or an earlier use of it has not settled:
   * the order of the two in a replay would be undefined.
   */
  begin(name: string): string {
    const use = this.#uses.get(name);
    if (use === undefined) {
      this.#check(name);
      this.#uses.set(name, { count: 1, isOpen: true });
      return name;
    }
    // A sleep carries no value: which of two is over makes no difference.
    if (use.isOpen && this.#noun !== "sleep") this.#refuseOpen(name);
    use.isOpen = true;
    use.count += 1;
    return `${name}#${use.count}`;
  }

  /** Ends the current use of a name. */
  end(name: string): void {
    const use = this.#uses.get(name);
    if (use !== undefined) use.isOpen = false;
  }

  #check(name: string): void {
    if (typeof name !== "string") {
      throw new TypeError(`A ${this.#noun} needs a name, a string, as its first argument, not ${kindOf(name)}`);
    }
    if (!isName(name)) {
      throw new TypeError(
        `The name of a ${this.#noun} must be 1 to 255 characters, well-formed and without control characters`,
      );
    }
    if (/#\d+$/.test(name)) {
      throw new TypeError(`The name "${name}" is reserved: a "#" with digits at the end marks an occurrence`);
    }
    if (this.#noun === "step" && name.startsWith(ANSWER_PREFIX)) {
      throw new TypeError(`The name "${name}" is reserved: "${ANSWER_PREFIX}" begins the names of answers to messages`);
    }
  }

  #refuseOpen(name: string): never {
    throw new TypeError(
      this.#noun === "wait" || this.#noun === "receive"
        ? `${
          this.#noun === "wait" ? "Wait" : "Receive"
        } "${name}" of an earlier call has not settled: race the promise of that call again, or give the ${this.#noun} a timeout instead of a sleep beside it`
        : `The name "${name}" is in use by a ${this.#noun} that has not settled; parallel ${this.#noun}s need different names`,
    );
  }
}
