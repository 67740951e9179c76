import type { Arguments } from "./arguments.ts";
import type { OptionSpecs } from "./option_spec.ts";
import type { Output } from "./output/output.ts";
import type { Service } from "./service/service.ts";
import type { Terminal } from "./terminal.ts";

/** What a command works with. */
export interface CommandCall {
  /** The arguments. */
  args: Arguments;
  /** The store, or the service before it. */
  service: Service;
  /** Where results are written to. */
  output: Output;
  /** Where it reads from. */
  terminal: Terminal;
}

/** The exit code of a command. */
export type ExitCode = 0 | 1 | 2 | 3;

/** A command of the table: the parser and the help are made of it. */
export interface Command {
  /** Its name. */
  name: string;
  /** Its arguments, for the help. */
  usage: string;
  /** What it does, in one line. */
  about: string;
  /** How many arguments it takes, at least and at most. */
  arity: readonly [least: number, most: number];
  /** Whether its argument is the store, as `--store` is. Default: `false`. */
  takesStore?: boolean;
  /** Its options, besides those of all commands. */
  options: OptionSpecs;
  /** Does it. */
  run(call: CommandCall): Promise<ExitCode>;
}
