import type { KnownJob } from "../../../model/flow.ts";
import type { ClaimRequest } from "../../../store/claim.ts";
import type { JobPause } from "../../../store/operate.ts";
import { isoTime } from "../../../values/iso_time.ts";
import { aloneQueue, isAloneQueue, queueName } from "../../queue_name.ts";
import { isOrphan } from "../children.ts";
import { type KeptRun, nextDeadline, queueOf } from "../records.ts";
import type { MemoryRuns } from "../runs.ts";
import type { DueRuns } from "./due_runs.ts";
import { jobScope, type MemoryRates } from "./rates.ts";

/** What the gates of a claim look at. */
interface GatesContext {
  /** The runs of the store. */
  runs: MemoryRuns;
  /** The starts under rates. */
  rates: MemoryRates;
  /** The paused jobs. */
  paused: ReadonlyMap<string, JobPause>;
  /** The jobs of live workers, those of the claiming one included. */
  liveJobs: readonly KnownJob[];
}

/** The gates that a due run passes before a worker can claim it, but for the turns of fairness keys. */
export class Gates {
  /** The jobs of the worker by the queues from which it claims. */
  readonly #jobs: ReadonlyMap<string, KnownJob>;
  /** Of each queue of a live worker whose job is not paused, the runs that limits let pass as the claim begins. */
  readonly #passing = new Map<string, "all" | "begun" | "none">();
  /** How many runs of each job are executed, or may still be after a cancel; empty if no job has a limit. */
  readonly #inUse = new Map<string, number>();
  readonly #triesHeld: boolean;
  readonly #context: GatesContext;
  readonly #due: DueRuns;
  readonly #now: number;

  constructor(request: ClaimRequest, due: DueRuns, context: GatesContext, now: number) {
    const { jobs, isAlone } = request;
    const queues = (job: KnownJob) => queuesOf(job).filter((queue) => isAloneQueue(queue) === isAlone);
    this.#jobs = new Map(jobs.flatMap((job) => queues(job).map((queue) => [queue, job])));
    this.#triesHeld = request.triesHeld;
    this.#due = due;
    this.#context = context;
    this.#now = now;
    if (context.liveJobs.some(({ concurrency }) => concurrency !== null)) {
      const { open, keys } = context.runs;
      for (const { jobName, lease } of open) if (lease !== null) this.countTaken(jobName);
      for (const { jobName } of keys.ghosts) this.countTaken(jobName);
    }
    for (const job of context.liveJobs) this.#notePassing(job);
  }

  #notePassing(job: KnownJob): void {
    if (this.#context.paused.has(job.name)) return;
    const passing = !this.#hasRoom(job) ? "none" : this.#rateOpensAt(job) <= this.#now ? "all" : "begun";
    for (const queue of queuesOf(job)) {
      const other = this.#passing.get(queue) ?? "none"; // of another worker
      this.#passing.set(queue, other === "none" || passing === "all" ? passing : other);
    }
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
    if ((run.hold !== null) !== this.#triesHeld) return Infinity;
    if (isOrphan(run)) return Infinity; // the next claims cancel it
    if ((nextDeadline(run) ?? Infinity) <= this.#now) return Infinity; // they fail it
    if (!this.#hasRoom(job)) return Infinity;
    const keyOpensAt = this.#due.keyOpensAt(run);
    if (keyOpensAt === Infinity || this.#isBehindOtherQueue(run)) return Infinity;
    return Math.max(keyOpensAt, this.rateOpensAt(run));
  }

  #hasRoom({ names, concurrency }: KnownJob): boolean {
    return concurrency === null || names.reduce((left, name) => left - (this.#inUse.get(name) ?? 0), concurrency) > 0;
  }

  /** When the rate of its job lets a run pass: an instant that has passed if it can pass now. */
  rateOpensAt(run: KeptRun): number {
    const job = this.#jobs.get(queueOf(run));
    return job === undefined || run.startedAt !== null ? -Infinity : this.#rateOpensAt(job);
  }

  #rateOpensAt({ names, rate }: KnownJob): number {
    return rate === null ? -Infinity : this.#context.rates.opensAt(jobScope(names[0]), rate);
  }

  /**
   * Whether a run of another queue comes first in the line of the key: one that only other workers can claim, or one
   * that the key has no room for yet. A queue that no live worker knows, or of a paused job, holds up nobody. Neither does
   * a run of other workers that is held back.
   */
  #isBehindOtherQueue(run: KeptRun): boolean {
    return this.#due.firstsBefore(run).some((first) =>
      this.#passing.has(queueOf(first)) &&
      (this.#due.keyOpensAt(first) > this.#now || (!this.#jobs.has(queueOf(first)) && !this.isHeldBack(first)))
    );
  }

  /** Whether the limit or the rate of its job holds a run back in each live worker that knows it. */
  isHeldBack(run: KeptRun): boolean {
    const passing = this.#passing.get(queueOf(run));
    return passing === "none" || (passing === "begun" && run.startedAt === null);
  }
}

/**
 * The queues from which a worker claims that knows a version of a job: its runs, those offered to its print, and those
 * that are claimed alone.
 */
export function queuesOf({ name, version, print }: Pick<KnownJob, "name" | "version" | "print">): string[] {
  const queue = queueName(name, version);
  return [queue, queueName(name, version, print), aloneQueue(queue)];
}

/** The paused jobs of a store, and its runs. */
interface PausedJobs {
  runs: MemoryRuns;
  paused: Map<string, JobPause>;
}

/** Pauses a job. See `Store.pauseJob()`. */
export function pauseJob(
  { runs, paused }: PausedJobs,
  jobName: string,
  { by, note }: Pick<JobPause, "by" | "note">,
  now: number,
): JobPause {
  const known = paused.get(jobName);
  if (known !== undefined) return { ...known };
  const pause = { jobName, since: isoTime(now), by, note };
  paused.set(jobName, pause);
  runs.countChange();
  return { ...pause };
}

/** Ends the pause of a job. See `Store.resumeJob()`. */
export function resumeJob({ runs, paused }: PausedJobs, jobName: string): boolean {
  const wasPaused = paused.delete(jobName);
  if (wasPaused) runs.countChange();
  return wasPaused;
}
