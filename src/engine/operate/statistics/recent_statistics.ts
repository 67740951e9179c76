import type { Store } from "../../../store/store.ts";
import type { StatisticsRow } from "../../../store/operate.ts";
import { addCounts, NO_COUNTS } from "../../../statistics/counts.ts";
import { type Latency, LatencySums } from "../../../statistics/latencies.ts";

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const FIVE_MINUTES_MS = 300_000;
/** How many rows of statistics are read at once, so that no read takes long. */
export const STATISTICS_PAGE = 300;

/** The statistics of the last hour, by minute and job. Minutes that are over are read once. */
export class RecentStatistics {
  readonly #store: Pick<Store, "readStats">;
  /** The rows of each minute, by job. */
  readonly #minutes = new Map<number, Map<string, StatisticsRow>>();
  /** All minutes before this one are over, and were read. */
  #readTo = 0;
  /** The sums of the minutes that are over, of each job: made once a minute. */
  #over: { from: number; to: number; sums: Map<string, RateSums> } = { from: 0, to: 0, sums: new Map() };
  #reading: Promise<void> = Promise.resolve();

  constructor(store: Pick<Store, "readStats">) {
    this.#store = store;
  }

  /** Reads what is new; `now` is an instant of the store's clock. */
  async read(now: number): Promise<void> {
    const reading = this.#reading.catch(() => {}).then(() => this.#readNew(now));
    this.#reading = reading;
    await reading;
  }

  async #readNew(now: number): Promise<void> {
    const first = minuteOf(now - HOUR_MS);
    const from = Math.max(first, Math.min(this.#readTo, minuteOf(now) - MINUTE_MS));
    const read = new Map<number, Map<string, StatisticsRow>>();
    let after: StatisticsRow | undefined;
    do {
      const query = {
        span: MINUTE_MS,
        from,
        limit: STATISTICS_PAGE,
        ...(after === undefined ? {} : { after }),
      } as const;
      const { rows } = await this.#store.readStats(query);
      for (const row of rows) {
        const minute = read.get(row.at) ?? new Map<string, StatisticsRow>();
        read.set(row.at, minute.set(row.jobName, row));
      }
      after = rows.length < STATISTICS_PAGE ? undefined : rows.at(-1);
    } while (after !== undefined);
    // Nothing is awaited from here on: a caller in between would miss minutes. If the clock was set back, there are some
    // in the future.
    for (const minute of this.#minutes.keys()) if (minute < first || minute >= from) this.#minutes.delete(minute);
    for (const [minute, jobs] of read) this.#minutes.set(minute, jobs);
    this.#readTo = minuteOf(now) - MINUTE_MS; // a report of the minute before may have been under way
  }

  /** What happened to the runs of some jobs, or of all jobs (`""`), as of the last read. */
  windows(jobNames: readonly string[], now: number): Windows {
    return { "5m": this.#window(jobNames, FIVE_MINUTES_MS, now), "1h": this.#window(jobNames, HOUR_MS, now) };
  }

  #window(jobNames: readonly string[], windowMs: number, now: number): Rates {
    const from = minuteOf(now - windowMs);
    const sums = new RateSums();
    for (const jobName of jobNames) {
      if (windowMs === HOUR_MS) sums.addAll(this.#sumsOfOver(jobName, from));
      for (const [minute, jobs] of this.#minutes) {
        const row = minute >= (windowMs === HOUR_MS ? this.#readTo : from) ? jobs.get(jobName) : undefined;
        if (row !== undefined) sums.add(row);
      }
    }
    return sums.toRates(now - from);
  }

  #sumsOfOver(jobName: string, from: number): RateSums {
    const to = this.#readTo;
    if (this.#over.from !== from || this.#over.to !== to) this.#over = { from, to, sums: new Map() };
    let sums = this.#over.sums.get(jobName);
    if (sums === undefined) {
      sums = new RateSums();
      for (const [minute, jobs] of this.#minutes) {
        const row = minute >= from && minute < to ? jobs.get(jobName) : undefined;
        if (row !== undefined) sums.add(row);
      }
      this.#over.sums.set(jobName, sums);
    }
    return sums;
  }
}

function minuteOf(instant: number): number {
  return Math.floor(instant / MINUTE_MS) * MINUTE_MS;
}

/** How often things happened in a window of time, and how long they took. */
export interface Rates {
  /** Runs that were added. */
  triggered: number;
  /** Runs that were claimed for the first time. */
  started: number;
  /** Runs that completed. */
  completed: number;
  /** Runs that failed. */
  failed: number;
  /** Runs that were cancelled. */
  cancelled: number;
  /** Runs that ended, in a minute on average. */
  perMinute: number;
  /** The share of the failed runs among those that completed or failed, from 0 to 1; `null`: there were none. */
  failureRate: number | null;
  /** Attempts at steps that ended. */
  steps: number;
  /** How many of these failed. */
  stepFailures: number;
  /** How long runs were due before their first start; `null`: none started. */
  startDelay: Latency | null;
  /** How long runs took that completed or failed, from their first start on, pauses included; `null`: none ended. */
  duration: Latency | null;
  /** How long attempts at steps took; `null`: none ended. */
  stepDuration: Latency | null;
}

/**
 * What happened in the last 5 minutes, and in the last hour. A window begins with a full minute, so it is up to a minute
 * longer.
 */
export interface Windows {
  /** The last 5 to 6 minutes. */
  "5m": Rates;
  /** The last 60 to 61 minutes. */
  "1h": Rates;
}

/** The sums of some rows of statistics. */
class RateSums {
  readonly #counts = { ...NO_COUNTS };
  readonly #latencies = new LatencySums();

  /** Adds a row. Returns the same sums. */
  add(row: StatisticsRow): this {
    addCounts(this.#counts, row);
    this.#latencies.add(row.latencies);
    return this;
  }

  /** Adds other sums. Returns the same sums. */
  addAll(other: RateSums): this {
    addCounts(this.#counts, other.#counts);
    this.#latencies.addAll(other.#latencies);
    return this;
  }

  /** The rates over a window, in milliseconds. */
  toRates(windowMs: number): Rates {
    const { completed, failed, cancelled } = this.#counts;
    const decided = completed + failed;
    return {
      ...this.#counts,
      perMinute: Math.round((decided + cancelled) / windowMs * 60_000 * 1_000) / 1_000,
      failureRate: decided === 0 ? null : failed / decided,
      startDelay: this.#latencies.latency("startDelay"),
      duration: this.#latencies.latency("duration"),
      stepDuration: this.#latencies.latency("stepDuration"),
    };
  }
}
