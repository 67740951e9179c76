import type { KnownJob } from "../../../flow.ts";
import type { ClaimRequest } from "../../../store/claim.ts";
import type { JobPause } from "../../../store/job_pause.ts";
import { isOrphan } from "../children.ts";
import type { DueRuns } from "./due_runs.ts";
import { jobScope, type MemoryRates } from "./rates.ts";
import { type KeptRun, queueOf } from "../records.ts";
import type { MemoryRuns } from "../runs.ts";
import { queueName } from "../../queue_name.ts";

/** What the gates of a claim look at. */
export interface GatesContext {
  /** The runs of the store. */
  runs: MemoryRuns;
  /** The starts under rates. */
  rates: MemoryRates;
  /** The paused jobs. */
  paused: ReadonlyMap<string, JobPause>;
  /** The queues from which live workers claim. */
  liveQueues: ReadonlySet<string>;
}

/** The gates that a due run passes before a worker can claim it, but for the turns of fairness keys. */
export class Gates {
  /** The jobs of the worker by the queues from which it claims. */
  readonly #jobs: ReadonlyMap<string, KnownJob>;
  /** How many runs of each limited job are executed, or may still be after a cancel. */
  readonly #inUse = new Map<string, number>();
  readonly #context: GatesContext;
  readonly #due: DueRuns;
  readonly #now: number;

  constructor(request: ClaimRequest, due: DueRuns, context: GatesContext, now: number) {
    this.#jobs = new Map(request.jobs.flatMap((job) => queuesOf(job).map((queue) => [queue, job])));
    this.#due = due;
    this.#context = context;
    this.#now = now;
    const isLimited = request.jobs.some(({ concurrency }) => concurrency !== null);
    if (!isLimited) return;
    const { open, keys } = context.runs;
    for (const { jobName, lease } of open) if (lease !== null) this.countTaken(jobName);
    for (const { jobName } of keys.ghosts) this.countTaken(jobName);
  }

  /** Notes that another run of a job is executed. */
  countTaken(jobName: string): void {
    this.#inUse.set(jobName, (this.#inUse.get(jobName) ?? 0) + 1);
  }

  /**
   * When the worker can claim a run if nothing but time changes: an instant that has passed if it can be claimed now;
   * `Infinity` while something other than a rate holds it up.
   */
  opensAt(run: KeptRun): number {
    const job = this.#jobs.get(queueOf(run));
    if (job === undefined || this.#context.paused.has(job.name)) return Infinity;
    if (isOrphan(run)) return Infinity; // the next claims cancel it
    if (job.concurrency !== null && this.#countExecuted(job) >= job.concurrency) return Infinity;
    const keyOpensAt = this.#due.keyOpensAt(run);
    if (keyOpensAt === Infinity || this.#isBehindOtherQueue(run)) return Infinity;
    return Math.max(keyOpensAt, this.rateOpensAt(run));
  }

  #countExecuted({ names }: KnownJob): number {
    return names.reduce((count, name) => count + (this.#inUse.get(name) ?? 0), 0);
  }

  /** When the rate of its job lets a run pass: an instant that has passed if it can pass now. */
  rateOpensAt(run: KeptRun): number {
    const job = this.#jobs.get(queueOf(run));
    if (job === undefined || job.rate === null || run.startedAt !== null) return -Infinity;
    return this.#context.rates.opensAt(jobScope(job.names[0]), job.rate);
  }

  /**
   * Whether a run of another queue comes first in the line of the key: one that only other workers can claim, or one
   * that the key has no room for yet. A queue that no live worker knows, or of a paused job, holds up nobody.
   */
  #isBehindOtherQueue(run: KeptRun): boolean {
    const { liveQueues, paused } = this.#context;
    return this.#due.firstsBefore(run).some((first) =>
      liveQueues.has(queueOf(first)) && !paused.has(first.jobName) &&
      (!this.#jobs.has(queueOf(first)) || this.#due.keyOpensAt(first) > this.#now)
    );
  }
}

/** The queues from which a worker claims that knows a version of a job: its runs, and those offered to its print. */
export function queuesOf({ name, version, print }: Pick<KnownJob, "name" | "version" | "print">): string[] {
  return [queueName(name, version), queueName(name, version, print)];
}
