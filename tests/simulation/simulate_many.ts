import assert from "node:assert/strict";
import { simulate } from "./simulation.ts";
import type { StoreKind } from "./stores.ts";
import { toFailure, Totals } from "./totals.ts";

/** Simulates one seed after another: throws at the first broken promise, and answers what has happened in all of them. */
export async function simulateMany(
  seeds: Iterable<number>,
  store: StoreKind,
  run: typeof simulate = simulate,
): Promise<Totals> {
  const totals = new Totals();
  for (const seed of seeds) {
    const verdict = await run({ seed, store });
    assert.equal(
      verdict.violation,
      null,
      verdict.violation === null ? "" : toFailure(verdict, `deno task simulate --store ${store} --seed ${seed}`),
    );
    totals.add(verdict);
  }
  return totals;
}

/** So many seeds from `from` on. */
export function range(from: number, count: number): number[] {
  return Array.from({ length: count }, (_, at) => from + at);
}
