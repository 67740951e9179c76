import assert from "node:assert/strict";
import { examine } from "../linearizability/examine.ts";
import { needs } from "../support/platform.ts";

// `deno task linearizability` asks far more.
const OPERATIONS = 1_500;

Deno.test(
  "what clients are told has an order, while two processes on one file are killed",
  needs("signals"),
  async () => {
    const folder = await Deno.makeTempDir({ prefix: "holdfast_linear_" });
    try {
      const found = await examine({
        database: `${folder}/jobs.db`,
        folder,
        processes: 2,
        isKilled: true,
        operations: OPERATIONS,
        seed: 1,
      });

      assert.deepEqual(found.violations, []);
      for (const [name, { operations, undecided }] of Object.entries(found.counts)) {
        assert.ok(operations > 0, `nothing was asked of ${name}`);
        assert.equal(undecided, 0, name);
      }
      assert.ok(found.kills > 0, "no process was killed");
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  },
);
