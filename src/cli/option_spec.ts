/** An option of a command. */
export interface OptionSpec {
  /** What follows it in the help, such as `NAME`; `null`: it is a flag. */
  value: string | null;
  /** What it does, for the help. */
  about: string;
  /** Whether it can be given several times. */
  isList?: boolean;
}

/** Options by their names. */
export type OptionSpecs = { readonly [name: string]: OptionSpec };
