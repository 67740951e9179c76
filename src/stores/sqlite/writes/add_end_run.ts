import type { Host } from "../../../model/host.ts";
import type { OriginText } from "../../../model/origin.ts";
import type { TerminalStatus } from "../../../model/run.ts";
import type { JsonText } from "../../../values/json.ts";
import { readOnEnd, toEndRun } from "../../end_runs.ts";
import { versionOf } from "../../queue_name.ts";
import { toLabels } from "../../rows.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { insertRun } from "./enqueue.ts";

/** Adds the run that cleans up after a run, which ends now, if it has one for this end. */
export function addEndRun(
  db: SqliteDatabase,
  { seq, id, on_end }: { seq: number; id: string; on_end: JsonText },
  status: TerminalStatus,
  now: number,
): void {
  const end = readOnEnd(on_end);
  if (!end.statuses.includes(status)) return;
  const row = db.one<EndedRow>`
    SELECT job, labels, trace, concurrency_key, fairness_key, priority, key_concurrency, key_rate_limit,
      key_rate_period
    FROM holdfast_runs WHERE seq = ${seq}`;
  const { key_rate_limit: limit, key_rate_period: period } = row;
  const request = toEndRun({
    id,
    version: versionOf(row.job),
    labels: toLabels(row.labels),
    concurrencyKey: row.concurrency_key,
    flow: {
      priority: row.priority,
      fairnessKey: row.fairness_key,
      keyConcurrency: row.key_concurrency,
      keyRate: limit === null || period === null ? null : { limit, period },
    },
    trace: row.trace,
  }, end);
  const host: Pick<Host, "newId"> = { newId: () => "" }; // it has no copies
  if (insertRun(db, request, host, now, null, id) === null) throw new Error(`There is a run "${end.id}" already`);
}

interface EndedRow {
  job: string;
  labels: JsonText;
  trace: OriginText | null;
  concurrency_key: string | null;
  fairness_key: string | null;
  priority: number;
  key_concurrency: number;
  key_rate_limit: number | null;
  key_rate_period: number | null;
}
