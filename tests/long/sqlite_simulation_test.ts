import { range, simulateMany } from "../simulation/simulate_many.ts";

const SQLITE_SEEDS = 10;
const TWIN_SEEDS = 1;

Deno.test("a simulation over a SqliteStore breaks no promise", async () => {
  await simulateMany(range(1, SQLITE_SEEDS), "sqlite");
});

Deno.test("a MemoryStore and a SqliteStore do and answer the same in a simulation", async () => {
  await simulateMany(range(1, TWIN_SEEDS), "twin");
});
