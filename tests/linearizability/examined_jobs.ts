import { type DeclaredSchedule, defineJob, type Job, type StepContext } from "../../mod.ts";
import { anything } from "../processes/anything.ts";
import { Chance } from "../support/chance.ts";
import type { Fact } from "./facts.ts";
import { JOB_LIMIT, LIMITED_JOBS, SHARED_ROOM } from "./locks.ts";
import { PAUSED_JOBS } from "./pauses.ts";
import { JOB_RATE, KEY_RATE, RATED_JOBS } from "./rates.ts";
import { scheduleName, SCHEDULES } from "./slots.ts";
import type { GivenInput } from "./witnessed_store.ts";

/** What the body of a run is to do. */
export interface Work extends GivenInput {
  /** How many steps it has. */
  parts?: number;
  /** How long each of them takes at most, in milliseconds. */
  longestMs?: number;
  /** Whether the first attempt at its first step fails, and it waits for the second one without a lease. */
  isRetried?: boolean;
  /** Whether it sleeps after its first step. */
  sleeps?: boolean;
  /** What decides how long its steps take. */
  seed?: number;
}

// Longer than a second: such a retry parks the run.
const RETRY = { maxAttempts: 2, delay: 1_050, jitter: 0 };

/** The jobs whose runs are examined; their bodies write down when their functions are executed. */
export function examinedJobs(write: (fact: Fact) => void): Record<string, Job<Work, void>> {
  const job = (name: string, limits: NonNullable<Parameters<typeof defineJob>[0]["limits"]>) =>
    defineJob({ name, input: anything<Work>(), limits, run: (step, input) => work(step, input as Work, write) });
  const jobs = [
    job("alone", {}),
    job("shared", { perKey: { concurrency: SHARED_ROOM } }),
    job("rated", { perKey: { concurrency: 100, rate: KEY_RATE } }),
    ...several(LIMITED_JOBS, (no) => job(`limited-${no}`, { concurrency: JOB_LIMIT })),
    ...several(RATED_JOBS, (no) => job(`rated-${no}`, { rate: JOB_RATE })),
    ...several(PAUSED_JOBS, (no) => job(`paused-${no}`, {})),
    job("tick", {}),
  ];
  return Object.fromEntries(jobs.map((job) => [job.name, job]));
}

/** The schedules whose slots are examined, one each second. */
export function examinedSchedules(): Record<string, DeclaredSchedule<Record<never, never>>> {
  return Object.fromEntries(
    several(SCHEDULES, scheduleName).map((of) => [of, {
      job: "tick",
      input: { of },
      labels: { of },
      cron: "* * * * * *",
      catchUp: "all",
      overlap: "allow",
    }]),
  );
}

async function work(step: StepContext, input: Work, write: (fact: Fact) => void): Promise<void> {
  const { of, generation, parts = 1, longestMs = 20, isRetried = false, sleeps = false, seed = 0 } = input;
  const about = { of, run: step.runId, generation };
  for (let part = 0; part < parts; part++) {
    const fails = isRetried && part === 0;
    await step.run(`part ${part}`, async ({ attempt, abortSignal }) => {
      const chance = new Chance(seed, part, attempt, generation);
      const id = crypto.randomUUID();
      write({ is: "entered", ...about, id, when: Date.now() });
      try {
        // Some functions end when they should, others go on.
        await pause(chance.int(longestMs), chance.happens(0.5) ? abortSignal : undefined);
        if (fails && attempt === 1) throw new Error("The first attempt fails");
      } finally {
        write({ is: "left", ...about, id, when: Date.now() });
      }
    }, fails ? { retry: RETRY } : {});
    if (sleeps && part === 0) await step.sleep("nap", 20);
  }
}

async function pause(ms: number, abortSignal?: AbortSignal): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, ms));
  abortSignal?.throwIfAborted();
}

function several<T>(count: number, make: (no: number) => T): T[] {
  return Array.from({ length: count }, (_, no) => make(no));
}
