import { z } from "zod";
import { defineJob } from "../../../mod.ts";

/** One line of the ledger: what the world outside has been told. */
export interface Entry {
  /** What was done. */
  kind: "reserve" | "book" | "ship" | "unship" | "release";
  /** The run for which. */
  runId: string;
  /** The idempotency key of the step. */
  key: string;
  /** The message that was booked. */
  messageId?: string;
}

const FAILURES = 0.15;

/**
 * An order: it reserves, books each message until none comes for a while, and ships. A run that is cancelled or fails takes
 * it back. Its functions take their time, and do not notice that they are to end.
 */
export function orderJob(ledger: string) {
  const note = async (entry: Entry) => {
    await new Promise((resolve) => setTimeout(resolve, 60 * Math.random()));
    await Deno.writeTextFile(ledger, `${JSON.stringify(entry)}\n`, { append: true });
  };
  return defineJob({
    name: "order",
    input: z.object({ key: z.string() }),
    messages: { item: z.object({ no: z.number() }) },
    onEnd: {
      statuses: ["failed", "cancelled"],
      async run(_step, end) {
        const { runId } = end;
        if (end.completed.includes("ship")) return;
        const undo = (name: string, kind: Entry["kind"]) =>
          end.undo(name, (_, { idempotencyKey: key }) => note({ kind, runId, key }), { always: true });
        await undo("ship", "unship");
        await undo("reserve", "release");
      },
    },
    async run(step) {
      const { runId } = step;
      await step.run("reserve", ({ idempotencyKey: key }) => note({ kind: "reserve", runId, key }));
      while (true) {
        const got = await step.receive("next", { names: ["item"], timeout: "250ms", close: "timeout" });
        if (got === null) break;
        const { id: messageId } = got;
        await step.run("book", ({ idempotencyKey: key }) => note({ kind: "book", runId, key, messageId }));
      }
      await step.run("look at the weather", () => Math.random()).then((chance) => {
        if (chance < FAILURES) throw new Error("It rains");
      });
      await step.run("ship", ({ idempotencyKey: key }) => note({ kind: "ship", runId, key }));
    },
  });
}
