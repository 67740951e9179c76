import assert from "node:assert/strict";
import { MUTANTS } from "../simulation/mutants/mutants.ts";
import { MOST_SEEDS, notice } from "../simulation/mutants/notice.ts";
import { shrink } from "../simulation/shrink.ts";
import { simulate } from "../simulation/simulation.ts";

// A simulation that notices nothing would be silent, too: here it has something to notice.
for (const mutant of MUTANTS) {
  Deno.test(`a simulation notices when ${mutant.name}`, async () => {
    const found = await notice(mutant);

    assert.ok(found !== null, `Nothing was noticed within ${MOST_SEEDS} seeds`);
    const { violation } = found;
    assert.notEqual(violation.invariant, "error", violation.message); // which says that something broke, not what
  });
}

Deno.test("each mutant has a name of its own", () => {
  const names = MUTANTS.map(({ name }) => name);
  assert.deepEqual(names.filter((name, at) => names.indexOf(name) < at), []);
});

Deno.test("shrink() leaves out what a broken promise does not need", async () => {
  const mutant = MUTANTS.find(({ name }) => name === "an error of the store fails the run")!;
  const failed = await simulate({ seed: 1, store: "memory", mutant });

  const smallest = await shrink(failed, { seed: 1, store: "memory", mutant });

  assert.equal(smallest.violation?.invariant, failed.violation?.invariant);
  assert.ok(smallest.happened.length < failed.happened.length / 2, smallest.happened.join(", "));
});
