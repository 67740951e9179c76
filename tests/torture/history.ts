import { hashText } from "../support/chance.ts";
import type { Placed } from "./fact.ts";
import { FAILING_JOB } from "./jobs.ts";
import type { RunRows } from "./rows.ts";
import type { Tally } from "./tally.ts";

/** What is kept of a run that has ended and was checked. */
export interface Settled {
  status: string;
  generation: number;
  /** Of all its rows, none of which may change any more. */
  hash: number;
  /** Hashes of its steps with their values. */
  steps: number[];
}

/** What the workers have written down, as far as it still has to be judged. */
export class History {
  readonly #open = new Map<string, Placed[]>();
  readonly #settled = new Map<string, Settled>();
  readonly #inheritable = new Map<string, Set<string>>();
  readonly #tally: Tally;
  readonly #onProblem: (message: string, run: string | null, facts: Placed[]) => void;
  readonly #suspended = new Set<number>();
  readonly #blocks = new Map<number, { from: number; until: number }[]>();
  #longestGap = { wallMs: 0, cpuMs: 0 };

  /** @param onProblem Hears of what came after the end of a run and cannot be, and of what no worker may complain of. */
  constructor(tally: Tally, onProblem: (message: string, run: string | null, facts: Placed[]) => void) {
    this.#tally = tally;
    this.#onProblem = onProblem;
  }

  /** The facts of runs that have not ended, or were not checked yet. */
  get open(): ReadonlyMap<string, readonly Placed[]> {
    return this.#open;
  }

  /** The runs that have ended and were checked. */
  get settled(): ReadonlyMap<string, Settled> {
    return this.#settled;
  }

  /**
   * Takes note that a process is about to be suspended. From then on the gaps of its event loop are not counted: they
   * could be that suspension.
   */
  noteSuspension(pid: number): void {
    this.#suspended.add(pid);
  }

  /** The longest time for which an event loop stood still, and not on purpose. */
  get longestGap(): { wallMs: number; cpuMs: number } {
    return this.#longestGap;
  }

  /** Whether a process blocked its event loop on purpose at some time between two instants. */
  wasBlocked(pid: number, from: number, until: number): boolean {
    return (this.#blocks.get(pid) ?? []).some((block) => block.from < until && from < block.until);
  }

  /** The values that a run may have been given by an older one of the same token. */
  inheritedBy(run: RunRows): ReadonlySet<string> {
    return this.#inheritable.get(run.input.token) ?? new Set();
  }

  /** Takes facts in. Those of settled runs were written after the end of the run had been seen. */
  take(facts: readonly Placed[]): void {
    for (const fact of facts) {
      this.#count(fact);
      if (fact.is === "gap") {
        if (!this.#suspended.has(fact.pid) && fact.wallMs > this.#longestGap.wallMs) {
          this.#longestGap = { wallMs: fact.wallMs, cpuMs: fact.cpuMs };
        }
      } else if (fact.is === "block") {
        const blocks = this.#blocks.get(fact.pid) ?? [];
        this.#blocks.set(fact.pid, [...blocks, { from: fact.from, until: fact.from + fact.ms }]);
      } else if (fact.is === "error") {
        if (!fact.isExpected) this.#onProblem(`a worker complained of ${fact.message}`, null, [fact]);
      } else {
        const settled = this.#settled.get(fact.run);
        const open = this.#open.get(fact.run);
        if (settled !== undefined) this.#judgeLate(fact, settled);
        else if (open === undefined) this.#open.set(fact.run, [fact]);
        else open.push(fact);
      }
    }
  }

  /** Takes note that a run has ended as it should. */
  settle(run: RunRows): void {
    const { id, status, generation, hash, steps, input } = run;
    this.#open.delete(id);
    this.#settled.set(id, { status, generation, hash, steps: steps.map(({ name, value }) => hashStep(name, value)) });
    if (run.job !== FAILING_JOB) return;
    const values = this.#inheritable.get(input.token) ?? new Set();
    for (const { value } of steps) if (value !== null) values.add(value);
    this.#inheritable.set(input.token, values);
  }

  #judgeLate(fact: Extract<Placed, { run: string }>, { status, generation, steps }: Settled): void {
    if (fact.is === "begin" || fact.is === "start") {
      // Who executed a run that was cancelled need not have noticed yet.
      const isTooNew = status === "cancelled" ? fact.generation > generation : fact.generation >= generation;
      if (isTooNew) this.#onProblem(`a ${fact.is} came after the run was ${status}`, fact.run, [fact]);
    } else if (fact.is === "ack" && fact.isLast && !steps.includes(hashStep(fact.step, fact.value))) {
      this.#onProblem("a step was acknowledged after the end of the run, and is not recorded", fact.run, [fact]);
    } else if (fact.is === "over" && fact.status !== status) {
      this.#onProblem(`the run was ${status}, and is said to be ${fact.status}`, fact.run, [fact]);
    }
  }

  #count(fact: Placed): void {
    if (fact.is === "start") this.#tally.add("steps started");
    else if (fact.is === "ack") this.#tally.add("steps recorded");
    else if (fact.is === "refused") this.#tally.add("stale writes refused");
    else if (fact.is === "replay" || fact.is === "outcome") this.#tally.add("steps and waits replayed");
    else if (fact.is === "error") this.#tally.add("complaints of workers");
  }
}

function hashStep(name: string, value: string | null): number {
  return hashText(`${name} ${value}`);
}
