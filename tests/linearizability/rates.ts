import type { Operation } from "./checker.ts";
import type { Fact } from "./facts.ts";
import { rateModel, type StartAsk, type Started } from "./rate_model.ts";
import { someTime } from "./service_client.ts";
import { judge, type Place, type Subject, unlessOpen } from "./subject.ts";

/** How many jobs have a rate, each for one examination at a time. */
export const RATED_JOBS = 3;
/** The rate of each of them. */
export const JOB_RATE = { limit: 4, period: 500 };
/** The rate of each concurrency key of the job "rated". */
export const KEY_RATE = { limit: 3, period: 400 };

const CLIENTS = 2;

/** Rates of concurrency keys and of jobs. */
export const RATES: Subject = {
  atOnce: 2 * RATED_JOBS,
  async examine({ of, place, chance, client, facts }: Place) {
    const isKey = place >= RATED_JOBS;
    let left = 8 + chance.int(10);
    await Promise.all(Array.from({ length: CLIENTS }, async () => {
      while (left-- > 0) {
        await client.ask("POST", "/trigger", {
          jobName: isKey ? "rated" : `rated-${place}`,
          input: { of, parts: 2, sleeps: chance.happens(0.3), seed: chance.int(2 ** 30) },
          labels: { of },
          ...(isKey ? { concurrencyKey: of } : {}),
        });
        await someTime(chance, chance.happens(0.2) ? 400 : 20);
      }
    }));
    const openRuns = await client.openRuns(of);
    return unlessOpen(judge(rateModel(isKey ? KEY_RATE : JOB_RATE), starts(facts.take(of))), openRuns);
  },
};

// An instant of the store is a whole number of milliseconds, rounded in whatever way.
const ROUNDED_MS = 1;

/** The starts of runs that were seen. One that nobody has seen, because its process was killed, only makes room for less. */
export function starts(facts: readonly Fact[]): Operation<StartAsk, Started>[] {
  return facts.filter((fact) => fact.is === "claimed").filter(({ isFirst }) => isFirst).map((fact) => {
    const [from, to] = [fact.from - ROUNDED_MS, fact.to + ROUNDED_MS];
    return { ask: { is: "start", run: fact.run, from, to }, told: "started", from, to };
  });
}
