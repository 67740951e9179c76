import { type KeptRun, queueOf } from "../records.ts";
import type { DueRuns } from "./due_runs.ts";
import type { Gates } from "./gates.ts";

/**
 * The turns of fairness keys.
 *
 * The runs of one queue and one fairness key that have passed their concurrency key get a turn when the first of them
 * appears: the turn that is served, or a later one if the key had that already. It stays with them until one of them is
 * claimed or none is left. So a key that comes back joins the current turn. Runs without a fairness key are one key.
 */
export class MemoryTurns {
  /** The turn that is served. */
  #served = 0;
  /** The first turn of each fairness key that it has not had; `null` for the runs without one. */
  readonly #next = new Map<string | null, number>();
  /** The turns of the runs of each fairness key and queue. */
  readonly #given = new Map<string, { fairnessKey: string; turn: number }>();

  /** Gives turns to the runs that have passed their concurrency key, and takes them from those that are gone. */
  update(passed: readonly KeptRun[]): void {
    const groups = new Set<string>();
    for (const run of passed) {
      const { fairnessKey } = run.flow;
      if (fairnessKey === null) continue;
      const group = groupOf(run, fairnessKey);
      groups.add(group);
      if (!this.#given.has(group)) this.#given.set(group, { fairnessKey, turn: this.#joining(fairnessKey) });
    }
    for (const group of this.#given.keys()) if (!groups.has(group)) this.#given.delete(group);
    for (const [key, turn] of this.#next) if (turn <= this.#served) this.#next.delete(key);
  }

  /** The turn of a run that has passed its concurrency key. */
  of(run: KeptRun): number {
    const { fairnessKey } = run.flow;
    const given = fairnessKey === null ? undefined : this.#given.get(groupOf(run, fairnessKey));
    return given?.turn ?? this.#joining(fairnessKey);
  }

  /** Notes that a run is claimed in its turn. */
  serve(run: KeptRun): void {
    const { fairnessKey } = run.flow;
    const turn = this.of(run);
    this.#served = Math.max(this.#served, turn);
    this.#next.set(fairnessKey, turn + 1);
    if (fairnessKey === null) return;
    this.#given.delete(groupOf(run, fairnessKey));
    // Runs of other queues with the same key: the key has had this turn.
    for (const given of this.#given.values()) {
      if (given.fairnessKey === fairnessKey) given.turn = Math.max(given.turn, turn + 1);
    }
  }

  #joining(fairnessKey: string | null): number {
    return Math.max(this.#served, this.#next.get(fairnessKey) ?? 0);
  }
}

function groupOf(run: KeptRun, fairnessKey: string): string {
  return JSON.stringify([queueOf(run), fairnessKey]);
}

/** Finds the runs that a worker can claim, one after another. */
interface DueOrder {
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
    const group = groupOf(run, fairnessKey);
    if (seen.has(group)) return false;
    seen.add(group);
    return true;
  });
}
