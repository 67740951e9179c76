import { chromium } from "playwright-core";
import { findProgram, isFile } from "../support/find_program.ts";

/** The path of a Chromium: what `CHROMIUM_PATH` says, one that is installed, or Playwright's own; `null` if there is none. */
export function findChromium(): string | null {
  const chosen = Deno.env.get("CHROMIUM_PATH") ?? "";
  if (isFile(chosen)) return chosen;
  const own = chromium.executablePath();
  return findProgram("chromium", "chromium-browser", "google-chrome") ?? (isFile(own) ? own : null);
}
