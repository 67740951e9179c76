import { readdir, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { checkHistory, type ExportedHistory } from "../../model/exported_history.ts";
import { toFailure } from "../../model/failure/to_failure.ts";
import { UsageError } from "./command_options.ts";

/**
 * Reads exported histories from files, and from the `.json` files of folders. A file has one history, or an array.
 *
 * @throws {UsageError} A file cannot be read, or has something else.
 */
export async function* readFiles(paths: readonly string[]): AsyncGenerator<ExportedHistory> {
  for (const path of paths) {
    for (const file of await findFiles(path)) yield* await readHistories(file);
  }
}

async function findFiles(path: string): Promise<string[]> {
  try {
    if (!(await stat(path)).isDirectory()) return [path];
    const names = await readdir(path);
    return names.filter((name) => name.endsWith(".json")).sort().map((name) => join(path, name));
  } catch (error) {
    throw new UsageError(`Cannot read ${path}: ${toFailure(error).message}`, { cause: error });
  }
}

async function readHistories(file: string): Promise<ExportedHistory[]> {
  try {
    const value: unknown = JSON.parse(await readFile(file, "utf8"));
    return (Array.isArray(value) ? value : [value]).map((history) => checkHistory(history));
  } catch (error) {
    throw new UsageError(`Cannot use ${file}: ${toFailure(error).message}`, { cause: error });
  }
}
