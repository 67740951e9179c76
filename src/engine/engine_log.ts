import type { Hub } from "../events/hub.ts";
import type { ExecutionDeps } from "../execution/execution.ts";
import { StoreError } from "../model/error.ts";
import { describeFailedRun, failureReport } from "../model/failure.ts";
import { toFailure } from "../model/to_failure.ts";
import type { StrandedJob } from "../model/hold.ts";
import { type Host, pause } from "../model/host.ts";
import type { JobCatalog } from "../model/job/job_catalog.ts";
import type { Logger } from "../model/logger.ts";
import type { Store } from "../store/store.ts";
import { describeDuration } from "../values/duration.ts";
import { isInstance } from "../values/unknown_values.ts";

/** Logs the runs that fail or are held in this process, and the errors of the engine itself. */
export function logFailures(hub: Hub, logger: Logger, outages: OutageLog): void {
  hub.on("run:fail", ({ runId, jobName, failedStepName: stepName, error, ...event }) => {
    const why = "thrown" in event ? failureReport(toFailure(event.thrown)) : error;
    logger.error(`${describeFailedRun({ runId, jobName, stepName })}: ${why}`);
  });
  hub.on("run:hold", ({ runId, jobName, message }) => {
    logger.warn(`Run "${runId}" of job "${jobName}" does not go on. ${message}`);
  });
  hub.on("worker:error", ({ error }) => {
    if (isInstance(error, StoreError) && error.code === "unavailable") return outages.noteFailure(error);
    logger.error(`The engine continues after an error: ${failureReport(toFailure(error))}`);
  });
}

const LINE_EVERY_MS = 60_000;
// Calls that are answered between others that fail are not the end of an outage: longer than any pause between two tries.
const QUIET_MS = 15_000;

/**
 * Logs that the store does not answer: a line when that begins, one a minute while it lasts, and one when it has ended.
 * Everything that calls the store fails meanwhile, and a line for each would fill a disk.
 */
export class OutageLog {
  readonly #logger: Logger;
  readonly #host: Pick<Host, "monotonic">;
  /** `isAnswered`: a call was answered since the last one that failed. */
  #outage: { since: number; loggedAt: number; failedAt: number; failures: number; isAnswered: boolean } | null = null;

  /** Creates the log of an engine, and of the handlers that serve it. */
  constructor(logger: Logger, host: Pick<Host, "monotonic">) {
    this.#logger = logger;
    this.#host = host;
  }

  /** Something failed because the store did not answer. */
  noteFailure({ message }: Error): void {
    const now = this.#host.monotonic();
    if (this.#outage?.isAnswered) this.noteAnswer(); // it may have ended long ago, with no call since
    if (this.#outage === null) {
      this.#outage = { since: now, loggedAt: now, failedAt: now, failures: 1, isAnswered: false };
      return this.#logger.error(`The store does not answer; work goes on when it does. ${message}`);
    }
    const { since, loggedAt } = this.#outage;
    const failures = ++this.#outage.failures;
    this.#outage.failedAt = now;
    this.#outage.isAnswered = false;
    if (now - loggedAt < LINE_EVERY_MS) return;
    this.#outage.loggedAt = now;
    this.#logger.error(
      `The store has not answered for ${describeDuration(now - since)}, ${failures} times. ${message}`,
    );
  }

  /** The store has answered. */
  noteAnswer(): void {
    if (this.#outage === null) return;
    this.#outage.isAnswered = true;
    const { since, failedAt, failures } = this.#outage;
    if (this.#host.monotonic() - failedAt < QUIET_MS) return;
    this.#outage = null;
    const past = failures === 1
      ? "One call has failed"
      : `It did not for ${describeDuration(failedAt - since)}, ${failures} times`;
    this.#logger.warn(`The store answers again. ${past}`);
  }
}

const LOOK_EVERY_MS = 60_000;
// Workers that are started together have claimed before the first look.
const FIRST_LOOK_MS = 5_000;

/** Publishes `worker:stranded` once a minute while open runs have a job or version that no live worker knows. */
export async function watchStrandedJobs(
  { store, hub, host }: Pick<ExecutionDeps, "store" | "hub" | "host">,
  logger: Logger,
  abortSignal: AbortSignal,
): Promise<void> {
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

const PAGE_LENGTH = 262_144;

/**
 * Logs how many messages the runs that end in this process leave unread, of the jobs that take messages.
 *
 * @param inBackground Takes work that a stop waits for.
 */
export function logUnread(
  { store, hub }: Pick<ExecutionDeps, "store" | "hub">,
  jobs: JobCatalog,
  logger: Logger,
  inBackground: (work: Promise<unknown>) => void,
): void {
  // Who takes no messages does not pay for events that nobody else hears.
  if (![...jobs.newest.values()].some((job) => Object.keys(job.messages).length > 0)) return;
  const look = async (runId: string) => {
    const count = await countUnread(store, runId);
    if (count === 0) return;
    logger.warn(`Run "${runId}" ended with ${count} unread ${count === 1 ? "message" : "messages"}`);
  };
  for (const type of ["run:complete", "run:fail", "run:cancel"] as const) {
    hub.on(type, ({ runId, jobName }) => {
      if (Object.keys(jobs.find(jobName)?.job.messages ?? {}).length > 0) inBackground(look(runId));
    });
  }
}

async function countUnread(store: Store, runId: string): Promise<number> {
  let count = 0;
  for (let after: string | null = null, hasMore = true; hasMore;) {
    const part = await store.readMessages(runId, after, PAGE_LENGTH);
    if (part === null || part.items.length === 0) break;
    count += part.items.filter(({ status }) => status === "closed").length;
    after = part.items.at(-1)!.id; // it is not empty
    ({ hasMore } = part);
  }
  return count;
}
