import type { RawDatabase, RawRun } from "./raw_database.ts";

/** How raw SQLite works runs off. */
export interface RawDrainOptions {
  /** The job whose runs they are. */
  job: string;
  /** How many steps each has. */
  steps: number;
  /** How many runs go side by side: what they do at the same moment shares a transaction. */
  concurrency: number;
  /** Is awaited after each transaction. Default: nothing. */
  between?: () => Promise<void>;
}

/**
 * Works off all pending runs of a job as well as it can be done: so many are claimed by one statement, then each
 * round records the same step of all of them in one transaction, and the last one ends them.
 *
 * @returns How many runs there were.
 */
export async function rawDrain(raw: RawDatabase, options: RawDrainOptions): Promise<number> {
  const { job, steps, concurrency, between } = options;
  const record = async (write: (run: RawRun) => void, runs: readonly RawRun[]) => {
    raw.transaction(() => {
      for (const run of runs) write(run);
    });
    if (between !== undefined) await between();
  };
  let drained = 0;
  while (true) {
    const runs = raw.transaction(() => raw.claim(job, concurrency));
    if (between !== undefined) await between();
    if (runs.length === 0) return drained;
    for (let step = 0; step < steps; step++) {
      await record((run) => raw.recordStep(run, `step ${step}`, JSON.stringify(step)), runs);
    }
    await record((run) => raw.complete(run, null), runs);
    drained += runs.length;
  }
}
