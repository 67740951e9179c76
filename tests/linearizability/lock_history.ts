import type { Operation } from "./checker.ts";
import type { Fact } from "./facts.ts";
import type { LockAsk, Seen } from "./lock_model.ts";

/** A history of one lock. */
export type LockHistory = Operation<LockAsk, Seen>[];

/** A cancel that a client asked for; `to` is `Infinity` if it was told nothing. */
export interface Cancel {
  run: string;
  from: number;
  to: number;
}

// An instant of the store is a whole number of milliseconds, rounded in whatever way.
const ROUNDED_MS = 2;

/**
 * What the processes have seen of one lock. A lease counts when the store answers so, and on until its function ends or
 * the instant that the store answered as its end, whichever comes first: so a process that is suspended or killed counts
 * exactly as long as its lease was promised to it, and what it does later contradicts nothing.
 *
 * @param keepsWhileRetried Whether a run that waits for the retry of a step keeps its place.
 */
export function lockHistory(
  facts: readonly Fact[],
  keepsWhileRetried: boolean,
  cancels: readonly Cancel[],
): LockHistory {
  const history: LockHistory = cancels.map(({ run, from, to }) =>
    operation({ is: "cancel", run }, from, to, to !== Infinity)
  );
  for (const own of Map.groupBy(facts, ({ run, generation }) => `${run} ${generation}`).values()) {
    const until = Math.max(...own.map((fact) => "until" in fact ? fact.until : -Infinity)) - ROUNDED_MS;
    for (const fact of own) {
      const { run, generation } = fact;
      if (fact.is === "claimed") {
        history.push(operation({ is: "claim", run, generation, room: fact.room }, fact.from, fact.to));
      } else if (fact.is === "renewed") {
        history.push(operation({ is: "hold", run, generation }, fact.from, fact.to));
      } else if (fact.is === "entered") {
        const left = own.find((other) => other.is === "left" && other.id === fact.id) as { when: number } | undefined;
        const last = Math.min(left?.when ?? Infinity, until);
        if (last >= fact.when) history.push(operation({ is: "hold", run, generation }, last, last));
      } else if (fact.is === "parking" && fact.keeps && keepsWhileRetried) {
        const answer = own.find((other) => other.is === "parked" && other.id === fact.id);
        const parked = answer as Extract<Fact, { is: "parked" }> | undefined;
        if (parked?.isParked === false) continue;
        history.push(
          operation({ is: "park", run, generation }, fact.from, parked?.to ?? Infinity, parked !== undefined),
        );
      }
    }
  }
  return history;
}

function operation(ask: LockAsk, from: number, to: number, isSeen = true): Operation<LockAsk, Seen> {
  return { ask, told: isSeen ? "seen" : null, from, to };
}
