import assert from "node:assert/strict";
import { BANK_WAYS, simulateBank } from "./bank_simulation.ts";

// A small part of what `deno task simulate:bank` does; `tests/long/bank_test.ts` takes 200 seeds, and the mutants.
const SEEDS = { effects: 4, joined: 2 };

for (const way of BANK_WAYS) {
  Deno.test(`a simulated bank (${way}) makes each transfer once`, async () => {
    for (let seed = 1; seed <= SEEDS[way]; seed++) {
      const { violation } = await simulateBank({ seed, way });
      assert.equal(violation, null, `deno task simulate:bank --way ${way} --from ${seed}: ${violation?.message}`);
    }
  });
}

Deno.test("two simulations of one bank are the same", async () => {
  for (const way of BANK_WAYS) {
    const first = await simulateBank({ seed: 7, way });
    const second = await simulateBank({ seed: 7, way });
    assert.equal(first.hash, second.hash, way);
    assert.equal(first.events, second.events, way);
  }
});
