import assert from "node:assert/strict";
import { range, simulateMany } from "./simulate_many.ts";
import { simulate, type SimulationOptions, type Verdict } from "./simulation.ts";

// A small part of what `deno task simulate` does for as long as one likes. In `tests/long/` there are 500 seeds over a
// MemoryStore, 10 over a SqliteStore, both at once, and the seeds that have found something.
const MEMORY_SEEDS = 2;
const SQLITE_SEEDS = 2;

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
