import assert from "node:assert/strict";
import { BANK_MUTANTS } from "../simulation/bank/bank_mutants.ts";
import { BANK_WAYS, simulateBank } from "../simulation/bank/bank_simulation.ts";

const SEEDS = { effects: 200, joined: 20 };
const MUTANT_SEEDS = 50;
// What has to happen in so many seeds, or they would show nothing.
const SITUATIONS = [
  "kill",
  "suspend",
  "jump",
  "a process died at a call to the store",
  "a process died at a call to the bank",
  "an order by engine.transaction()",
  "an order by inTransaction",
  "an order by SQL",
  "an approval",
  "a cancel was answered",
  "a retry from the failure",
  "a transfer was executed",
];

for (const way of BANK_WAYS) {
  Deno.test(`a simulated bank (${way}) makes each transfer once, in ${SEEDS[way]} seeds`, async () => {
    const counts = new Set<string>();
    for (let seed = 1; seed <= SEEDS[way]; seed++) {
      const verdict = await simulateBank({ seed, way });
      const { violation } = verdict;
      assert.equal(violation, null, `deno task simulate:bank --way ${way} --from ${seed}: ${violation?.message}`);
      for (const what of verdict.counts.keys()) counts.add(what);
    }
    assert.deepEqual(SITUATIONS.filter((what) => !counts.has(what)), []);
  });
}

for (const mutant of BANK_MUTANTS) {
  Deno.test(`a simulated bank notices when ${mutant.name}`, async () => {
    for (let seed = 1; seed <= MUTANT_SEEDS; seed++) {
      const { violation } = await simulateBank({ seed, way: mutant.way, mutant });
      if (violation === null) continue;
      assert.notEqual(violation.invariant, "error", violation.message);
      return;
    }
    assert.fail(`Nothing was noticed within ${MUTANT_SEEDS} seeds`);
  });
}
