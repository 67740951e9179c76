import type { Command } from "../../command.ts";
import { BULK_OPTIONS, BULK_USAGE, performPlan, readSelections } from "./bulk.ts";

/** Retriggers runs that have ended. */
export const retrigger: Command = {
  name: "retrigger",
  usage: `[--from-start] ${BULK_USAGE}`,
  about: "retrigger runs that have ended, from their failure",
  arity: [0, Infinity],
  options: {
    ...BULK_OPTIONS,
    status: { value: "STATUS", about: "completed, failed (default), cancelled", isList: true },
    "from-start": { value: null, about: "execute all steps again" },
  },
  run: async (call) =>
    await performPlan(call, await readSelections(call, { status: "failed" }), {
      operation: "retrigger",
      words: ["retrigger", "retriggered"],
      asksAlways: false,
      from: call.args.has("from-start") ? "start" : "failure",
    }),
};
