import type { Chance } from "../support/chance.ts";
import { check, type Finding, type Model, type Operation, shrink } from "./checker.ts";
import type { Facts } from "./facts.ts";
import type { ServiceClient } from "./service_client.ts";

/** A kind of thing that the service has, and that is examined one by one. */
export interface Subject {
  /** How many of them are examined at the same time. Those have the places 0 to `atOnce - 1`. */
  atOnce: number;
  /** Lets clients ask for one of them, and judges what they were told. */
  examine(examination: Place): Promise<Judgement>;
}

/** What one of them is examined with. */
export interface Place {
  /** Its name, unlike those of all others. */
  of: string;
  /** Its place: no other that is examined at the same time has it. */
  place: number;
  /** What decides what is asked. */
  chance: Chance;
  client: ServiceClient;
  /** What the processes of the service have seen. */
  facts: Facts;
}

/** What was found out about one of them. */
export interface Judgement {
  operations: number;
  unanswered: number;
  finding: Finding;
  /** The part of its history that is not linearizable, one operation a line; or what else is wrong. */
  shown: string;
}

/** Judges a history by a model. */
export function judge<State, Ask, Told>(
  model: Model<State, Ask, Told>,
  history: readonly Operation<Ask, Told>[],
): Judgement {
  const finding = check(model, history);
  return {
    operations: history.length,
    unanswered: history.filter(({ told }) => told === null).length,
    finding,
    shown: finding === "not linearizable" ? describe(model, history) : "",
  };
}

/** The same judgement, unless some runs have not ended in time. */
export function unlessOpen(judgement: Judgement, openRuns: readonly string[]): Judgement {
  if (openRuns.length === 0) return judgement;
  const shown = ["these runs do not end", ...openRuns, judgement.shown].join("\n");
  return { ...judgement, finding: "not linearizable", shown };
}

/** The part of a history that is not linearizable, one operation a line, in milliseconds since the first of them. */
function describe<State, Ask, Told>(
  model: Model<State, Ask, Told>,
  history: readonly Operation<Ask, Told>[],
): string {
  const shrunk = shrink(model, history).toSorted((one, other) => one.from - other.from);
  // Those that were told nothing before, and may explain what others were told.
  const shown = shrunk.filter((one) => one.told !== null || (history.includes(one) && !model.isRead?.(one.ask)));
  const start = shown[0]?.from ?? 0;
  const lines = shown.map(({ ask, told, from, to }) =>
    `${(from - start).toFixed(1)} to ${(to - start).toFixed(1)}: ${JSON.stringify(ask)} -> ${
      told === null ? "nothing" : JSON.stringify(told)
    }`
  );
  return [...lines, `(of ${history.length} operations: the others contradict nothing)`].join("\n");
}
