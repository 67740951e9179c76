import { type Cancel, lockHistory } from "./lock_history.ts";
import { LOCK_MODEL } from "./lock_model.ts";
import { someTime } from "./service_client.ts";
import { judge, type Place, type Subject, unlessOpen } from "./subject.ts";

/** How many jobs have a limit, each for one examination at a time. */
export const LIMITED_JOBS = 4;
/** The limit of each of them. */
export const JOB_LIMIT = 2;
/** How many runs of the job "shared" may hold a key at once. */
export const SHARED_ROOM = 3;

const KEY_JOBS = [["alone"], ["shared"], ["alone", "shared"]] as const;
const ROOMS: Record<string, number> = { alone: 1, shared: SHARED_ROOM };
const CLIENTS = 3;

/** Concurrency keys of one run or several at once, and limits of jobs. */
export const LOCKS: Subject = {
  atOnce: 2 * LIMITED_JOBS,
  async examine({ of, place, chance, client, facts }: Place) {
    const isKey = place >= LIMITED_JOBS;
    const jobs = isKey ? chance.pick(KEY_JOBS) : [`limited-${place}`];
    const cancels: Cancel[] = [];
    const runs: string[] = [];
    let left = 5 + chance.int(6);
    const trigger = async () => {
      const jobName = chance.pick(jobs);
      const work = { parts: 1 + chance.int(3), isRetried: chance.happens(0.15), sleeps: chance.happens(0.2) };
      const answer = await client.ask("POST", "/trigger", {
        jobName,
        input: {
          of,
          room: isKey ? ROOMS[jobName] : JOB_LIMIT,
          ...work,
          longestMs: chance.pick([40, 80, 250]),
          seed: chance.int(2 ** 30),
        },
        labels: { of },
        ...(isKey ? { concurrencyKey: of } : {}),
      });
      if (answer?.status === 200) runs.push(answer.body.runId);
    };
    const cancel = async () => {
      const run = chance.pick(runs);
      const cancel: Cancel = { run, from: Date.now(), to: Infinity };
      cancels.push(cancel);
      const answer = await client.ask("POST", `/cancel?runId=${run}`);
      if (answer?.status === 200) cancel.to = Date.now();
      else if (answer !== null) cancels.splice(cancels.indexOf(cancel), 1); // it was refused
      if (chance.happens(0.5)) await client.ask("DELETE", `/run?runId=${run}`);
    };
    await Promise.all(Array.from({ length: CLIENTS }, async () => {
      while (left-- > 0) {
        await (runs.length > 0 && chance.happens(0.3) ? cancel() : trigger());
        await someTime(chance, 60);
      }
    }));
    const openRuns = await client.openRuns(of);
    return unlessOpen(judge(LOCK_MODEL, lockHistory(facts.take(of), isKey, cancels)), openRuns);
  },
};
