import process from "node:process";
import type { Slice } from "./slices.ts";
import { percentile } from "./statistics.ts";

/** What a slice has cost, in milliseconds. */
export interface Cost {
  /** Of the clock. */
  time: number;
  /** Of the processor. */
  work: number;
}

/** How much less others cost than a base: 1 is as much. */
export interface Ratio {
  /** The median of the ratios of the rounds. */
  median: number;
  /** It is between these with a certainty of 95 %. */
  from: number;
  /** See `from`. */
  to: number;
}

/**
 * Lets each do a slice in turn, who was first last, and answers what each slice has cost. Half as many are done before, and
 * count nothing: until then most of the code is interpreted.
 *
 * It does not ask for a garbage collection before a slice: after one, V8 compiles some functions again, and a slice of 200
 * runs costs 1.2 to 2.4 times as much, of which the larger version pays more.
 */
export async function takeTurns(slices: readonly Slice[], rounds: number): Promise<Cost[][]> {
  const costs: Cost[][] = slices.map(() => []);
  for (let round = -Math.ceil(rounds / 2); round < rounds; round++) {
    for (let turn = 0; turn < slices.length; turn++) {
      const who = (round + rounds + turn) % slices.length;
      const slice = slices[who]!;
      await slice.before?.();
      const cost = await costOf(slice.work);
      if (round >= 0) costs[who]!.push(cost);
    }
  }
  for (const slice of slices) await slice.end();
  return costs;
}

async function costOf(work: () => Promise<unknown>): Promise<Cost> {
  const before = process.cpuUsage();
  const startedAt = performance.now();
  await work();
  const time = performance.now() - startedAt;
  const { user, system } = process.cpuUsage(before);
  return { time, work: (user + system) / 1_000 };
}

/** How much less the others cost, round by round. */
export function ratioOf(base: readonly Cost[], others: readonly Cost[], kind: keyof Cost): Ratio {
  const ratios = base.map((cost, round) => cost[kind] / others[round]![kind]);
  const spread = Math.min(0.5, 0.98 / Math.sqrt(ratios.length)); // of the order statistics around the median
  const [from, median, to] = [0.5 - spread, 0.5, 0.5 + spread].map((part) => percentile(ratios, part));
  return { from: from!, median: median!, to: to! };
}
