import { emptyServer } from "../simulation/pglite.ts";
import { range, simulateMany } from "../simulation/simulate_many.ts";

// A seed takes some seconds: `deno task simulate --store postgres` takes more of them.
const SEEDS = 6;

// It starts a timer that stays, which would be taken for a leak of the first test.
await emptyServer();

Deno.test("a simulation over a PostgresStore breaks no promise", async () => {
  await simulateMany(range(1_001, SEEDS), "postgres");
});
