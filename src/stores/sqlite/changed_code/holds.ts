import { factBy } from "../../../model/fact.ts";
import { LeaseLostError } from "../../../model/error.ts";
import type { Report } from "../../../model/execution_report.ts";
import type { HoldCode, StrandedJob } from "../../../model/hold.ts";
import { isoTime } from "../../../values/iso_time.ts";
import type { JsonText } from "../../../values/json.ts";
import type { Lease } from "../../../model/lease.ts";
import { OPEN, type StoredRun } from "../../../model/run.ts";
import type { HeldQuery, HoldRecord, NewHold } from "../../../store/hold_record.ts";
import { addTry, byNameAndVersion, namesOfPrints } from "../../holds.ts";
import { enterQueue } from "../flow/concurrency_keys.ts";
import { findRunRow, toRunText } from "../rows.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { isAmong, raw, sql } from "../statement.ts";
import { findLeased, leaveLease } from "../writes/endings.ts";
import { newReports } from "../writes/new_reports.ts";
import { withdrawOffer } from "./offers.ts";
import { countRuns, queuesOf } from "../run_counts.ts";
import { jobNameOf, versionOf } from "../../queue_name.ts";
import { liveQueues } from "../operate/workers.ts";
import { underLease } from "../writes/lease_cache.ts";

/** Holds a run. See `Store.hold()`. */
export function holdRun(
  db: SqliteDatabase,
  lease: Lease,
  hold: NewHold,
  reports: readonly Report[],
  now: number,
): void {
  const run = findLeased(db, lease);
  if (run === undefined) return checkRepeated(db, lease);
  const added = newReports(reports, run.last_report_no);
  writeHold(db, run, hold, now);
  leaveLease(db, run, "held", { added, facts: [[run.seq, "held", hold.code, hold.message]] }, now);
}

function checkRepeated(db: SqliteDatabase, lease: Lease): void {
  const repeated = db.get`SELECT 1 FROM holdfast_runs r JOIN holdfast_holds h ON h.run_seq = r.seq
    WHERE r.id = ${lease.runId} AND r.lease_claim = ${lease.claimId} AND h.generation = ${lease.generation}
      AND h.since IS NOT NULL`;
  if (repeated === undefined) throw new LeaseLostError(lease);
}

function writeHold(
  db: SqliteDatabase,
  run: { seq: number; job: string; recorded: number; lease_generation: number },
  hold: NewHold,
  now: number,
): void {
  const last = db.get<{ prints: JsonText }>`
    SELECT prints FROM holdfast_holds WHERE run_seq = ${run.seq} AND recorded = ${run.recorded}`;
  const prints = JSON.stringify(addTry(last === undefined ? [] : JSON.parse(last.prints), hold));
  db.run`
    INSERT INTO holdfast_holds (run_seq, queue, code, message, details, since, generation, recorded, prints)
    VALUES (${run.seq}, ${run.job}, ${hold.code}, ${hold.message}, ${JSON.stringify(hold.details)}, ${now},
      ${run.lease_generation}, ${run.recorded}, ${prints})
    ON CONFLICT DO UPDATE SET code = excluded.code, message = excluded.message, details = excluded.details,
      since = excluded.since, generation = excluded.generation, recorded = excluded.recorded, prints = excluded.prints`;
}

/** Deletes what is kept of the holds and the copies of a run that is deleted. */
export function deleteHold(
  db: SqliteDatabase,
  { seq, lease_generation: generation, origin_id }: { seq: number; lease_generation: number; origin_id: string | null },
): void {
  // A run that was claimed once at most was never held.
  if (generation > 1) db.run`DELETE FROM holdfast_holds WHERE run_seq = ${seq}`;
  if (origin_id !== null) db.run`DELETE FROM holdfast_copies WHERE run_seq = ${seq}`;
}

/** Makes a held run due. See `Store.resumeHeld()`. */
export function resumeHeld(
  db: SqliteDatabase,
  runId: string,
  continues: boolean,
  by: string | null,
  now: number,
): StoredRun | null {
  const run = findRunRow(db, runId);
  if (run === undefined || run.held === null) return null;
  withdrawOffer(db, run.seq);
  db.run`
    UPDATE holdfast_holds SET since = NULL, offered_in = '', prints = '[]',
      continues = max(continues, ${continues ? 1 : 0})
    WHERE run_seq = ${run.seq}`;
  db.run`UPDATE holdfast_runs SET updated_at = ${now} WHERE seq = ${run.seq}`;
  db.facts.note(factBy([run.seq, "resumed"], by));
  enterQueue(db, run.seq, now);
  return toRunText({ ...run, updated_at: now, held: null });
}

/** Whether the claim of a run ended a hold, and whether the run was resumed with `onDivergence: "continue"`. */
export function readHoldOfClaim(
  db: SqliteDatabase,
  { seq, lease_generation: generation }: { seq: number; lease_generation: number },
): { isResumed: boolean; continues: boolean } {
  // A run that is claimed first was never held.
  const hold = generation === 1 ? undefined : db.get<{ continues: number; generation: number }>`
    SELECT continues, generation FROM holdfast_holds WHERE run_seq = ${seq}`;
  return { isResumed: hold?.generation === generation, continues: hold?.continues === 1 };
}

