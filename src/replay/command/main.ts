import process from "node:process";
import { runCommand } from "./command.ts";

/**
 * Does what the arguments of the process say, and ends it: a job may have left timers and connections behind.
 *
 * @param command How the command is called, for its help.
 */
export async function main(command = "deno run --allow-read jsr:@holdfast/jobs/replay"): Promise<void> {
  const output = { log: console.log.bind(console), error: console.error.bind(console), command };
  // What jobs write does not mix with the result.
  for (const method of ["log", "info", "debug"] as const) console[method] = output.error;
  process.on("unhandledRejection", (reason) => output.error(`A job has left a rejected promise behind: ${reason}`));
  process.exit(await runCommand(process.argv.slice(2), output));
}
