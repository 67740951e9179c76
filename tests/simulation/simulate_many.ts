import assert from "node:assert/strict";
import type { Part } from "./plan.ts";
import { simulate } from "./simulation.ts";
import type { StoreKind } from "./stores.ts";
import { toFailure, Totals } from "./totals.ts";

/**
 * Simulates one seed after another: throws at the first broken promise, and answers what has happened in all of them.
 *
 * @param parts What their plans have beside what all have. Default: what each seed says.
 */
export async function simulateMany(
  seeds: Iterable<number>,
  store: StoreKind,
  { run = simulate, parts }: { run?: typeof simulate; parts?: readonly Part[] } = {},
): Promise<Totals> {
  const totals = new Totals();
  const told = parts === undefined ? "" : ` --parts ${parts.join(",") || "none"}`;
  for (const seed of seeds) {
    const verdict = await run({ seed, store, ...(parts === undefined ? {} : { parts }) });
    assert.equal(
      verdict.violation,
      null,
      verdict.violation === null ? "" : toFailure(verdict, `deno task simulate --store ${store} --seed ${seed}${told}`),
    );
    totals.add(verdict);
  }
  return totals;
}

/** So many seeds from `from` on. */
export function range(from: number, count: number): number[] {
  return Array.from({ length: count }, (_, at) => from + at);
}
