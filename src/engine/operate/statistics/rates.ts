import { type Latency, LatencySums } from "../../../statistics/latencies.ts";
import type { StatisticsRow } from "../../../store/operate.ts";

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

const COUNTS = ["triggered", "started", "completed", "failed", "cancelled", "steps", "stepFailures"] as const;

/** The sums of some rows of statistics. */
export class RateSums {
  readonly #counts = { triggered: 0, started: 0, completed: 0, failed: 0, cancelled: 0, steps: 0, stepFailures: 0 };
  readonly #latencies = new LatencySums();

  /** Adds a row. Returns the same sums. */
  add(row: StatisticsRow): this {
    for (const name of COUNTS) this.#counts[name] += row[name];
    this.#latencies.add(row.latencies);
    return this;
  }

  /** Adds other sums. Returns the same sums. */
  addAll(other: RateSums): this {
    for (const name of COUNTS) this.#counts[name] += other.#counts[name];
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
