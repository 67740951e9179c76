import type { Message } from "./child.ts";
import { TextLineStream } from "./text_line_stream.ts";

/** Tells the test that has started this program something. */
export function say(message: Message): void {
  const line = new TextEncoder().encode(`${JSON.stringify(message)}\n`);
  for (let written = 0; written < line.length;) written += Deno.stdout.writeSync(line.subarray(written));
}

/** What the test tells this program. Can be read once. */
export function heardLines(): AsyncIterable<string> {
  return Deno.stdin.readable.pipeThrough(new TextLineStream());
}

/** Resolves with the first line that the test tells this program. */
export async function heardLine(): Promise<string> {
  for await (const line of heardLines()) return line;
  throw new Error("The test has nothing to say");
}
