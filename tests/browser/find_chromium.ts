import { delimiter, join } from "node:path";
import { chromium } from "playwright-core";

const NAMES = ["chromium", "chromium-browser", "google-chrome"];

/** The path of a Chromium: what `CHROMIUM_PATH` says, one that is installed, or Playwright's own; `null` if there is none. */
export function findChromium(): string | null {
  const folders = Deno.env.get("PATH")?.split(delimiter) ?? [];
  const paths = [
    Deno.env.get("CHROMIUM_PATH") ?? "",
    ...NAMES.flatMap((name) => folders.map((folder) => join(folder, name))),
    chromium.executablePath(),
  ];
  return paths.find(isFile) ?? null;
}

function isFile(path: string): boolean {
  try {
    return Deno.statSync(path).isFile;
  } catch {
    return false;
  }
}
