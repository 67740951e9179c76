import assert from "node:assert/strict";
import { range, simulateMany } from "./simulate_many.ts";
import { simulate, type SimulationOptions, type Verdict } from "./simulation.ts";

// A small part of what `deno task simulate` does for as long as one likes; `tests/long/simulation_test.ts` takes 500 seeds.
const MEMORY_SEEDS = 10;
const SQLITE_SEEDS = 10;
const TWIN_SEEDS = 1;

const simulated = new Map<string, Promise<Verdict>>();

/** Simulates a seed, once for all tests of this file. */
function simulateOnce(options: SimulationOptions): Promise<Verdict> {
  const key = JSON.stringify(options);
  const verdict = simulated.get(key) ?? simulate(options);
  simulated.set(key, verdict);
  return verdict;
}

Deno.test("a simulation over a MemoryStore breaks no promise", async () => {
  await simulateMany(range(1, MEMORY_SEEDS), "memory", { run: simulateOnce });
});

Deno.test("a simulation over a SqliteStore breaks no promise", async () => {
  await simulateMany(range(1, SQLITE_SEEDS), "sqlite", { run: simulateOnce });
});

Deno.test("a MemoryStore and a SqliteStore do and answer the same in a simulation", async () => {
  await simulateMany(range(1, TWIN_SEEDS), "twin");
});

Deno.test("two simulations of one seed are the same", async () => {
  for (const store of ["memory", "sqlite"] as const) {
    for (const seed of range(1, 2)) {
      const first = await simulateOnce({ seed, store });
      const second = await simulate({ seed, store });

      assert.equal(first.hash, second.hash, `seed ${seed} over ${store}`);
    }
  }
});

Deno.test("simulations of two seeds are not the same", async () => {
  const first = await simulateOnce({ seed: 1, store: "memory" });
  const second = await simulateOnce({ seed: 2, store: "memory" });

  assert.notEqual(first.hash, second.hash);
});
