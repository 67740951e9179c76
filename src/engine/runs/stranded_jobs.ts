import { pause } from "../../model/host.ts";
import type { Logger } from "../../model/logger.ts";
import type { StrandedJob } from "../../model/hold.ts";
import type { ExecutionDeps } from "../../execution/execution.ts";

const LOOK_EVERY_MS = 60_000;
// Workers that are started together have claimed before the first look.
const FIRST_LOOK_MS = 5_000;

type StrandedJobsDeps = Pick<ExecutionDeps, "store" | "hub" | "host"> & { logger: Logger };

/** Publishes `worker:stranded` once a minute while open runs have a job or version that no live worker knows. */
export async function watchStrandedJobs(deps: StrandedJobsDeps, abortSignal: AbortSignal): Promise<void> {
  const { store, hub, host, logger } = deps;
  const warned = new Set<string>();
  let waitMs = FIRST_LOOK_MS;
  while (!abortSignal.aborted) {
    await pause(host, waitMs, abortSignal).catch(() => {}); // ends early when the engine stops
    waitMs = LOOK_EVERY_MS;
    if (abortSignal.aborted) return;
    try {
      const jobs = await store.getStrandedJobs();
      if (jobs.length === 0) continue;
      if (hub.publishStranded(jobs)) continue;
      for (const job of jobs) {
        const key = JSON.stringify([job.jobName, job.version]);
        if (!warned.has(key)) logger.warn(explain(job));
        warned.add(key);
      }
    } catch (error) {
      hub.publishError(error);
    }
  }
}

function explain({ jobName, version, runs, oldestAt }: StrandedJob): string {
  const [count, wait] = runs === 1 ? ["1 run", "waits"] : [`${runs} runs`, "wait"];
  return `${count} of job "${jobName}" version ${version} ${wait} for a worker that knows it; the oldest since ${oldestAt}`;
}
