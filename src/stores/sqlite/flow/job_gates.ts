import type { KnownJob } from "../../../model/flow.ts";
import type { ClaimRequest } from "../../../store/claim.ts";
import { versionQueue, type WorkerLimit } from "../../operate/blocker_facts.ts";
import { aloneQueue, jobNameOf, queueName } from "../../queue_name.ts";
import { MAX_BEFORE_OPENING } from "../../rules.ts";
import { versionRange } from "../run_counts.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { raw } from "../statement.ts";
import { readyRuns, readyRunsOf } from "./candidate.ts";
import { firstsBefore, hasKept } from "./concurrency_keys.ts";
import { addStarts, countAllowed, jobScope, rateOpensAt } from "./rates.ts";
import type { JobPause } from "../../../store/operate.ts";
import { type JobPauseRow, toJobPause } from "../../rows.ts";

/** A queue of a known job that is not paused, with what the limits of the job allow. */
export interface JobGate {
  /** The job, with the limits in the code of the worker. */
  readonly job: KnownJob;
  /** The queue: of the version of the job, of the held runs that are offered to its print, or of those claimed alone. */
  readonly queue: string;
  /** How many more of its runs may be executed. */
  room: number;
  /** How many more of its runs may start. */
  starts: number;
  /** How many have been started since the gates were opened. */
  started: number;
}

/** What the limits of the known jobs allow, including what the open transaction has taken. */
export function openGates(
  db: SqliteDatabase,
  jobs: readonly KnownJob[],
  { paused, triesHeld, isAlone }: Pick<ClaimRequest, "triesHeld" | "isAlone"> & { paused: ReadonlySet<string> },
  most: number,
  now: number,
): JobGate[] {
  const open = paused.size === 0 ? jobs : jobs.filter(({ name }) => !paused.has(name));
  return open.map((job) => ({
    job,
    queue: isAlone
      ? aloneQueue(queueName(job.name, job.version))
      : queueName(job.name, job.version, triesHeld ? job.print : undefined),
    room: job.concurrency === null ? Infinity : job.concurrency - countExecuted(db, job),
    starts: job.rate === null ? Infinity : countAllowed(db, jobScope(job.names[0]), job.rate, most, now),
    started: 0,
  }));
}

/** The queues from which a worker claims that knows a job. */
export function queuesOf({ name, version, print }: KnownJob, hasOffers: boolean): string[] {
  const queue = queueName(name, version);
  return hasOffers ? [queue, queueName(name, version, print)] : [queue];
}

/** Counts a run that is claimed: all queues of its job share the limits. */
export function countTaken(gates: readonly JobGate[], gate: JobGate, isStart: boolean): void {
  const isCounted = isStart && gate.job.rate !== null;
  if (isCounted) gate.started += 1;
  for (const other of gates) {
    if (other.job.names[0] !== gate.job.names[0]) continue;
    other.room -= 1;
    if (isCounted) other.starts -= 1;
  }
}

/** How many runs of a job are executed, or may be after a cancel, under all its names. */
export function countExecuted(db: SqliteDatabase, { names }: Pick<KnownJob, "names">): number {
  let running = 0;
  for (const name of names) {
    const [after, before] = versionRange(name);
    running += db.one<{ running: number }>`
      SELECT coalesce((SELECT runs FROM holdfast_counts WHERE status = 'running' AND job = ${name}), 0)
        + coalesce((SELECT sum(runs) FROM holdfast_counts
          WHERE status = 'running' AND job > ${after} AND job < ${before}), 0)
        + (SELECT count(*) FROM holdfast_ghosts WHERE job = ${name}) AS running`.running;
  }
  // The counts are written right before the commit.
  for (const [job, count] of db.counts.get("running") ?? []) if (names.includes(jobNameOf(job))) running += count;
  return running;
}

/** Writes the starts that were counted. */
export function writeStarts(db: SqliteDatabase, gates: readonly JobGate[], now: number): void {
  for (const { job, started } of gates) {
    if (job.rate !== null && started > 0) addStarts(db, jobScope(job.names[0]), job.rate, started, now);
  }
}

/** Whether a run is ready that the limits of its job allow. */
export function hasReady(db: SqliteDatabase, gates: readonly JobGate[]): boolean {
  const open = gates.filter(({ room }) => room > 0);
  const queues = open.filter(({ starts }) => starts > 0).map(({ queue }) => queue);
  if (queues.length > 0 && hasReadyOf(db, queues)) return true;
  return open.some(({ starts, queue }) => starts <= 0 && hasBegunOf(db, queue));
}

function hasReadyOf(db: SqliteDatabase, queues: readonly string[]): boolean {
  if (queues.length === 1) return db.get(`${readyRuns("1", false)} LIMIT 1`, queues[0]!) !== undefined;
  return db.get(`${WITH_READY} LIMIT 1`, JSON.stringify(queues)) !== undefined;
}

const WITH_READY = `SELECT j.value AS queue FROM json_each(?) j WHERE EXISTS
  (SELECT 1 FROM holdfast_runs INDEXED BY holdfast_runs_ready WHERE queue_state = 'R' AND queue = j.value)`;

/** Those queues of gates that have ready runs. */
export function queuesWithReady(db: SqliteDatabase, gates: readonly JobGate[]): Set<string> {
  const rows = db.all<{ queue: string }>(WITH_READY, JSON.stringify(gates.map(({ queue }) => queue)));
  return new Set(rows.map(({ queue }) => queue));
}

function hasBegunOf(db: SqliteDatabase, queue: string): boolean {
  return db.get(`${readyRuns("1", true)} LIMIT 1`, queue) !== undefined;
}

