import type { JsonText } from "../../../values/json.ts";
import type {
  JobStatistics,
  StatisticsQuery,
  StatisticsRow,
  StatisticsSpan,
  StoreInfo,
} from "../../../store/operate.ts";
import { addLatencies, NO_SAMPLE, slotAt, STATISTICS_SPANS } from "../../operate/numbers.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { namesOf } from "../../../values/option_names.ts";
import { raw, rowLimit, sql } from "../statement.ts";
import { noteTimes } from "../reads/run_times.ts";
import { countLeases } from "./workers.ts";
import { countRuns } from "../run_counts.ts";

/** Adds what a process has counted to the slots of now. See `Store.addStats()`. */
export function addStatistics(db: SqliteDatabase, statistics: readonly JobStatistics[], now: number): void {
  const sample = readSample(db, now);
  for (const { span, keptMs } of STATISTICS_SPANS) {
    const at = slotAt(now, span);
    for (const counts of statistics) addTo(db, { span, at }, counts, counts.jobName === "" ? sample : NO_SAMPLE);
    db.run`DELETE FROM holdfast_stats WHERE span = ${span} AND at < ${at - keptMs}`;
  }
  noteTimes(db);
}

/** How many runs are pending, running and waiting now, and how many are under leases of live workers. */
function readSample(db: SqliteDatabase, now: number): StatisticsRow["sampled"] {
  const { pending, running, waiting } = db.one<{ pending: number; running: number; waiting: number }>`
    SELECT coalesce(sum(runs) FILTER (WHERE status = 'pending'), 0) AS pending,
    coalesce(sum(runs) FILTER (WHERE status = 'running'), 0) AS running,
    coalesce(sum(runs) FILTER (WHERE status = 'waiting'), 0) AS waiting FROM holdfast_counts`;
  const live = db.all<{ id: string }>`
    SELECT id FROM holdfast_workers WHERE seen_at <= ${now} AND seen_at + lease_ms > ${now}`;
  const leases = countLeases(db);
  const busy = live.reduce((sum, { id }) => sum + (leases.get(id) ?? 0), 0);
  return { samples: 1, pending, running, waiting, busy };
}

// The columns that are added up.
const SUMS = namesOf<
  Exclude<keyof StatisticsRecord, "at" | "jobName" | "latencies" | "stepFailures"> | "step_failures"
>()(
  "triggered started completed failed cancelled steps step_failures samples pending running waiting busy",
);
const ADD = raw(Object.keys(SUMS).map((column) => `${column} = ${column} + excluded.${column}`).join(", "));

function addTo(
  db: SqliteDatabase,
  { span, at }: { span: StatisticsSpan; at: number },
  { jobName, latencies, ...counts }: JobStatistics,
  sampled: StatisticsRow["sampled"],
): void {
  const known = db.get<{ latencies: JsonText }>`
    SELECT latencies FROM holdfast_stats WHERE span = ${span} AND job = ${jobName} AND at = ${at}`;
  const sum = known === undefined ? latencies : addLatencies(JSON.parse(known.latencies), latencies);
  db.run`
    INSERT INTO holdfast_stats (span, job, at, latencies, ${raw(Object.keys(SUMS).join(", "))})
    VALUES (${span}, ${jobName}, ${at}, ${JSON.stringify(sum)}, ${counts.triggered}, ${counts.started},
      ${counts.completed}, ${counts.failed}, ${counts.cancelled}, ${counts.steps}, ${counts.stepFailures},
      ${sampled.samples}, ${sampled.pending}, ${sampled.running}, ${sampled.waiting}, ${sampled.busy})
    ON CONFLICT DO UPDATE SET latencies = excluded.latencies, ${ADD}`;
}

type StatisticsRecord = Omit<StatisticsRow, "latencies" | "sampled"> & StatisticsRow["sampled"] & {
  latencies: JsonText;
};

/** Reads statistics. See `Store.readStats()`. */
export function readStatistics(
  db: SqliteDatabase,
  { span, from, jobName, after = { at: from - 1, jobName: "" }, limit }: StatisticsQuery,
): StatisticsRow[] {
  const isOfJob = jobName === undefined ? raw("") : sql`AND job = ${jobName}`;
  const rows = db.all<StatisticsRecord>`
    SELECT *, job AS jobName, step_failures AS stepFailures FROM holdfast_stats
    WHERE span = ${span} ${isOfJob} AND at >= ${
    Math.max(from, after.at)
  } AND (at, job) > (${after.at}, ${after.jobName})
    ORDER BY at, job LIMIT ${raw(rowLimit(limit))}`;
  return rows.slice(0, limit).map((row) => {
    const { at, jobName, triggered, started, completed, failed, cancelled, steps, stepFailures } = row;
    const { samples, pending, running, waiting, busy } = row;
    const counts = { triggered, started, completed, failed, cancelled, steps, stepFailures };
    const sampled = { samples, pending, running, waiting, busy };
    return { at, jobName, ...counts, latencies: JSON.parse(row.latencies), sampled };
  });
}

/** How large the file is. See `Store.getInfo()`. */
export function readStoreInfo(db: SqliteDatabase, schemaVersion: number, walBytes: number | null): StoreInfo {
  const { pages, free, size, id } = db.one<{ pages: number; free: number; size: number; id: string }>`
    SELECT (SELECT id FROM holdfast_schema) AS id,
    (SELECT page_count FROM pragma_page_count) AS pages,
    (SELECT freelist_count FROM pragma_freelist_count) AS free, (SELECT page_size FROM pragma_page_size) AS size`;
  return {
    id,
    kind: "sqlite",
    schemaVersion,
    bytes: pages * size,
    walBytes,
    freeBytes: free * size,
    runs: countRuns(db, { jobs: null, statuses: null }),
  };
}
