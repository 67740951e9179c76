import assert from "node:assert/strict";
import { join } from "node:path";
import type { Scenario } from "../scenario.ts";
import { describeMessages, tortureMessages } from "../messages/message_torture.ts";

/** Messages on a file. Each is in one run and one booking, and each reservation is shipped or released. */
export const messages: Scenario = {
  name: "messages of two processes to runs that are cancelled, with workers that are killed",

  async run({ ms, patience }) {
    const folder = await Deno.makeTempDir({ prefix: "messages-" });
    try {
      const places = { kind: "sqlite", path: join(folder, "jobs.db") } as const;
      const ledger = join(folder, "ledger");
      const result = await tortureMessages(places, { ms, ledger, check: () => patience.check() });
      assert.deepEqual(result.problems.slice(0, 20), []);
      return { outcome: "held", told: describeMessages(result), counts: result.tally };
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  },
};
