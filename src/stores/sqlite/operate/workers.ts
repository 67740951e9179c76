import type { JsonText } from "../../../values/json.ts";
import type { WorkerRecord } from "../../../store/operate.ts";
import { aloneQueue, jobNameOf, queueName } from "../../queue_name.ts";
import { parseWorkerDetails } from "../../record_rules.ts";
import { LISTED_LEASES } from "../../rules.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { raw } from "../statement.ts";
import type { ClaimRequest } from "../../../store/claim.ts";
import { limitsOf } from "../../operate/blocker_facts.ts";
import type { LiveWorker } from "../flow/job_gates.ts";

/** The workers, by their first claims. See `Store.getWorkers()`. */
export function readWorkers(db: SqliteDatabase, now: number): WorkerRecord[] {
  const leases = countLeases(db);
  return db.all<
    & Pick<WorkerRecord, "id" | "startedAt" | "seenAt" | "leaseMs">
    & { jobs: JsonText; details: JsonText; stopping: number }
  >`
    SELECT id, jobs, seen_at AS seenAt, lease_ms AS leaseMs, details, started_at AS startedAt, stopping FROM holdfast_workers
    WHERE seen_at + lease_ms * ${raw(LISTED_LEASES)} >= ${now} ORDER BY started_at, id`.map(
    ({ jobs, details, stopping, ...worker }) => ({
      ...worker,
      details: parseWorkerDetails(details),
      jobNames: [...new Set((JSON.parse(jobs) as string[]).map(jobNameOf))].sort(), // the names of queues
      isStopping: stopping === 1,
      leases: leases.get(worker.id) ?? 0,
    }),
  );
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

/** Reads the last claim of a worker that is known. */
export function readLastClaim(
  db: SqliteDatabase,
  workerId: string,
): { seen_at: number; claim_id: string } | undefined {
  return db.get`SELECT seen_at, claim_id FROM holdfast_workers WHERE id = ${workerId}`;
}

/** What a worker claimed by its last call, if that is the one with this id. */
export function readClaimed(
  db: SqliteDatabase,
  { workerId, claimId }: ClaimRequest,
): [runId: string, generation: number][] | null {
  const worker = db.get<{ claimed: JsonText }>`
    SELECT claimed FROM holdfast_workers WHERE id = ${workerId} AND claim_id = ${claimId}`;
  return worker === undefined ? null : JSON.parse(worker.claimed);
}

/** Records a claim: which jobs the worker knows, with versions and prints, when it was, and what it has claimed. */
export function noteWorker(
  db: SqliteDatabase,
  request: ClaimRequest,
  rows: readonly { id: string; lease_generation: number }[],
  now: number,
): void {
  const { workerId, worker, jobs, leaseMs, claimId, holding } = request;
  const queues = jobs.flatMap(({ name, version, print }) => {
    const queue = queueName(name, version);
    return [queue, queueName(name, version, print), aloneQueue(queue)];
  });
  const claimed = rows.map((row) => [row.id, row.lease_generation]);
  const soleClaim = rows.length + holding.length === 1 ? claimId : null;
  db.run`
    INSERT INTO holdfast_workers (id, jobs, seen_at, lease_ms, claim_id, claimed, details, started_at, limits, sole_claim)
    VALUES (${workerId}, ${JSON.stringify(queues)}, ${now}, ${leaseMs}, ${claimId}, ${JSON.stringify(claimed)},
      ${JSON.stringify(worker)}, ${now}, ${JSON.stringify(limitsOf(jobs))}, ${soleClaim})
    ON CONFLICT DO UPDATE SET jobs = excluded.jobs, seen_at = excluded.seen_at, lease_ms = excluded.lease_ms,
      claim_id = excluded.claim_id, claimed = excluded.claimed, details = excluded.details, limits = excluded.limits,
      sole_claim = iif(excluded.claimed = '[]', sole_claim, excluded.sole_claim)`;
}

/** The queues from which live workers claim. */
export function liveQueues(db: SqliteDatabase, now: number, exceptWorkerId = ""): Set<string> {
  return new Set(readLiveWorkers(db, now, exceptWorkerId).flatMap(({ queues }) => [...queues]));
}

/** The live workers but one. A worker is alive if it claimed within the length of its lease. */
export function readLiveWorkers(db: SqliteDatabase, now: number, exceptWorkerId: string): LiveWorker[] {
  // A worker last seen in the future shows that the clock was set back: it does not count as alive.
  const workers = db.all<{ jobs: JsonText; limits: JsonText }>`
    SELECT jobs, limits FROM holdfast_workers WHERE id <> ${exceptWorkerId} AND seen_at <= ${now}
      AND seen_at + lease_ms > ${now}`;
  return workers.map(({ jobs, limits }) => ({ queues: new Set(JSON.parse(jobs)), limits: JSON.parse(limits) }));
}

/**
 * Since when a run is due that is claimed alone, and that the worker is to claim as soon as it holds nothing. See
 * `ClaimResult`.
 */
export function findAloneSince(
  db: SqliteDatabase,
  { workerId, jobs, holding }: ClaimRequest,
  paused: ReadonlySet<string>,
  now: number,
): number | null {
  const earlier = new Set(
    holding.length === 0 ? [] : db.all<{ jobs: JsonText }>`
      SELECT jobs FROM holdfast_workers WHERE id < ${workerId} AND seen_at <= ${now} AND seen_at + lease_ms > ${now}`
      .flatMap(({ jobs }): string[] => JSON.parse(jobs)),
  );
  const queues = jobs.filter(({ name }) => !paused.has(name)).map(({ name, version, concurrency }) => ({
    queue: aloneQueue(queueName(name, version)),
    isLimited: concurrency !== null,
  })).filter(({ queue }) => !earlier.has(queue));
  return db.one<{ at: number | null }>`SELECT min(r.updated_at) AS at FROM json_each(${JSON.stringify(queues)}) j
    JOIN holdfast_runs r INDEXED BY holdfast_runs_special ON r.queue = j.value ->> 'queue'
    WHERE r.queue_state IS NOT NULL AND r.queue <> r.job AND (r.queue_state = 'R' OR j.value ->> 'isLimited')`.at;
}

/** Deletes the entries of workers that died long ago. */
export function forgetDeadWorkers(db: SqliteDatabase, now: number): void {
  db.run`DELETE FROM holdfast_workers WHERE seen_at + lease_ms * ${LISTED_LEASES} < ${now}`;
}
