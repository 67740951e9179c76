import { parseArgs } from "node:util";
import { Arguments } from "./arguments.ts";
import type { Command } from "./command.ts";
import type { OptionSpecs } from "./option_spec.ts";
import { UsageError } from "./usage_error.ts";

/** The options of all commands. */
export const COMMON_OPTIONS: OptionSpecs = {
  store: { value: "STORE", about: "a SQLite file, postgres://..., or the address of a service: https://host/api/jobs" },
  schema: { value: "NAME", about: "the schema of a Postgres database (holdfast)" },
  "token-file": { value: "FILE", about: "a file with the bearer token for a service" },
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
