/** The arguments of a command. */
export class Arguments {
  /** What is no option. */
  readonly positionals: readonly string[];
  readonly #values: { readonly [name: string]: unknown };

  /** Keeps what was parsed. */
  constructor(positionals: readonly string[], values: { readonly [name: string]: unknown }) {
    this.positionals = positionals;
    this.#values = values;
  }

  /** Whether a flag is given. */
  has(name: string): boolean {
    return this.#values[name] === true;
  }

  /** The value of an option; `undefined`: it is not given. */
  text(name: string): string | undefined {
    return this.#values[name] as string | undefined; // the parser says so
  }

  /** The values of an option that can be given several times. */
  list(name: string): readonly string[] {
    return (this.#values[name] ?? []) as readonly string[]; // the parser says so
  }

  /**
   * The value of an option that is a number.
   *
   * @throws {UsageError} It is none, or less than `least`.
   */
  integer(name: string, least = 1): number | undefined {
    const text = this.text(name);
    if (text === undefined) return undefined;
    if (!/^\d{1,9}$/.test(text) || Number(text) < least) {
      throw new UsageError(`--${name} must be a number from ${least}, not "${text}"`);
    }
    return Number(text);
  }
}

/** An option of a command. */
interface OptionSpec {
  /** What follows it in the help, such as `NAME`; `null`: it is a flag. */
  value: string | null;
  /** What it does, for the help. */
  about: string;
  /** Whether it can be given several times. */
  isList?: boolean;
}

/** Options by their names. */
export type OptionSpecs = { readonly [name: string]: OptionSpec };

/** The command was called in a wrong way. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}
