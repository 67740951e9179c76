import type { Run, Step } from "../../../mod.ts";

/** An item of the torture: it says which attempt has written it, and how many items that attempt was to write. */
export interface Said {
  /** The number of its step in its branch. */
  step: number;
  /** The attempt, which no other one is called. */
  attempt: string;
  /** Its number among those of the attempt. */
  no: number;
  /** How many items the attempt writes if it completes. */
  of: number;
}

/** What a step returns. */
export interface Spoken {
  /** The attempt that completed. */
  attempt: string;
  /** How many items it has written. */
  of: number;
}

/** The branches of a run: each writes a stream of its name, by steps one after another. */
export const BRANCHES = ["left", "right"] as const;

/** How many steps a branch has. */
export const STEPS = 3;

/** What is wrong with the items that a reader has after a part: a mixture of attempts, a gap, a repetition; `null`: nothing. */
export function findMixture(list: readonly Said[]): string | null {
  let last: Said | null = null;
  for (const [at, item] of list.entries()) {
    const goesOn = last !== null && item.attempt === last.attempt;
    const isNext = goesOn
      ? item.step === last!.step && item.no === last!.no + 1
      : item.no === 0 && item.step === (last?.step ?? -1) + 1 && (last === null || last.no === last.of - 1);
    if (!isNext) return `item ${at}, ${JSON.stringify(item)}, follows ${JSON.stringify(last)}`;
    last = item;
  }
  return null;
}

/** What is wrong with the items of a stream of a run that has ended; `null`: nothing. */
export function findDifference(list: readonly Said[], branch: string, run: Run, steps: readonly Step[]): string | null {
  const mixture = findMixture(list);
  if (mixture !== null) return mixture;
  const recorded = Array.from({ length: STEPS }, (_, no) => steps.find(({ name }) => name === `${branch}-${no}`))
    .filter((step) => step?.status === "completed")
    .map((step) => step!.output as unknown as Spoken); // the steps of this job return it
  const permanent = recorded.flatMap(({ attempt, of }) => Array.from({ length: of }, (_, no) => `${attempt} ${no}`));
  const items = list.map(({ attempt, no }) => `${attempt} ${no}`);
  if (permanent.some((item, at) => items[at] !== item)) {
    return `${permanent.length} items are recorded, and ${items.length} others are there`;
  }
  const isLonger = items.length > permanent.length;
  if (run.status === "completed" && (isLonger || recorded.length < STEPS)) return "a completed run has other items";
  return null;
}
