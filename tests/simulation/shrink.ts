import { simulate, type SimulationOptions, type Verdict } from "./simulation.ts";

/**
 * Looks for as few faults and requests as possible with which a seed still breaks the same promise: it leaves out
 * half of them, then quarters and so on, as long as that helps (delta debugging).
 *
 * @param budget How many simulations it may take.
 */
export async function shrink(failed: Verdict, options: SimulationOptions, budget = 300): Promise<Verdict> {
  const { seed, violation } = failed;
  let smallest = failed;
  const { selection } = options;
  let without = new Set(selection?.without);
  let parts = 2;
  while (smallest.happened.length > 0 && budget > 0) {
    const size = Math.ceil(smallest.happened.length / parts);
    let isSmaller = false;
    for (let from = 0; from < smallest.happened.length && budget > 0; from += size) {
      budget -= 1;
      const tried = new Set([...without, ...smallest.happened.slice(from, from + size)]);
      const verdict = await simulate({ ...options, seed, selection: { ...selection, without: tried } });
      if (verdict.violation?.invariant !== violation?.invariant) continue;
      smallest = verdict;
      without = tried;
      isSmaller = true;
      break;
    }
    if (!isSmaller && size === 1) break;
    parts = isSmaller ? Math.max(2, parts - 1) : Math.min(2 * parts, smallest.happened.length);
  }
  return smallest;
}
