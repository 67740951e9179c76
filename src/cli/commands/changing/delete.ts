import type { Command } from "../../command.ts";
import { BULK_OPTIONS, BULK_USAGE, performPlan, readSelections } from "./bulk.ts";

/** Deletes runs that have ended. */
export const deleteRuns: Command = {
  name: "delete",
  usage: BULK_USAGE,
  about: "delete runs that have ended",
  arity: [0, Infinity],
  options: BULK_OPTIONS,
  run: async (call) =>
    await performPlan(call, await readSelections(call), {
      operation: "delete",
      words: ["delete", "deleted"],
      asksAlways: true,
    }),
};
