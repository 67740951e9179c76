import type { Result } from "../tests/support/results.ts";

/** What a task wrote, and whether it ended with status 0. */
export interface ToolRun {
  results: Result[];
  isOk: boolean;
}

/**
 * Executes a task of `deno.json` that writes its results with `--json`. What it prints is printed.
 *
 * @param args The name of the task and its options.
 * @throws It has written nothing.
 */
export async function runTool(args: readonly string[]): Promise<ToolRun> {
  const file = await Deno.makeTempFile({ prefix: "holdfast_results_" });
  try {
    const command = new Deno.Command(Deno.execPath(), {
      args: ["task", ...args, "--json", file],
      cwd: new URL("../", import.meta.url),
    });
    const { success } = await command.spawn().status;
    const text = await Deno.readTextFile(file);
    if (text === "") throw new Error(`"${["deno task", ...args].join(" ")}" has written no results`);
    return { results: JSON.parse(text), isOk: success };
  } finally {
    await Deno.remove(file);
  }
}
