import { Arguments, type OptionSpecs, UsageError } from "./arguments.ts";
import type { Output } from "./output/output.ts";
import type { Service } from "./service/service.ts";
import type { Terminal } from "./terminal.ts";
import { parseArgs } from "node:util";

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
  /** Whether it makes or updates the tables first, as with `--migrate`. Default: `false`. */
  migrates?: boolean;
  /** Its options, besides those of all commands. */
  options: OptionSpecs;
  /** Does it. */
  run(call: CommandCall): Promise<ExitCode>;
}

/** The options of all commands. */
export const COMMON_OPTIONS: OptionSpecs = {
  store: { value: "STORE", about: "a SQLite file, postgres://..., or the address of a service: https://host/api/jobs" },
  schema: { value: "NAME", about: "the schema of a Postgres database (holdfast)" },
  "token-file": { value: "FILE", about: "a file with the bearer token for a service" },
  by: { value: "NAME", about: "who acts, for what is changed in a database" },
  migrate: { value: null, about: "bring the tables of a database to this version first" },
  json: { value: null, about: "print JSON: one object, or one for each line" },
  help: { value: null, about: "print the help" },
};

/**
 * Parses the arguments of a command, without its name.
 *
 * @throws {UsageError} An option is unknown or lacks its value, or there are too few or too many arguments.
 */
export function parseArguments(command: Command, args: readonly string[]): Arguments {
  const specs = { ...COMMON_OPTIONS, ...command.options };
  const options = Object.fromEntries(
    Object.entries(specs).map(([name, { value, isList = false }]) =>
      [name, { type: value === null ? "boolean" : "string", multiple: isList }] as const
    ),
  );
  const { values, positionals } = parse(args, options);
  const [least, most] = command.arity;
  if (!values.help && positionals.length < least) throw new UsageError(`Too few arguments: ${usageOf(command)}`);
  if (positionals.length > most) throw new UsageError(`Too many arguments: ${usageOf(command)}`);
  return new Arguments(positionals, values);
}

/** How a command is called: `holdfast show ID`. */
export function usageOf({ name, usage }: Command): string {
  return `holdfast ${name}${usage === "" ? "" : ` ${usage}`}`;
}

type ParseOptions = { [name: string]: { type: "boolean" | "string"; multiple: boolean } };

function parse(args: readonly string[], options: ParseOptions) {
  try {
    return parseArgs({
      args: [...args],
      options: { ...options, help: { ...options.help!, short: "h" } },
      strict: true,
      allowPositionals: true,
    });
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error), { cause: error });
  }
}
