import type { NewHold } from "../store/hold_record.ts";
import { SECOND_TRY_MS } from "./rules.ts";
import type { StrandedJob } from "../model/hold.ts";

/** Stands before the print of code that may try a run once more. */
export const ONCE = "once:";

/** The prints that have tried a run, after another hold of it. */
export function addTry(prints: readonly string[], { code, print }: NewHold): readonly string[] {
  if (prints.includes(print)) return prints;
  const once = ONCE + print;
  return code === "ended_early" && !prints.includes(once)
    ? [...prints, once]
    : [...prints.filter((tried) => tried !== once), print];
}

/** Runs that these prints have tried can be tried by code with a print if they are held since then at the latest. */
export function latestSince(prints: readonly string[], print: string, now: number): number {
  if (prints.includes(print)) return -Infinity;
  return prints.includes(ONCE + print) ? now - SECOND_TRY_MS : Infinity;
}

/** The prints as `getHold()` returns them. */
export function namesOfPrints(prints: readonly string[]): string[] {
  return prints.map((print) => print.startsWith(ONCE) ? print.slice(ONCE.length) : print);
}

/** Compares jobs by name, then by version. */
export function byNameAndVersion(one: StrandedJob, other: StrandedJob): number {
  if (one.jobName !== other.jobName) return one.jobName < other.jobName ? -1 : 1;
  return one.version - other.version;
}
