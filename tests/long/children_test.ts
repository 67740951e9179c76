import assert from "node:assert/strict";
import { playChildHistories, SITUATIONS } from "../stores/child_histories.ts";

const SEEDS = Array.from({ length: 25 }, (_, index) => index + 1);

Deno.test("MemoryStore and SqliteStore answer the same to histories of parents and children, and each situation happens", async () => {
  const noticed = await playChildHistories(SEEDS);

  assert.deepEqual(SITUATIONS.filter((situation) => !noticed.has(situation)), []);
});
