import type { Command } from "./command.ts";
import type { OptionSpecs } from "./option_spec.ts";
import { COMMON_OPTIONS, usageOf } from "./parse_arguments.ts";

/** The help of all commands. */
export function describeCommands(commands: readonly Command[]): string {
  const names = commands.map((command) => [usageOf(command).replace("holdfast ", ""), command.about] as const);
  return [
    "Shows and changes the runs of a Holdfast store.",
    "",
    "holdfast COMMAND --store STORE [options]",
    "",
    ...twoColumns(commands.map(({ name, about }) => [name, about])),
    "",
    "How each is called:",
    ...names.map(([usage]) => `  ${usage}`),
    "",
    "Options of all commands:",
    ...optionLines(COMMON_OPTIONS),
    "",
    "HOLDFAST_STORE is the default of --store; HOLDFAST_TOKEN is the bearer token for a service.",
    "`holdfast help COMMAND` lists the options of a command, `holdfast --version` prints the version.",
    "",
    "Exit code: 0 done; 1 refused, a run failed, or the doctor has found something; 2 called in a wrong way;",
    "3 the store cannot be reached.",
  ].join("\n");
}

/** The help of one command. */
export function describeCommand(command: Command): string {
  const { about, options } = command;
  const own = Object.keys(options).length === 0 ? [] : ["", "Options:", ...optionLines(options)];
  return [
    `${about[0]!.toUpperCase()}${about.slice(1)}.`,
    "",
    usageOf(command),
    ...own,
    "",
    "Options of all commands:",
    ...optionLines(COMMON_OPTIONS),
  ]
    .join("\n");
}

function optionLines(options: OptionSpecs): string[] {
  return twoColumns(
    Object.entries(options).map(([name, { value, about, isList = false }]) => [
      `--${name}${value === null ? "" : ` ${value}`}`,
      isList ? `${about} (repeatable)` : about,
    ]),
  );
}

function twoColumns(rows: readonly (readonly [left: string, right: string])[]): string[] {
  const width = rows.reduce((widest, [left]) => Math.max(widest, left.length), 0);
  return rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`);
}
