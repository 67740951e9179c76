import type { Model } from "./checker.ts";

/** Something that was seen of a run that wants one of the places of a lock: of a concurrency key, or of a limit. */
export type LockAsk =
  /** A worker claims it. It may if fewer than `room` others hold a place, or if it has kept its own. */
  | { is: "claim"; run: string; generation: number; room: number }
  /** Its lease counts. */
  | { is: "hold"; run: string; generation: number }
  /** It ends its lease to wait for the retry of a step, and keeps its place. */
  | { is: "park"; run: string; generation: number }
  /** It is cancelled. */
  | { is: "cancel"; run: string };

/** It was so. */
export type Seen = "seen";

/** A run: its newest lease that is known, and what holds its place. */
export interface Holder {
  run: string;
  generation: number;
  holdsBy: "lease" | "retry" | null;
}

/**
 * What a lock does that leases hold: it has places, and a place is free when its lease has ended or expired, at whatever
 * moment that was; but whoever has lost a lease never has it again. So a place is taken from a lease only when another run
 * needs it, and then it must never be seen to hold again. With one place it is a mutex.
 */
export const LOCK_MODEL: Model<readonly Holder[], LockAsk, Seen> = {
  first: [],
  key: (holders) => JSON.stringify(holders),
  isRead: ({ is }) => is === "hold",
  part: ({ run }) => run,
  next(holders, ask) {
    const own = holders.find(({ run }) => run === ask.run);
    const isOwn = own !== undefined && "generation" in ask && own.generation === ask.generation;
    switch (ask.is) {
      case "claim":
        return own !== undefined && own.generation >= ask.generation ? [] : claim(holders, own, ask);
      case "hold":
        return isOwn && own.holdsBy === "lease" ? [holders] : [];
      case "park":
        return isOwn && own.holdsBy === "lease" ? [replace(holders, { ...own, holdsBy: "retry" })] : [];
      case "cancel":
        // A lease goes on until its worker has noticed.
        return [own?.holdsBy === "retry" ? replace(holders, { ...own, holdsBy: null }) : holders];
    }
  },
};

function claim(
  holders: readonly Holder[],
  own: Holder | undefined,
  { run, generation, room }: Extract<LockAsk, { is: "claim" }>,
): (readonly Holder[])[] {
  const claimed: Holder = { run, generation, holdsBy: "lease" };
  const others = holders.filter((one) => one.run !== run && one.holdsBy !== null);
  const tooMany = own?.holdsBy === "retry" ? 0 : Math.max(0, others.length - room + 1);
  return choices(others.filter(({ holdsBy }) => holdsBy === "lease"), tooMany).map((lost) =>
    replace(holders.map((one) => lost.includes(one) ? { ...one, holdsBy: null } : one), claimed)
  );
}

/** All ways to choose so many of some items. */
function choices<T>(items: readonly T[], count: number): T[][] {
  if (count === 0) return [[]];
  return items.flatMap((item, no) => choices(items.slice(no + 1), count - 1).map((others) => [item, ...others]));
}

function replace(holders: readonly Holder[], holder: Holder): readonly Holder[] {
  return [...holders.filter(({ run }) => run !== holder.run), holder]
    .sort((one, other) => one.run < other.run ? -1 : 1); // the order says nothing
}
