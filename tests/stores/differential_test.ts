import { compareHistories } from "./compare_histories.ts";

// `tests/long/differential_test.ts` takes many more.
const SEEDS = [1, 2];

Deno.test("MemoryStore and SqliteStore answer the same to any operations, and K1 and K2 hold", () =>
  compareHistories(SEEDS, { flow: false }));

Deno.test("MemoryStore and SqliteStore answer the same to any operations with flow, and T1 holds", () =>
  compareHistories(SEEDS, { flow: true }));

Deno.test("MemoryStore and SqliteStore answer the same to any operations with child runs", () =>
  compareHistories(SEEDS, { flow: false, children: true }));

Deno.test("MemoryStore and SqliteStore answer the same to any operations with child runs and flow", () =>
  compareHistories(SEEDS, { flow: true, children: true }));

Deno.test("MemoryStore and SqliteStore answer the same to any operations with versions, held runs, children and flow", () =>
  compareHistories(SEEDS, { flow: true, children: true, evolution: true }));

Deno.test("MemoryStore and SqliteStore answer the same to any operations with end runs, keys that end, children and flow", () =>
  compareHistories(SEEDS, { flow: true, children: true, ends: true }));

Deno.test("MemoryStore and SqliteStore answer the same to any operations with end runs and keys that end", () =>
  compareHistories(SEEDS, { flow: false, ends: true }));
