import { delimiter, join } from "node:path";

/** The path of the first of these programs that is in the `PATH`; `null` if none is. */
export function findProgram(...names: string[]): string | null {
  const folders = Deno.env.get("PATH")?.split(delimiter) ?? [];
  const suffix = Deno.build.os === "windows" ? ".exe" : "";
  return names.flatMap((name) => folders.map((folder) => join(folder, name + suffix))).find(isFile) ?? null;
}

/** Whether a path is that of a file. */
export function isFile(path: string): boolean {
  try {
    return Deno.statSync(path).isFile;
  } catch {
    return false;
  }
}
