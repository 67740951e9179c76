import type { DueRuns } from "./due_runs.ts";
import type { Gates } from "./gates.ts";
import { type KeptRun, queueOf } from "../records.ts";
import type { MemoryTurns } from "./fairness_turns.ts";

/** Finds the runs that a worker can claim, one after another. */
export interface DueOrder {
  /** The next run that passes all gates. */
  next(): KeptRun | undefined;
  /** Notes that it is claimed. */
  take(run: KeptRun): void;
}

/** The order without fairness keys: by position. A run that is passed over stays so until the end of the claim. */
export function orderByPosition(due: DueRuns, gates: Gates, now: number): DueOrder {
  let index = 0;
  return {
    next() {
      while (index < due.inOrder.length) {
        const run = due.inOrder[index++]!;
        if (gates.opensAt(run) <= now) return run;
      }
      return undefined;
    },
    take: () => {},
  };
}

/** The order with fairness keys: by turn, then by position. */
export function orderByTurn(due: DueRuns, gates: Gates, turns: MemoryTurns, now: number): DueOrder {
  let isContested = false;
  return {
    next() {
      const passed = due.inOrder.filter((run) => !due.isRemoved(run) && due.keyOpensAt(run) <= now);
      turns.update(passed);
      const candidates = headsOf(passed.filter((run) => gates.opensAt(run) <= now));
      isContested = candidates.some(({ flow }) => flow.fairnessKey !== null);
      const [first] = candidates.sort((left, right) => turns.of(left) - turns.of(right)); // a stable sort
      return first;
    },
    take: (run) => isContested && turns.serve(run),
  };
}

/** Of the runs that can be claimed, the first of each queue and fairness key, and all without a fairness key. */
function headsOf(runs: readonly KeptRun[]): KeptRun[] {
  const seen = new Set<string>();
  return runs.filter((run) => {
    const { flow: { fairnessKey } } = run;
    if (fairnessKey === null) return true;
    const group = JSON.stringify([queueOf(run), fairnessKey]);
    if (seen.has(group)) return false;
    seen.add(group);
    return true;
  });
}
