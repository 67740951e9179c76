import type { Facts, RunFacts } from "./facts.ts";
import { lineOf, type Queue } from "./queue.ts";

// How often another key may be served while a key has a run that can be claimed.
const MOST_SERVED = 2;

/** The runs of one job and one fairness key that have passed their concurrency keys. */
interface Group {
  fairnessKey: string;
  runIds: Set<string>;
  /** When the first of them came: certainly not before, and certainly not after this number. */
  notBefore: number;
  notAfter: number;
  /** How often each other key was served since. */
  served: Map<string | null, number>;
}

/**
 * Counts for each fairness key how often others are served while it has a run that can be claimed. What others had a
 * turn for already when that run came does not count.
 */
export class FairnessWindows {
  readonly #groups = new Map<string, Group>();
  #no = 0;
  #lookedAt = -1;

  /** Looks at who has a run, at the beginning of a claim and after each run that it takes. */
  look(queue: Queue): void {
    this.#no += 1;
    const passed = new Map<string, Set<string>>();
    for (const run of queue.due) {
      const { id, flow: { fairnessKey } } = run.request;
      if (fairnessKey === null || !queue.passesKey(run, true)) continue;
      const runIds = passed.get(groupOf(run)) ?? new Set();
      passed.set(groupOf(run), runIds.add(id));
    }
    for (const name of this.#groups.keys()) if (!passed.has(name)) this.#groups.delete(name);
    for (const [name, runIds] of passed) {
      const before = this.#groups.get(name);
      if (before !== undefined && [...runIds].some((id) => before.runIds.has(id))) {
        before.runIds = runIds;
        continue;
      }
      const notBefore = before?.notBefore ?? this.#lookedAt;
      const fairnessKey = JSON.parse(name)[1] as string;
      this.#groups.set(name, { fairnessKey, runIds, notBefore, notAfter: this.#no, served: new Map() });
    }
    this.#lookedAt = this.#no;
  }

  /** A run of a concurrency key was added: it may have taken the place of another for a moment. */
  noteAdded(facts: Facts, key: string): void {
    for (const group of this.#groups.values()) {
      const isMeant = [...group.runIds].some((id) => facts.runs.get(id)?.request.concurrencyKey === key);
      if (isMeant) this.#restart(group);
    }
  }

  /** Nothing is certain any more. */
  forget(): void {
    this.#groups.clear();
    this.#lookedAt = -1;
  }

  /** Judges that a run is claimed, while these could be claimed; then the queue has to be looked at again. */
  serve(facts: Facts, run: RunFacts, candidates: readonly RunFacts[]): void {
    const { id, flow: { fairnessKey } } = run.request;
    const own = fairnessKey === null ? undefined : this.#groups.get(groupOf(run));
    const rivals = new Set(candidates.map(groupOf));
    for (const [name, group] of this.#groups) {
      if (group.fairnessKey === fairnessKey || !rivals.has(name)) continue;
      const hadTurnBefore = fairnessKey !== null && (own === undefined || own.notBefore < group.notAfter);
      if (hadTurnBefore) continue;
      facts.notice("fairness keys took turns");
      const count = (group.served.get(fairnessKey) ?? 0) + 1;
      group.served.set(fairnessKey, count);
      facts.expect(
        count <= MOST_SERVED,
        "F4",
        () => `${id} is the ${count}th run with fairness key ${fairnessKey} since ${[...group.runIds]} can be claimed`,
      );
    }
    if (fairnessKey === null) return;
    this.#groups.delete(groupOf(run));
    for (const group of this.#groups.values()) if (group.fairnessKey === fairnessKey) this.#restart(group);
    this.#no += 1;
    this.#lookedAt = this.#no;
  }

  #restart(group: Group): void {
    group.notAfter = this.#no + 1;
    group.served.clear();
  }
}

function groupOf(run: RunFacts): string {
  return JSON.stringify([lineOf(run), run.request.flow.fairnessKey]);
}
