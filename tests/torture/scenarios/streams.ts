import assert from "node:assert/strict";
import { join } from "node:path";
import type { Scenario } from "../scenario.ts";
import { describeStreams, tortureStreams } from "../streams/stream_torture.ts";

/** Streams on a file. Each reader has the items of one attempt at a time, and in the end those that are recorded. */
export const streams: Scenario = {
  name: "streams whose writers are killed and whose readers are cut off",

  async run({ ms, patience }) {
    const folder = await Deno.makeTempDir({ prefix: "streams-" });
    try {
      const places = { kind: "sqlite", path: join(folder, "jobs.db") } as const;
      const result = await tortureStreams(places, { ms, check: () => patience.check() });
      assert.deepEqual(result.problems.slice(0, 20), []);
      return { outcome: "held", told: describeStreams(result), counts: result.tally };
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  },
};
