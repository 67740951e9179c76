import assert from "node:assert/strict";
import { range, simulateMany } from "../simulation/simulate_many.ts";

const SEEDS = 500;

Deno.test("a simulation over a MemoryStore breaks no promise, and everything happens that has to", async () => {
  const totals = await simulateMany(range(1, SEEDS), "memory");

  assert.deepEqual(totals.missing(), []);
});
