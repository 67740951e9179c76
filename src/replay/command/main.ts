import process from "node:process";
import { escapeLines } from "../../values/escape_text.ts";
import { runCommand } from "./command.ts";

/**
 * Does what the arguments of the process say, and ends it: a job may have left timers and connections behind.
 *
 * @param command How the command is called, for its help.
 */
export async function main(command = "deno run --allow-read jsr:@holdfast/jobs/replay"): Promise<void> {
  const [log, error] = [console.log.bind(console), console.error.bind(console)];
  // Names and values must not move the cursor or hide what is printed.
  const readable = (write: (text: string) => void) => (text: string) => write(escapeLines(text));
  const output = { log: readable(log), error: readable(error), command };
  // What jobs write does not mix with the result.
  for (const method of ["log", "info", "debug"] as const) console[method] = error;
  process.on("unhandledRejection", (reason) => output.error(`A job has left a rejected promise behind: ${reason}`));
  process.exit(await runCommand(process.argv.slice(2), output));
}
