import type { Command } from "../../command.ts";
import { BULK_OPTIONS, BULK_USAGE, performPlan, readSelections } from "./bulk.ts";

/** Cancels runs. */
export const cancel: Command = {
  name: "cancel",
  usage: BULK_USAGE,
  about: "cancel runs",
  arity: [0, Infinity],
  options: BULK_OPTIONS,
  run: async (call) =>
    await performPlan(call, await readSelections(call), {
      operation: "cancel",
      words: ["cancel", "cancelled"],
      asksAlways: false,
    }),
};
