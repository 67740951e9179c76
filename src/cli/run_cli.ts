import { HoldfastError, StoreError } from "../error.ts";
import { toFailure } from "../failure/to_failure.ts";
import { PACKAGE_VERSION } from "../version.ts";
import type { Command, ExitCode } from "./command.ts";
import { COMMANDS } from "./commands.ts";
import { describeCommand, describeCommands } from "./help.ts";
import { escapeText } from "../values/escape_text.ts";
import { Output } from "./output/output.ts";
import { parseArguments } from "./parse_arguments.ts";
import type { Terminal } from "./terminal.ts";
import { UsageError } from "./usage_error.ts";

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
  const service = await openService(args, terminal, command.takesStore === true ? args.positionals[0] : undefined);
  try {
    return await command.run({ args, service, output: new Output(terminal, args.has("json")), terminal });
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
