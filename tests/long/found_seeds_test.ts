import { FOUND_SEEDS } from "../simulation/seeds.ts";
import { simulateMany } from "../simulation/simulate_many.ts";

for (const { seed, store, parts = [] } of FOUND_SEEDS) {
  const has = parts.length === 0 ? "" : ` with ${parts.join(", ")}`;
  Deno.test(`seed ${seed} over ${store}${has} breaks no promise`, async () => {
    await simulateMany([seed], store, { parts });
  });
}
