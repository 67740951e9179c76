import type { Rate } from "../../src/model/flow.ts";
import type { ClaimRequest } from "../../src/store/claim.ts";
import { FairnessWindows } from "./fairness_windows.ts";

// A store may forget a start that has not counted for an hour: it counts again only if the clock is set back that far.
const FORGOTTEN_AFTER_MS = 3_600_000;

/** A first claim of a run. */
interface Start {
  at: number;
  jobName: string;
  jobRate: Rate | null;
  key: string | null;
  keyRate: Rate | null;
}

/** What the committed history says of workers, paused jobs, rates and turns. */
export class FlowFacts {
  /** The paused jobs. */
  readonly paused = new Set<string>();
  /** Who takes turns. */
  readonly windows = new FairnessWindows();
  readonly #workers = new Map<string, { lines: Set<string>; leaseMs: number; seenAt: number; jobs: string }>();
  #starts: Start[] = [];

  /** A worker claims. */
  noteClaim({ workerId, jobs, leaseMs }: ClaimRequest, now: number): void {
    this.#workers.set(workerId, {
      lines: new Set(jobs.map(({ name, version }) => `${name} ${version}`)),
      jobs: JSON.stringify(jobs),
      leaseMs,
      seenAt: now,
    });
    this.#starts = this.#starts.map((start) => start.at > now ? { ...start, at: now } : start)
      .filter(({ at, jobRate, keyRate }) => {
        return at + Math.max(jobRate?.period ?? 0, keyRate?.period ?? 0) + FORGOTTEN_AFTER_MS > now;
      });
  }

  /** Whether a worker has claimed not long ago with the same jobs. */
  isLiveAsBefore({ workerId, jobs }: ClaimRequest, now: number): boolean {
    const worker = this.#workers.get(workerId);
    return worker !== undefined && worker.seenAt <= now && now - worker.seenAt < worker.leaseMs * 2 / 3 &&
      worker.jobs === JSON.stringify(jobs);
  }

  /** Whether all workers that may be live know the same jobs, with the same limits, as one that claims. */
  areWorkersAlike({ jobs }: ClaimRequest, now: number): boolean {
    const text = JSON.stringify(jobs);
    return [...this.#workers.values()].every(({ seenAt, leaseMs, jobs }) =>
      jobs === text || seenAt > now || now - seenAt >= leaseMs
    );
  }

  /** The jobs of the live workers that know a line; `certainly`: as {@linkcode isKnown} has it. */
  jobsOf(line: string, now: number, certainly: boolean): ClaimRequest["jobs"][number][] {
    return this.#livesOf(line, now, certainly).flatMap(({ jobs }) =>
      (JSON.parse(jobs) as ClaimRequest["jobs"]).filter(({ name, version }) => `${name} ${version}` === line)
    );
  }

  /** A worker will not claim again. */
  forgetWorker(workerId: string): void {
    this.#workers.delete(workerId);
  }

  /**
   * Whether a live worker knows a job in a version.
   *
   * @param certainly Whether it has to be live even if its last claims were not recorded.
   */
  isKnown(line: string, now: number, certainly: boolean): boolean {
    return this.#livesOf(line, now, certainly).length > 0;
  }

  #livesOf(line: string, now: number, certainly: boolean): { jobs: string }[] {
    return [...this.#workers.values()].filter(({ lines, leaseMs, seenAt }) =>
      lines.has(line) && seenAt <= now && now - seenAt < (certainly ? leaseMs * 2 / 3 : leaseMs)
    );
  }

  /** A run starts. */
  noteStart(start: Start): void {
    this.#starts.push(start);
  }

  /** When a rate of a job has room again, by all that may count. */
  jobOpensAt(jobName: string, rate: Rate, now: number): number {
    return this.#opensAt(rate, now, (start) => start.jobName === jobName && start.jobRate !== null);
  }

  /** The same for a concurrency key. */
  keyOpensAt(key: string, rate: Rate, now: number): number {
    return this.#opensAt(rate, now, (start) => start.key === key && start.keyRate !== null);
  }

  #opensAt({ limit, period }: Rate, now: number, isMeant: (start: Start) => boolean): number {
    const starts = this.#starts.filter(isMeant).map(({ at }) => at).sort((left, right) => right - left);
    return starts.length < limit ? now : starts[limit - 1]! + period;
  }

  /**
   * How many starts of a job count in a window of a rate; `sameRate`: only those that were counted under this rate, and after
   * the last start under a shorter one, for which a store may have dropped those before it.
   */
  countJobStarts(jobName: string, rate: Rate, now: number, sameRate: boolean): number {
    const ofJob = this.#starts.filter((start) => start.jobName === jobName && start.jobRate !== null);
    const dropped = sameRate ? ofJob.findLastIndex(({ jobRate }) => jobRate!.period < rate.period) : -1;
    return ofJob.slice(dropped + 1).filter(({ at, jobRate }) =>
      at > now - rate.period && (!sameRate || isSame(jobRate!, rate))
    ).length;
  }

  /** The same for a concurrency key. */
  countKeyStarts(key: string, rate: Rate, now: number, sameRate: boolean): number {
    return this.#starts.filter(({ at, key: other, keyRate }) =>
      other === key && keyRate !== null && at > now - rate.period && (!sameRate || isSame(keyRate, rate))
    ).length;
  }
}

function isSame(left: Rate, right: Rate): boolean {
  return left.limit === right.limit && left.period === right.period;
}
