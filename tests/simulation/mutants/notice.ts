import { simulate, type Verdict } from "../simulation.ts";
import type { Mutant } from "./mutant.ts";

/** How many seeds a mutant may go unnoticed. */
export const MOST_SEEDS = 500;

/** The first simulation that notices a mutant. */
export interface Notice {
  /** How many seeds were simulated until then. */
  tried: number;
  violation: NonNullable<Verdict["violation"]>;
}

/** Simulates systems with a mutant until one of them breaks a promise. Answers `null` if none of the seeds does. */
export async function notice(mutant: Mutant): Promise<Notice | null> {
  const from = mutant.from ?? 1;
  const store = mutant.database === undefined && !mutant.isOfSqlite ? "memory" : "sqlite";
  for (let tried = 0; tried < MOST_SEEDS; tried++) {
    const seed = from > MOST_SEEDS ? from + tried : (from - 1 + tried) % MOST_SEEDS + 1;
    const { violation } = await simulate({ seed, store, mutant });
    if (violation !== null) return { tried: tried + 1, violation };
  }
  return null;
}
