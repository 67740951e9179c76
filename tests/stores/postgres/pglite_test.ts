import assert from "node:assert/strict";
import { emptyServer } from "../../simulation/pglite.ts";
import { simulateMany } from "../../simulation/simulate_many.ts";

// `deno task simulate --store postgres` takes more seeds.
const SEEDS = [1];

// It starts a timer that stays, which would be taken for a leak of the first test.
await emptyServer();

Deno.test("a simulation over a PostgresStore that uses PGlite breaks no promise", async () => {
  const totals = await simulateMany(SEEDS, "postgres");

  assert.ok(totals.calls > 1_000, `${totals.calls} calls`);
});
