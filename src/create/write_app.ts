import { mkdir, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { CreateError } from "./create_error.ts";

/**
 * Writes the files of an app into a folder, which it makes if there is none.
 *
 * @param files By their paths in the folder.
 * @throws {CreateError} The folder has something in it, is a file, or cannot be written to.
 */
export async function writeApp(folder: string, files: ReadonlyMap<string, string>): Promise<void> {
  try {
    await mkdir(folder, { recursive: true });
    const [first] = await readdir(folder);
    if (first !== undefined) {
      throw new CreateError(`The folder "${folder}" is not empty: it has "${first}". Name a new folder`, 1);
    }
    // Nothing is overwritten, not even what another program writes at the same time.
    for (const [path, text] of files) await writeFile(join(folder, path), text, { flag: "wx" });
  } catch (error) {
    if (error instanceof CreateError) throw error;
    throw new CreateError(`Cannot write the app to "${folder}": ${reasonOf(error)}`, 1, { cause: error });
  }
}

function reasonOf(error: unknown): string {
  const { code, message } = error as { code?: unknown; message?: unknown };
  if (code === "EEXIST" || code === "ENOTDIR") return "there is a file of that name";
  return String(message ?? error);
}
