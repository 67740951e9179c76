import type { RunHappening } from "../model/event.ts";
import type { Disposition } from "../model/run.ts";
import type { JobStatistics, StatisticsCounts } from "../store/operate.ts";
import { addCounts, NO_COUNTS } from "./counts.ts";
import { bucketOf, type Histogram } from "./latencies.ts";
import { JobMetrics, ProcessMetrics } from "./process_metrics.ts";

/** How an execution of a run ended. */
export type ExecutionOutcome = "completed" | "failed" | "waiting" | "held" | "interrupted" | "lost";

/** What was counted since the last report. */
interface Unreported {
  counts: StatisticsCounts;
  /** How many durations fell into each bucket. */
  latencies: Record<number, number>;
}

/** What is counted of one job. */
interface CountedJob {
  /** Since the process began. */
  metrics: JobMetrics;
  /** Since the last report; `null`: nothing. */
  unreported: Unreported | null;
}

/**
 * Counts in memory what an engine does, for metrics since the process began, and for the statistics of the store until
 * they are reported. It never waits, and never throws.
 */
export class Recorder {
  /** All counts since the process began. */
  readonly metrics = new ProcessMetrics();
  readonly #jobs = new Map<string, CountedJob>();
  readonly #onRecord: () => void;
  #hasUnreported = false;

  /**
   * @param onRecord Called while something is being counted: it must not take the counts at once. Called when there is something to report again, and with each trigger and each start: often enough
   * to look at the clock.
   */
  constructor(onRecord: () => void = () => {}) {
    this.#onRecord = onRecord;
  }

  /** Whether there is something to report. */
  get hasUnreported(): boolean {
    return this.#hasUnreported;
  }

  /** Counts what an event says. */
  observe(jobName: string, happening: RunHappening): void {
    switch (happening.type) {
      case "run:complete":
        this.#noteEnd(jobName, "completed");
        this.#measure(this.#job(jobName), "duration", happening.duration);
        break;
      case "run:fail":
        this.#noteEnd(jobName, "failed");
        break;
      case "run:cancel":
        this.#noteEnd(jobName, "cancelled");
        break;
      case "step:complete": {
        const job = this.#job(jobName);
        this.#unreported(job).counts.steps += 1;
        job.metrics.steps.add("completed");
        this.#measure(job, "stepDuration", happening.duration);
        break;
      }
      case "step:fail": {
        const job = this.#job(jobName);
        const { counts } = this.#unreported(job);
        counts.steps += 1;
        counts.stepFailures += 1;
        job.metrics.steps.add(happening.retryAt === null ? "failed" : "retried");
        break;
      }
      case "step:cancel":
        this.#job(jobName).metrics.steps.add("cancelled");
    }
  }

  /** Counts a trigger. */
  noteTrigger(jobName: string, disposition: Disposition): void {
    const job = this.#job(jobName);
    job.metrics.triggers.add(disposition);
    if (disposition !== "created") return;
    this.#unreported(job).counts.triggered += 1;
    this.#onRecord();
  }

  /** Counts the first claim of a run that was due for `delayMs`. */
  noteStart(jobName: string, delayMs: number): void {
    const job = this.#job(jobName);
    this.#unreported(job).counts.started += 1;
    this.#measure(job, "startDelay", delayMs);
    this.#onRecord();
  }

  /** Measures a run, or an attempt at a step, that failed. */
  noteFailed(jobName: string, histogram: "duration" | "stepDuration", durationMs: number): void {
    this.#measure(this.#job(jobName), histogram, durationMs);
  }

  /** Counts an execution that ended. */
  noteExecution(jobName: string, outcome: ExecutionOutcome): void {
    this.#job(jobName).metrics.executions.add(outcome);
    if (outcome === "lost") this.metrics.leasesLost += 1;
  }

  /** Counts a wait that has ended. */
  noteWait(jobName: string, outcome: "signal" | "timeout"): void {
    this.#job(jobName).metrics.waits.add(outcome);
  }

  /** Counts items of streams that were stored. */
  noteItems(jobName: string, items: number, bytes: number): void {
    const { streamed } = this.#job(jobName).metrics;
    streamed.items += items;
    streamed.bytes += bytes;
  }

  /** What was counted since the last report, of each job and of all together (`""`); empty if nothing. */
  take(): JobStatistics[] {
    if (!this.#hasUnreported) return [];
    this.#hasUnreported = false;
    const all: Unreported = newUnreported();
    const taken: JobStatistics[] = [];
    for (const [jobName, job] of this.#jobs) {
      if (job.unreported === null) continue;
      const { counts, latencies } = job.unreported;
      job.unreported = null;
      taken.push({ jobName, ...counts, latencies });
      addTo(all, { ...counts, latencies });
    }
    return [{ jobName: "", ...all.counts, latencies: all.latencies }, ...taken];
  }

  /** Adds what was taken and could not be reported. */
  putBack(taken: readonly JobStatistics[]): void {
    for (const { jobName, ...statistics } of taken) {
      if (jobName !== "") addTo(this.#unreported(this.#job(jobName)), statistics);
    }
  }

  #noteEnd(jobName: string, status: "completed" | "failed" | "cancelled"): void {
    const job = this.#job(jobName);
    this.#unreported(job).counts[status] += 1;
    job.metrics.ended.add(status);
  }

  #measure(job: CountedJob, histogram: Histogram, ms: number): void {
    const { latencies } = this.#unreported(job);
    const bucket = bucketOf(histogram, ms);
    latencies[bucket] = (latencies[bucket] ?? 0) + 1;
    job.metrics[histogram].add(ms);
  }

  #unreported(job: CountedJob): Unreported {
    if (job.unreported !== null) return job.unreported;
    const unreported = newUnreported();
    job.unreported = unreported;
    if (!this.#hasUnreported) {
      this.#hasUnreported = true;
      this.#onRecord();
    }
    return unreported;
  }

  #job(jobName: string): CountedJob {
    let job = this.#jobs.get(jobName);
    if (job === undefined) {
      job = { metrics: new JobMetrics(), unreported: null };
      this.#jobs.set(jobName, job);
      this.metrics.jobs.set(jobName, job.metrics);
    }
    return job;
  }
}

function newUnreported(): Unreported {
  return { counts: { ...NO_COUNTS }, latencies: {} };
}

function addTo({ counts, latencies }: Unreported, other: Omit<JobStatistics, "jobName">): void {
  addCounts(counts, other);
  for (const [key, count] of Object.entries(other.latencies)) {
    const bucket = Number(key);
    latencies[bucket] = (latencies[bucket] ?? 0) + count;
  }
}
