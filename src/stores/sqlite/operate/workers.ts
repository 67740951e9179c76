import type { JsonText } from "../../../values/json.ts";
import type { WorkerRecord } from "../../../store/worker_record.ts";
import { jobNameOf } from "../../queue_name.ts";
import { parseWorkerDetails } from "../../worker_details.ts";
import { LISTED_LEASES } from "../../rules.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { raw } from "../statement.ts";

interface WorkerRow {
  id: string;
  jobs: JsonText;
  seen_at: number;
  lease_ms: number;
  details: JsonText;
  started_at: number;
  stopping: number;
}

/** The workers, by their first claims. See `Store.getWorkers()`. */
export function readWorkers(db: SqliteDatabase, now: number): WorkerRecord[] {
  const rows = db.all<WorkerRow>`
    SELECT id, jobs, seen_at, lease_ms, details, started_at, stopping FROM holdfast_workers
    WHERE seen_at + lease_ms * ${raw(LISTED_LEASES)} >= ${now} ORDER BY started_at, id`;
  const leases = countLeases(db);
  return rows.map((row) => ({
    id: row.id,
    details: parseWorkerDetails(row.details),
    jobNames: [...new Set((JSON.parse(row.jobs) as string[]).map(jobNameOf))].sort(), // the names of queues
    startedAt: row.started_at,
    seenAt: row.seen_at,
    isStopping: row.stopping === 1,
    leases: leases.get(row.id) ?? 0,
    leaseMs: row.lease_ms,
  }));
}

/** How many runs are under leases of each worker. */
export function countLeases(db: SqliteDatabase): Map<string, number> {
  const rows = db.all<{ lease_owner: string; leases: number }>`
    SELECT lease_owner, count(*) AS leases FROM holdfast_runs INDEXED BY holdfast_runs_leases
    WHERE lease_expires_at IS NOT NULL AND status = 'running' GROUP BY lease_owner`;
  return new Map(rows.map(({ lease_owner, leases }) => [lease_owner, leases]));
}

/** Notes that a worker claims nothing more. */
export function noteStopping(db: SqliteDatabase, workerId: string): void {
  db.run`UPDATE holdfast_workers SET stopping = 1 WHERE id = ${workerId}`;
}