/** Which queues of jobs come first in the queue of a key, before those of a claim. */
export interface Precedence {
  /** Those from which live workers claim, the claiming one included, without those of paused jobs. */
  live: ReadonlySet<string>;
  /** Those from which the claiming worker claims. */
  own: ReadonlySet<string>;
  /** Whether the limits of a job let another live worker claim a run of a queue; `hasBegun`: one that was claimed before. */
  canPass(queue: string, hasBegun: boolean): boolean;
}

/** The limits of a job in the code of a worker, and the queues from which it claims. */
export interface LiveWorker {
  queues: ReadonlySet<string>;
  limits: readonly WorkerLimit[];
}

/** What the limits of other workers let pass as a claim begins: the runs that it takes are written at its end. */
export function passLimits(db: SqliteDatabase, workers: readonly LiveWorker[], now: number): Precedence["canPass"] {
  const known = new Map<string, boolean>();
  return (queue, hasBegun) => {
    const key = `${hasBegun} ${queue}`;
    const canPass = known.get(key) ?? workers.some(({ queues, limits }) => {
      if (!queues.has(queue)) return false;
      const limit = limits.find((limit) => limit.queue === versionQueue(queue));
      return limit === undefined || isOpen(db, limit, hasBegun, now);
    });
    known.set(key, canPass);
    return canPass;
  };
}

function isOpen(
  db: SqliteDatabase,
  { names, concurrency, rate }: WorkerLimit,
  hasBegun: boolean,
  now: number,
): boolean {
  if (concurrency !== null && countExecuted(db, { names }) >= concurrency) return false;
  return rate === null || hasBegun || countAllowed(db, jobScope(names[0]), rate, 1, now) > 0;
}

/**
 * Whether a run of another job comes first in the queue of the key: one that the key has no room for yet, or one that only
 * other workers can claim, unless the limits of its job hold it back there.
 */
export function isBehindOtherJob(
  db: SqliteDatabase,
  run: { concurrency_key: string | null; queue: string; position: number },
  { live, own, canPass }: Precedence,
): boolean {
  if (run.concurrency_key === null || hasKept(run) || [...live].every((queue) => queue === run.queue)) return false;
  return firstsBefore(db, run.concurrency_key, run.queue, run.position).some(({ queue, isReady, hasBegun }) =>
    live.has(queue) && (!isReady || (!own.has(queue) && canPass(queue, hasBegun)))
  );
}

interface ExaminedRow {
  concurrency_key: string | null;
  queue: string;
  position: number;
  opens_at: number;
}

/** When the first of the rates opens that hold up a run which could be claimed otherwise; `null`: none does. */
export function findOpening(
  db: SqliteDatabase,
  gates: readonly JobGate[],
  precedence: Precedence,
  now: number,
): number | null {
  let first = Infinity;
  for (const { job: { names, rate }, queue, room } of gates) {
    if (room <= 0) continue;
    const jobOpensAt = rate === null ? -Infinity : rateOpensAt(db, jobScope(names[0]), rate, now);
    const lists = [heldByKeyRate(db, queue), ...(jobOpensAt > now ? [heldByJobRate(db, queue)] : [])];
    for (const runs of lists) {
      // If more are left than are examined, the first opening may be too early, but none is missed.
      const isAny = runs.length === MAX_BEFORE_OPENING && runs.every((run) => isBehindOtherJob(db, run, precedence));
      for (const run of runs) {
        const opensAt = Math.max(run.opens_at, jobOpensAt);
        if (opensAt <= now || opensAt >= first) continue;
        if (isAny || !isBehindOtherJob(db, run, precedence)) first = opensAt;
      }
    }
  }
  return first === Infinity ? null : first;
}

function heldByKeyRate(db: SqliteDatabase, queue: string): ExaminedRow[] {
  return db.all<ExaminedRow>`
    SELECT o.concurrency_key, o.queue, o.opens_at, (SELECT min(r.position) FROM holdfast_runs r
       WHERE r.concurrency_key = o.concurrency_key AND r.queue = o.queue AND r.queue_state IS NOT NULL) AS position
    FROM holdfast_openings o WHERE o.queue = ${queue} AND o.is_open = 0
      ORDER BY o.opens_at LIMIT ${raw(MAX_BEFORE_OPENING)}`;
}

function heldByJobRate(db: SqliteDatabase, queue: string): ExaminedRow[] {
  const ready = readyRunsOf(queue, "concurrency_key, queue, position, 0 AS opens_at");
  return db.all<ExaminedRow>`${ready} AND started_at IS NULL LIMIT ${raw(MAX_BEFORE_OPENING)}`;
}

/** Pauses a job, unless it is paused already. See `Store.pauseJob()`. */
export function pauseJob(
  db: SqliteDatabase,
  job: string,
  { by, note }: Pick<JobPause, "by" | "note">,
  now: number,
): JobPause {
  db.run`INSERT INTO holdfast_paused_jobs VALUES (${job}, ${now}, ${by}, ${note}) ON CONFLICT DO NOTHING`;
  return toJobPause(db.one<JobPauseRow>`SELECT * FROM holdfast_paused_jobs WHERE job = ${job}`);
}

/** Ends the pause of a job. Returns whether it was paused. */
export function resumeJob(db: SqliteDatabase, job: string): boolean {
  return db.run`DELETE FROM holdfast_paused_jobs WHERE job = ${job}` > 0;
}

/** The paused jobs, in the order of their names. */
export function readJobPauses(db: SqliteDatabase): JobPause[] {
  return db.all<JobPauseRow>`SELECT * FROM holdfast_paused_jobs ORDER BY job`.map(toJobPause);
}

/** The names of the paused jobs. */
export function readPausedJobs(db: SqliteDatabase): Set<string> {
  return new Set(db.all<{ job: string }>`SELECT job FROM holdfast_paused_jobs ORDER BY job`.map(({ job }) => job));
}
