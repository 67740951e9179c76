import { errorMessage } from "../values/unknown_values.ts";
import type { Output } from "./output.ts";
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
  /** Its arguments, for the help and for the parser: those in brackets may be left out, and `...` repeats. */
  usage: string;
  /** What it does, in one line. */
  about: string;
  /** Whether its argument is the store, as `--store` is. Default: `false`. */
  takesStore?: boolean;
  /** Whether it makes or updates the tables first, as with `--migrate`. Default: `false`. */
  migrates?: boolean;
  /** Its options, besides those of all commands. */
  options?: OptionSpecs;
  /** Does it. Nothing as its result is the exit code 0. */
  run(call: CommandCall): Promise<ExitCode | void>;
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
  const [least, most] = arityOf(command);
  if (!values.help && positionals.length < least) throw new UsageError(`Too few arguments: ${usageOf(command)}`);
  if (positionals.length > most) throw new UsageError(`Too many arguments: ${usageOf(command)}`);
  return new Arguments(positionals, values);
}

/** How many arguments a command takes, at least and at most. */
function arityOf({ usage }: Command): [least: number, most: number] {
  if (usage.includes("...")) return [0, Infinity];
  const names = usage.replaceAll(/\[?--[\w-]+( [\w=|]+)?\]?/g, "").split(" ").filter((name) => name !== "");
  return [names.filter((name) => !name.startsWith("[")).length, names.length];
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
    const message = errorMessage(error);
    throw new UsageError(message.replaceAll("\n", " "), { cause: error });
  }
}

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
