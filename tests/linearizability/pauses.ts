import type { Operation } from "./checker.ts";
import { PAUSE_MODEL, type PauseAsk, type PauseTold } from "./pause_model.ts";
import { type Answer, someTime } from "./service_client.ts";
import { judge, type Place, type Subject, unlessOpen } from "./subject.ts";

/** How many jobs can be paused, each for one examination at a time. */
export const PAUSED_JOBS = 4;

const CLIENTS = 3;
// `GET /jobs` answers what was read a second ago at most, for all who ask.
const SHARED_MS = 1_000;

/** Jobs that are paused and resumed. */
export const PAUSES: Subject = {
  atOnce: PAUSED_JOBS,
  async examine({ of, place, chance, client, facts }: Place) {
    const jobName = `paused-${place}`;
    const history: Operation<PauseAsk, PauseTold>[] = [];
    let notes = 0;
    /** Asks, and writes down what was told, and what the answer shows of the job. */
    const send = async (ask: PauseAsk, method: string, path: string, body?: unknown): Promise<Answer | null> => {
      const from = Date.now() - (ask.is === "read" ? SHARED_MS : 0);
      const operation: Operation<PauseAsk, PauseTold> = { ask, told: null, from, to: Infinity };
      history.push(operation);
      const answer = await client.ask(method, path, body);
      if (answer?.status !== 200) return null;
      const to = operation.to = Date.now();
      const job = Array.isArray(answer.body) ? answer.body.find((job) => job.jobName === jobName) : answer.body;
      const told: PauseTold = { note: job.paused?.note ?? null };
      // A pause is answered with the one that counts then.
      if (ask.is !== "read") history.push({ ask: { is: "read" }, told, from, to });
      operation.told = ask.is === "read" ? told : {};
      return answer;
    };
    const pause = () => {
      const note = `pause ${++notes}`;
      return send({ is: "pause", note }, "POST", `/jobs/pause?jobName=${jobName}`, { note });
    };
    const resume = () => send({ is: "resume" }, "POST", `/jobs/resume?jobName=${jobName}`);
    const trigger = () =>
      client.ask("POST", "/trigger", {
        jobName,
        input: { of, parts: 2, longestMs: 40, sleeps: chance.happens(0.5), seed: chance.int(2 ** 30) },
        labels: { of },
      });
    let left = 12 + chance.int(12);
    await Promise.all(Array.from({ length: CLIENTS }, async () => {
      while (left-- > 0) {
        await chance.weighted<() => Promise<unknown>>([
          [4, trigger],
          [2, pause],
          [3, resume],
          [1, () => send({ is: "read" }, "GET", "/jobs")],
        ])();
        await someTime(chance, 80);
      }
    }));
    // A pause that was told nothing may still be made: after the last resume it would keep the runs from ending, and the
    // next examination of the job from being right.
    do await client.settle(); while (await resume() === null);
    // The next examination of the job must not be shown a pause of this one.
    await new Promise((resolve) => setTimeout(resolve, SHARED_MS));
    const openRuns = await client.openRuns(of);
    for (const fact of facts.take(of)) {
      if (fact.is !== "claimed") continue;
      const { run, generation, from, to } = fact;
      history.push({ ask: { is: "claim", run, generation }, told: {}, from, to });
    }
    return unlessOpen(judge(PAUSE_MODEL, history), openRuns);
  },
};
