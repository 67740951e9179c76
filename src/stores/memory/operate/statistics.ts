import type { JobStatistics, StatisticsQuery, StatisticsRow, StatisticsSpan } from "../../../store/operate.ts";
import { addCounts, NO_COUNTS } from "../../../statistics/counts.ts";
import { addLatencies, NO_SAMPLE, slotAt, STATISTICS_SPANS } from "../../operate/numbers.ts";

const SAMPLES = Object.keys(NO_SAMPLE) as (keyof typeof NO_SAMPLE)[]; // it has no others

/** The statistics of a memory store. */
export class MemoryStatistics {
  /** The rows of each length of slots, by slot and job. */
  readonly #rows = new Map<StatisticsSpan, Map<string, StatisticsRow>>(
    STATISTICS_SPANS.map(({ span }) => [span, new Map()]),
  );

  /** Adds counts to the slots of now; `sampled` to all jobs together. See `Store.addStats()`. */
  add(statistics: readonly JobStatistics[], sampled: StatisticsRow["sampled"], now: number): void {
    for (const { span, keptMs } of STATISTICS_SPANS) {
      const rows = this.#rows.get(span)!; // each length has its rows
      const at = slotAt(now, span);
      for (const counts of statistics) addTo(rows, at, counts, counts.jobName === "" ? sampled : NO_SAMPLE);
      for (const [key, row] of rows) if (row.at < at - keptMs) rows.delete(key);
    }
  }

  /** Reads rows by slot and job. See `Store.readStats()`. */
  read({ span, from, jobName, after, limit }: StatisticsQuery): StatisticsRow[] {
    const isAfter = (row: StatisticsRow) =>
      after === undefined || row.at > after.at || (row.at === after.at && row.jobName > after.jobName);
    return [...this.#rows.get(span)!.values()]
      .filter((row) => row.at >= from && (jobName === undefined || row.jobName === jobName) && isAfter(row))
      .sort((one, other) => one.at - other.at || (one.jobName < other.jobName ? -1 : 1))
      .slice(0, limit)
      .map((row) => structuredClone(row));
  }
}

function addTo(
  rows: Map<string, StatisticsRow>,
  at: number,
  counts: JobStatistics,
  sampled: StatisticsRow["sampled"],
): void {
  const key = JSON.stringify([at, counts.jobName]);
  const row = rows.get(key) ?? {
    at,
    jobName: counts.jobName,
    ...NO_COUNTS,
    latencies: {},
    sampled: { ...NO_SAMPLE },
  };
  rows.set(key, row);
  addCounts(row, counts);
  row.latencies = addLatencies(row.latencies, counts.latencies);
  for (const name of SAMPLES) row.sampled[name] += sampled[name];
}
