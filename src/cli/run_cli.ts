import { HoldfastError, StoreError } from "../model/error.ts";
import { toFailure } from "../model/to_failure.ts";
import { PACKAGE_VERSION } from "../model/version.ts";
import {
  type Command,
  COMMON_OPTIONS,
  type ExitCode,
  type OptionSpecs,
  parseArguments,
  UsageError,
  usageOf,
} from "./command.ts";
import { backup, doctor, migrate } from "./commands/doctor.ts";
import { cancel, deleteRuns, purge, resumeRuns, retrigger } from "./commands/bulk.ts";
import { jobs, pause, resume, stats, trigger, workers } from "./commands/jobs.ts";
import { children, runs, show, timeline, why } from "./commands/runs.ts";
import { messages, send, signal, waits } from "./commands/waits_and_messages.ts";
import { stream, tail } from "./commands/follow.ts";
import { ui } from "./commands/ui.ts";
import { escapeText } from "../values/text.ts";
import { Output } from "./output.ts";
import type { Terminal } from "./terminal.ts";

const READING = [runs, show, timeline, children, why, jobs, workers, waits, messages, stats, tail, stream, doctor, ui];
const ON_RUNS = [trigger, signal, send, cancel, retrigger, resumeRuns, deleteRuns];
const ON_JOBS_AND_TABLES = [pause, resume, purge, backup, migrate];

/** Every command, in the order of the help. */
export const COMMANDS: readonly Command[] = [...READING, ...ON_RUNS, ...ON_JOBS_AND_TABLES];

/**
 * Does what the arguments of the command say.
 *
 * @returns Its exit code: 0 done; 1 refused, a run failed, or something is wrong; 2 called in a wrong way; 3 the store
 * cannot be reached.
 */
export async function runCli(args: readonly string[], terminal: Terminal): Promise<ExitCode> {
  try {
    const [name = "help", ...rest] = args;
    if (name === "help" || name === "--help" || name === "-h") return showHelp(rest, terminal);
    if (name === "--version") {
      terminal.print(PACKAGE_VERSION);
      return 0;
    }
    return await runCommand(findCommand(name), rest, terminal);
  } catch (error) {
    const code = exitCodeOf(error);
    if (code === null) throw error; // a mistake of this program
    terminal.note(escapeText(toFailure(error).message));
    return code;
  }
}

async function runCommand(command: Command, rest: readonly string[], terminal: Terminal): Promise<ExitCode> {
  const args = parseArguments(command, rest);
  if (args.has("help")) {
    terminal.print(describeCommand(command));
    return 0;
  }
  const { openService } = await import("./service/open_service.ts"); // it loads the stores and the engine
  const store = command.takesStore === true ? args.positionals[0] : undefined;
  const service = await openService(args, terminal, { store, migrates: command.migrates === true });
  try {
    return await command.run({ args, service, output: new Output(terminal, args.has("json")), terminal }) ?? 0;
  } catch (error) {
    if (service.kind !== "http" || !(error instanceof TypeError)) throw error;
    const message = "There is no Holdfast service of this version at this address: its answer has another form";
    throw new StoreError(`${message} (${error.message})`, { cause: error });
  } finally {
    await service.close();
  }
}

function showHelp([name]: readonly string[], terminal: Terminal): ExitCode {
  terminal.print(name === undefined ? describeCommands(COMMANDS) : describeCommand(findCommand(name)));
  return 0;
}

function findCommand(name: string): Command {
  const command = COMMANDS.find((one) => one.name === name);
  if (command !== undefined) return command;
  throw new UsageError(`There is no command "${name}": \`holdfast help\` lists them`);
}

function exitCodeOf(error: unknown): ExitCode | null {
  if (error instanceof UsageError) return 2;
  if (error instanceof StoreError) return 3;
  if (error instanceof HoldfastError) return error.code === "invalid_request" ? 2 : 1;
  return null;
}

/** The help of all commands. */
function describeCommands(commands: readonly Command[]): string {
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
    "Exit code: 0 done; 1 refused, a run failed, the doctor has found something, or the result cannot be written;",
    "2 called in a wrong way; 3 the store cannot be reached.",
  ].join("\n");
}

/** The help of one command. */
function describeCommand(command: Command): string {
  const { about, options = {} } = command;
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
