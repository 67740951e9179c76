import assert from "node:assert/strict";
import { MUTANTS } from "../simulation/mutants/mutants.ts";
import { shrink } from "../simulation/shrink.ts";
import { simulate } from "../simulation/simulation.ts";

// A simulation that notices nothing would be silent, too: here it has something to notice.
const SEEDS = 500;

for (const mutant of MUTANTS) {
  Deno.test(`a simulation notices when ${mutant.name}`, async () => {
    for (let tried = 0; tried < SEEDS; tried++) {
      const from = mutant.from ?? 1;
      const seed = from > SEEDS ? from + tried : (from - 1 + tried) % SEEDS + 1;
      const store = mutant.database === undefined && !mutant.isOfSqlite ? "memory" : "sqlite";
      const { violation } = await simulate({ seed, store, mutant });
      if (violation === null) continue;
      assert.notEqual(violation.invariant, "error", violation.message); // which says that something broke, not what
      return;
    }
    assert.fail(`Nothing was noticed within ${SEEDS} seeds`);
  });
}

Deno.test("shrink() leaves out what a broken promise does not need", async () => {
  const mutant = MUTANTS.find(({ name }) => name === "an error of the store fails the run")!;
  const failed = await simulate({ seed: 1, store: "memory", mutant });

  const smallest = await shrink(failed, { seed: 1, store: "memory", mutant });

  assert.equal(smallest.violation?.invariant, failed.violation?.invariant);
  assert.ok(smallest.happened.length < failed.happened.length / 2, smallest.happened.join(", "));
});