/** The hold of a run. See `Store.getHold()`. */
export function readHold(db: SqliteDatabase, runId: string): HoldRecord | null {
  const row = db.get<{ code: HoldCode; message: string; details: JsonText; since: number; prints: JsonText }>`
    SELECT h.code, h.message, h.details, h.since, h.prints
    FROM holdfast_runs r JOIN holdfast_holds h ON h.run_seq = r.seq WHERE r.id = ${runId} AND h.since IS NOT NULL`;
  if (row === undefined) return null;
  const { code, message, since, details, prints } = row;
  const tried = namesOfPrints(JSON.parse(prints));
  return { code, message, since: isoTime(since), details: JSON.parse(details), prints: tried };
}

/** Finds held runs. See `Store.findHeld()`. */
export function findHeld(
  db: SqliteDatabase,
  { jobNames, code, after, limit }: HeldQuery,
): { ids: string[]; seqs: number[] } {
  const queues = jobNames?.flatMap((name) => queuesOf(db, name));
  const isOfJob = queues === undefined ? raw("TRUE") : isAmong("h.queue", queues);
  const hasCode = code === undefined ? raw("TRUE") : sql`h.code = ${code}`;
  const rows = db.all<{ id: string; seq: number }>`
    SELECT r.id, r.seq FROM holdfast_holds h INDEXED BY holdfast_holds_by_run CROSS JOIN holdfast_runs r
    ON r.seq = h.run_seq WHERE h.since IS NOT NULL AND h.run_seq > ${after} AND ${isOfJob} AND ${hasCode}
    ORDER BY h.run_seq LIMIT ${limit}`;
  return { ids: rows.map(({ id }) => id), seqs: rows.map(({ seq }) => seq) };
}

/** The jobs and versions of open runs that no live worker knows. See `Store.getStrandedJobs()`. */
export function findStrandedJobs(db: SqliteDatabase, now: number): StrandedJob[] {
  const open = db.all<{ job: string; runs: number }>`
    SELECT job, sum(runs) AS runs FROM holdfast_counts
    WHERE ${isAmong("status", OPEN)} AND runs > 0 GROUP BY job`;
  const known = liveQueues(db, now);
  return open.filter(({ job }) => !known.has(job)).map(({ job, runs }) => ({
    jobName: jobNameOf(job),
    version: versionOf(job),
    runs,
    oldestAt: isoTime(oldestOf(db, job)),
  })).sort(byNameAndVersion);
}

/** When the oldest open run of a queue was triggered. */
function oldestOf(db: SqliteDatabase, queue: string): number {
  const created = OPEN.map((status) => findOldest(db, queue, status)).filter((row) => row !== undefined)
    .sort((one, other) => one.seq - other.seq);
  return created[0]?.created_at ?? 0; // the counts say that there is one
}

/** The oldest run of a queue in a status: among all runs of the queue or all in the status, whichever are fewer. */
function findOldest(
  db: SqliteDatabase,
  queue: string,
  status: string,
): { seq: number; created_at: number } | undefined {
  const wanted = { jobs: [queue], statuses: [status] };
  if (countRuns(db, wanted) === 0) return undefined;
  const byJob = countRuns(db, { ...wanted, statuses: null }) <= countRuns(db, { ...wanted, jobs: null });
  const index = raw(`holdfast_runs_by_${byJob ? "job" : "status"}`);
  return db.get<{ seq: number; created_at: number }>`SELECT seq, created_at FROM holdfast_runs INDEXED BY ${index}
    WHERE status = ${status} AND job = ${queue} ORDER BY seq LIMIT 1`;
}

/** The input of a run as parsed by another schema. See `Store.getInput()`. */
export function readInput(db: SqliteDatabase, runId: string, schemaPrint: string): { input: JsonText | null } | null {
  const row = db.get<{ input: JsonText | null }>`
    SELECT o.input FROM holdfast_runs r JOIN holdfast_other_inputs o ON o.run_seq = r.seq
    WHERE r.id = ${runId} AND o.schema_print = ${schemaPrint}`;
  return row === undefined ? null : { input: row.input };
}

/** Stores the input of a run as parsed by another schema. See `Store.saveInput()`. */
export function writeInput(
  db: SqliteDatabase,
  lease: Lease,
  schemaPrint: string,
  input: JsonText | null,
  now: number,
): JsonText | null {
  const run = db.get<{ seq: number }>`SELECT seq FROM holdfast_runs WHERE ${underLease(lease)}`;
  if (run === undefined) throw new LeaseLostError(lease);
  const added = db.run`
    INSERT INTO holdfast_other_inputs (run_seq, schema_print, input) VALUES (${run.seq}, ${schemaPrint}, ${input})
      ON CONFLICT DO NOTHING`;
  if (added > 0) db.run`UPDATE holdfast_runs SET updated_at = ${now} WHERE seq = ${run.seq}`;
  return db.one<{ input: JsonText | null }>`
    SELECT input FROM holdfast_other_inputs WHERE run_seq = ${run.seq} AND schema_print = ${schemaPrint}`.input;
}
