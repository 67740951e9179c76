import type { Json } from "../values/json.ts";
import type { Terminal } from "./terminal.ts";
import { UsageError } from "./usage_error.ts";

/**
 * Reads JSON of an argument; `-` is the standard input.
 *
 * @throws {UsageError} It is none.
 */
export async function readJsonArgument(text: string, terminal: Terminal): Promise<Json> {
  try {
    return JSON.parse(text === "-" ? await terminal.readInput() : text);
  } catch (error) {
    throw new UsageError(`This is no JSON: ${error instanceof Error ? error.message : error}`, { cause: error });
  }
}
