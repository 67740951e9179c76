import { chromium } from "playwright-core";
import { findProgram, isFile } from "../support/find_program.ts";

/**
 * The path of a Chromium: what `CHROMIUM_PATH` says, one that is installed, or Playwright's own; `null` if there is none.
 *
 * @throws {Error} There is none, and `HOLDFAST_CHROMIUM=required`.
 */
export function findChromium(): string | null {
  const chosen = Deno.env.get("CHROMIUM_PATH") ?? "";
  if (isFile(chosen)) return chosen;
  const own = chromium.executablePath();
  const found = findProgram("chromium", "chromium-browser", "google-chrome") ?? (isFile(own) ? own : null);
  if (found === null && Deno.env.get("HOLDFAST_CHROMIUM") === "required") {
    throw new Error("HOLDFAST_CHROMIUM=required, but no Chromium was found");
  }
  return found;
}
