import { ValidationError } from "../../../model/error.ts";
import { isoTime } from "../../../values/iso_time.ts";
import { checkName } from "../../../values/name.ts";
import { checkOptionNames } from "../../../values/option_names.ts";
import { type Histogram, LatencySums } from "../../../statistics/latencies.ts";
import type { Store } from "../../../store/store.ts";
import type { StatisticsRow, StatisticsSpan } from "../../../store/operate.ts";
import { STATISTICS_PAGE } from "./recent_statistics.ts";

/** Which statistics to show as a series. */
export interface SeriesQuery {
  /** How far back it goes: 60 slots of a minute, 96 of 15 minutes, or 56 of 3 hours. */
  window: "1h" | "24h" | "7d";
  /** The job. Default: all jobs together. */
  jobName?: string;
}

/** A value for each slot; `null`: nothing was recorded in it. */
export type Sampled = (number | null)[];

/** Statistics in slots of equal length, the oldest first. The last slot is not over yet. */
export interface Series {
  /** When the first slot begins: ISO 8601 in UTC. */
  from: string;
  /** The length of a slot, in milliseconds. */
  stepMs: number;
  /** Runs that were added. */
  triggered: number[];
  /** Runs that completed. */
  completed: number[];
  /** Runs that failed. */
  failed: number[];
  /** Runs that were cancelled. */
  cancelled: number[];
  /** How many runs were pending, on average. This and the next three are known for all jobs together only. */
  pending: Sampled;
  /** How many runs were under leases, on average. */
  running: Sampled;
  /** How many runs were waiting, on average. */
  waiting: Sampled;
  /** How many slots of live workers were in use, on average. */
  busy: Sampled;
  /** How long runs were due before their first start, in milliseconds. */
  startDelay: { p50: Sampled; p95: Sampled };
  /** How long runs took, in milliseconds. */
  duration: { p50: Sampled; p95: Sampled };
}

const WINDOWS: Record<SeriesQuery["window"], { span: StatisticsSpan; stepMs: number; slots: number }> = {
  "1h": { span: 60_000, stepMs: 60_000, slots: 60 },
  "24h": { span: 900_000, stepMs: 900_000, slots: 96 },
  "7d": { span: 900_000, stepMs: 10_800_000, slots: 56 },
};
const QUERY_FIELDS: Record<keyof SeriesQuery, true> = { window: true, jobName: true };

/**
 * Checks which series is asked for.
 *
 * @throws {ValidationError} The window is none, or the name is not valid.
 * @throws {TypeError} A field is unknown.
 */
export function checkSeriesQuery(query: SeriesQuery): Required<SeriesQuery> {
  checkOptionNames(query, QUERY_FIELDS, "getSeries()");
  const { window, jobName } = query;
  if (typeof window !== "string" || !Object.hasOwn(WINDOWS, window)) {
    throw new ValidationError(`window must be "1h", "24h" or "7d"`);
  }
  if (jobName !== undefined) checkName(jobName, "jobName");
  return { window, jobName: jobName ?? "" };
}

/** Reads one series again and again. Slots that are over are read once. */
export class SeriesReader {
  readonly #store: Pick<Store, "readStats">;
  readonly #query: Required<SeriesQuery>;
  /** The rows that were read, in their order. */
  #rows: StatisticsRow[] = [];

  constructor(store: Pick<Store, "readStats">, query: Required<SeriesQuery>) {
    this.#store = store;
    this.#query = query;
  }

  /** Reads the series; `now` is an instant of the store's clock. One call at a time. */
  async read(now: number): Promise<Series> {
    const { window, jobName } = this.#query;
    const { span, stepMs, slots } = WINDOWS[window];
    const from = (Math.floor(now / stepMs) - slots + 1) * stepMs;
    // A report of the slot before may have been under way when it was read.
    const over = this.#rows.filter(({ at }) => at >= from && at < now - 3 * span);
    const rows = [...over];
    const first = Math.max(from, (over.at(-1)?.at ?? from - span) + span);
    // A slot has one row at most, so the pages are read side by side.
    const pageMs = STATISTICS_PAGE * span;
    const starts: number[] = [];
    for (let start = first; start <= now; start += pageMs) starts.push(start);
    const pages = await Promise.all(
      starts.map((from) => this.#store.readStats({ span, from, jobName, limit: STATISTICS_PAGE })),
    );
    for (const [page, read] of pages.entries()) {
      rows.push(...read.rows.filter(({ at }) => at < starts[page]! + pageMs)); // one start for each page
    }
    this.#rows = rows;
    return toSeries(rows, from, WINDOWS[window]);
  }
}

function toSeries(
  rows: readonly StatisticsRow[],
  from: number,
  { stepMs, slots }: { stepMs: number; slots: number },
): Series {
  const bySlot: StatisticsRow[][] = Array.from({ length: slots }, () => []);
  for (const row of rows) bySlot[Math.floor((row.at - from) / stepMs)]?.push(row);
  const sum = (name: "triggered" | "completed" | "failed" | "cancelled") =>
    bySlot.map((rows) => rows.reduce((total, row) => total + row[name], 0));
  const mean = (name: Exclude<keyof StatisticsRow["sampled"], "samples">) => bySlot.map((rows) => average(rows, name));
  const latencies = bySlot.map((rows) => {
    const sums = new LatencySums();
    for (const row of rows) sums.add(row.latencies);
    return sums;
  });
  const percentiles = (histogram: Histogram) => {
    const all = latencies.map((sums) => sums.latency(histogram));
    return { p50: all.map((one) => one?.p50 ?? null), p95: all.map((one) => one?.p95 ?? null) };
  };
  return {
    from: isoTime(from),
    stepMs,
    triggered: sum("triggered"),
    completed: sum("completed"),
    failed: sum("failed"),
    cancelled: sum("cancelled"),
    pending: mean("pending"),
    running: mean("running"),
    waiting: mean("waiting"),
    busy: mean("busy"),
    startDelay: percentiles("startDelay"),
    duration: percentiles("duration"),
  };
}

function average(
  rows: readonly StatisticsRow[],
  name: Exclude<keyof StatisticsRow["sampled"], "samples">,
): number | null {
  const samples = rows.reduce((total, { sampled }) => total + sampled.samples, 0);
  if (samples === 0) return null;
  return Math.round(rows.reduce((total, { sampled }) => total + sampled[name], 0) / samples * 10) / 10;
}
