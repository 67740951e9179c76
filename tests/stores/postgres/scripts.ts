import type { ScriptOptions } from "../operations.ts";

/** The kinds of random histories that are played, by what they have. */
export const SCRIPTS: Record<string, ScriptOptions> = {
  "any operations": { flow: false },
  "any operations with flow": { flow: true },
  "any operations with child runs": { flow: false, children: true },
  "any operations with child runs and flow": { flow: true, children: true },
  "any operations with versions, held runs, children and flow": { flow: true, children: true, evolution: true },
};
