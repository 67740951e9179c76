import { compareHistories } from "../stores/compare_histories.ts";

const SEEDS = Array.from({ length: 20 }, (_, index) => index + 1);
// Seeds that have found a difference with flow.
const FLOW_SEEDS = [...SEEDS, 3134, 3264, 3318];

Deno.test("MemoryStore and SqliteStore answer the same to any operations, and K1 and K2 hold", () =>
  compareHistories(SEEDS, { flow: false }));

Deno.test("MemoryStore and SqliteStore answer the same to any operations with flow, and T1 holds", () =>
  compareHistories(FLOW_SEEDS, { flow: true }));

Deno.test("MemoryStore and SqliteStore answer the same to any operations with child runs", () =>
  compareHistories(SEEDS, { flow: false, children: true }));

Deno.test("MemoryStore and SqliteStore answer the same to any operations with child runs and flow", () =>
  compareHistories(FLOW_SEEDS, { flow: true, children: true }));

// Seed 34 has found a wrong turn of a held run.
Deno.test("MemoryStore and SqliteStore answer the same to any operations with versions, held runs, children and flow", () =>
  compareHistories([...FLOW_SEEDS, 34], { flow: true, children: true, evolution: true }));
