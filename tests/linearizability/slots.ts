import type { Operation } from "./checker.ts";
import type { Fact } from "./facts.ts";
import { someTime } from "./service_client.ts";
import { type Done, SLOT_MODEL, type SlotAsk } from "./slot_model.ts";
import { judge, type Place, type Subject, unlessOpen } from "./subject.ts";

/** How many schedules there are, each for one examination at a time. */
export const SCHEDULES = 12;

const FOR_MS = [5_000, 10_000] as const;

/** The name of the schedule of a place, which the inputs and the labels of its runs have, too. */
export function scheduleName(place: number): string {
  return `tick-${place}`;
}

/** Schedules with a slot each second, that are paused and resumed. */
export const SLOTS: Subject = {
  atOnce: SCHEDULES,
  async examine({ place, chance, client, facts }: Place) {
    const name = scheduleName(place);
    const history: Operation<SlotAsk, Done>[] = [];
    /** Asks, and writes down whether it was told that it is done. */
    const send = async (is: "pause" | "resume"): Promise<boolean> => {
      const from = Date.now();
      const operation: Operation<SlotAsk, Done> = { ask: { is: "pause" }, told: null, from, to: Infinity };
      if (is === "resume") operation.ask = { is, from, to: Infinity };
      history.push(operation);
      const answer = await client.ask("POST", `/schedules/${is}?name=${name}`);
      if (answer?.status !== 200) return false;
      const to = operation.to = Date.now();
      operation.told = "done";
      if (is === "resume") operation.ask = { is, from, to };
      return true;
    };

    // It has fired since the last examination: what is before this pause is of no interest.
    while (!await send("pause")) await someTime(chance, 200);
    const begin = history[0]!.from;
    const end = Date.now() + chance.between(...FOR_MS);
    while (Date.now() < end) {
      await send(chance.happens(0.7) ? "resume" : "pause");
      await someTime(chance, 2_500);
    }
    // A resume that was told nothing may still be made, and would be one of the next examination.
    do await client.settle(); while (!await send("pause"));
    const openRuns = await client.openRuns(name);
    return unlessOpen(judge(SLOT_MODEL, [...history, ...fires(facts.take(name), begin)]), openRuns);
  },
};

/** The runs of the slots from an instant on: each was made between its slot and its first claim that was seen. */
export function fires(facts: readonly Fact[], begin: number): Operation<SlotAsk, Done>[] {
  const claims = facts.filter((fact) => fact.is === "claimed").filter(({ slot }) => slot !== null && slot >= begin);
  return [...Map.groupBy(claims, ({ run }) => run)].map(([run, claims]) => {
    const slot = claims[0]!.slot!;
    const by = Math.min(...claims.map(({ to }) => to));
    return { ask: { is: "fire", slot, run, by }, told: "done", from: Math.min(slot, by), to: by };
  });
}
