import { type Latency, LatencySums } from "../../statistics/latencies.ts";
import type { StatisticsRow } from "../../store/statistics.ts";

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

/** The rates of some rows over a window, in milliseconds. */
export function toRates(rows: Iterable<StatisticsRow>, windowMs: number): Rates {
  const sums = { triggered: 0, started: 0, completed: 0, failed: 0, cancelled: 0, steps: 0, stepFailures: 0 };
  const latencies = new LatencySums();
  for (const row of rows) {
    for (const name of COUNTS) sums[name] += row[name];
    latencies.add(row.latencies);
  }
  const ended = sums.completed + sums.failed + sums.cancelled;
  const decided = sums.completed + sums.failed;
  return {
    ...sums,
    perMinute: Math.round(ended / windowMs * 60_000 * 1_000) / 1_000,
    failureRate: decided === 0 ? null : sums.failed / decided,
    startDelay: latencies.latency("startDelay"),
    duration: latencies.latency("duration"),
    stepDuration: latencies.latency("stepDuration"),
  };
}

const COUNTS = ["triggered", "started", "completed", "failed", "cancelled", "steps", "stepFailures"] as const;
