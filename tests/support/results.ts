/** What a test tool came to, in one store or scenario. With `--json FILE` a tool writes a list of them. */
export interface Result {
  /** The store or the scenario. */
  name: string;
  /** How many promises were broken. `null`: this machine cannot try it. */
  broken: number | null;
  /** How often each thing happened, or how much of it there was. */
  counts: Record<string, number>;
  /** The same, or why it cannot be tried, in a line. */
  told?: string;
}

/** Writes what a tool came to, if it was asked to with `--json`. */
export async function writeResults(file: string | undefined, results: readonly Result[]): Promise<void> {
  if (file !== undefined) await Deno.writeTextFile(file, JSON.stringify(results, null, 2) + "\n");
}
