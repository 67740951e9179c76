import type { Placed } from "../fact.ts";
import type { RunRows } from "../rows.ts";

/**
 * A stretch of the ledger in which a run was surely held under one lease: from the first line of its body to the last
 * one that came before a write which the store accepted. Both lie between the claim and that write, and a write is
 * accepted only as long as nobody else has claimed the run or its key: so no process and no clock has to be believed,
 * and it does not matter who was suspended or killed meanwhile.
 *
 * It is shorter than the time for which the run holds its key. A run that is cancelled keeps its key while its steps go
 * on, but nothing that they write is accepted any more: that it lets go too soon is not seen here. The simulation looks
 * for that.
 */
export interface Tenure {
  run: string;
  generation: number;
  /** The concurrency key of the run. */
  key: string | null;
  /** The first line of it. */
  from: number;
  /** The last line of it. */
  until: number;
}

/** The tenures of a run, by what a ledger says of it and what is recorded. */
export function findTenures(facts: readonly Placed[], run: RunRows): Tenure[] {
  const bodies = findBodies(facts, run);
  // A body alone proves nothing: its worker can have been suspended between the claim and its first line, until long
  // after somebody else had claimed the run, or its key.
  const proven = [...bodies.values()].filter(({ isProven }) => isProven);
  for (const { tenure } of proven) {
    const before = bodies.get(tenure.generation - 1);
    // Only a park leads to the very next generation, and one for a retry keeps the key.
    if (before?.isProven && before.isParked) before.tenure.until = tenure.from - 1;
  }
  return proven.map(({ tenure }) => tenure);
}

/**
 * Looks for writes to a run that were accepted after the body of a newer lease had begun: whoever begins has claimed
 * before, and from then on every older lease is stale.
 *
 * @returns What is wrong.
 */
export function findStaleWrites(facts: readonly Placed[], run: RunRows): string[] {
  const bodies = [...findBodies(facts, run).values()];
  return bodies.filter(({ isProven }) => isProven).flatMap(({ tenure: older }) =>
    bodies
      .filter(({ tenure: { generation, from } }) => generation > older.generation && from < older.until)
      .map(({ tenure }) => `a write of ${describe(older)} was accepted after ${describe(tenure)} had begun`)
  );
}

function findBodies(facts: readonly Placed[], run: RunRows): Map<number, Body> {
  const accepted = new Map<string, { isLast: boolean }>();
  for (const { name, value, status } of run.steps) {
    if (value !== null) accepted.set(`${name} ${value}`, { isLast: status !== "retrying" });
  }
  for (const fact of facts) if (fact.is === "ack") accepted.set(`${fact.step} ${fact.value}`, fact);
  const bodies = new Map<number, Body>();
  for (const fact of facts) {
    if (fact.is === "begin" && !bodies.has(fact.generation)) {
      const { run, generation, key, at } = fact;
      bodies.set(generation, {
        tenure: { run, generation, key, from: at, until: at },
        isProven: false,
        isParked: false,
      });
    }
    const body = "generation" in fact ? bodies.get(fact.generation) : undefined;
    if (body === undefined) continue;
    const write = fact.is === "done" ? accepted.get(`${fact.step} ${fact.value}`) : undefined;
    const isEnding = fact.is === "end" && fact.generation === run.generation && hasReturned(run);
    if (write === undefined && !isEnding) continue;
    body.tenure.until = fact.at;
    body.isProven = true;
    body.isParked = write !== undefined && !write.isLast;
  }
  return bodies;
}

/** A body under one lease, as far as it is known. */
interface Body {
  tenure: Tenure;
  /** Whether a write under its lease was accepted after its first line. */
  isProven: boolean;
  /** Whether the last such write was one after which another attempt follows. */
  isParked: boolean;
}

function hasReturned({ status }: RunRows): boolean {
  return status === "completed" || status === "failed";
}

/**
 * Looks for tenures of different runs with one concurrency key that overlap.
 *
 * @returns What is wrong.
 */
export function checkTenures(tenures: readonly Tenure[]): string[] {
  const sorted = [...tenures].sort((left, right) => left.from - right.from);
  const problems: string[] = [];
  let longest: Tenure | null = null;
  for (const tenure of sorted) {
    if (longest !== null && tenure.from <= longest.until) {
      problems.push(`${describe(longest)} was held until after ${describe(tenure)} had been claimed`);
    }
    if (longest === null || tenure.until > longest.until) longest = tenure;
  }
  return problems;
}

function describe({ run, generation, key, from, until }: Tenure): string {
  return `run ${run}${key === null ? "" : ` of key "${key}"`} under lease ${generation} (lines ${from} to ${until})`;
}
