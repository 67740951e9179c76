import { playChildHistories } from "./child_histories.ts";

// `tests/long/children_test.ts` takes many more, and checks that each situation happens.
const SEEDS = [1, 2];

Deno.test("MemoryStore and SqliteStore answer the same to histories of parents and children, and strand none", async () => {
  await playChildHistories(SEEDS);
});
