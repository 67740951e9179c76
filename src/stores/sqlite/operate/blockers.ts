import { failureText } from "../../../failure.ts";
import { positionOf, type Rate } from "../../../flow.ts";
import type { JsonText } from "../../../json.ts";
import type { RunStatus } from "../../../run.ts";
import {
  type BlockerFacts,
  type KeyFacts,
  type LimitFacts,
  liveWorkers,
  MAX_AHEAD,
  versionQueue,
  type WorkerFacts,
} from "../../operate/blocker_facts.ts";
import { jobNameOf } from "../../queue_name.ts";
import { toFailure } from "../../rows.ts";
import { parseWorkerDetails, toNamedWorker } from "../../worker_details.ts";
import { isOrphan } from "../children/orphans.ts";
import { HEAD_START } from "../flow/concurrency_keys.ts";
import { countExecuted } from "../flow/job_gates.ts";
import { readJobPauses } from "../flow/job_pauses.ts";
import { countAllowed, jobScope, keyScope, rateOpensAt } from "../flow/rates.ts";
import { type RunRow, SELECT_RUN, toRun } from "../rows.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { countLeases } from "./workers.ts";

// The maximum number of holders of a key that are read.
const MAX_HOLDERS = 20;
// Runs with a fairness key are not in the order of their positions: so many of a queue are examined.
const MAX_EXAMINED = 5_000;

interface BlockedRow extends RunRow {
  queue_state: "R" | "B" | null;
  timer_at: number | null;
  leased_at: number | null;
}

/** The row of `holdfast_flow` of a run, or what it would be. */
interface FlowRow {
  job: string;
  position: number;
  queue_state: "R" | "B" | null;
  due_at: number | null;
  key_concurrency: number;
  key_rate_limit: number | null;
  key_rate_period: number | null;
}

/** Reads what may hold up a run. See `Store.getBlockers()`. */
export function readBlockerFacts(db: SqliteDatabase, runId: string, now: number): BlockerFacts | null {
  const row = db.get<BlockedRow>(`${SELECT_RUN} WHERE r.id = ?`, runId);
  if (row === undefined) return null;
  const flow = flowOf(db, row);
  const queue = flow.job;
  const isWaiting = row.status === "waiting" && flow.queue_state === null;
  // An interrupted run that kept its key has its head start already.
  const isHolder = row.concurrency_key !== null && holds(db, row.concurrency_key, row.id);
  const position = isHolder && isWaiting ? flow.position - HEAD_START : flow.position;
  const run = { ...row, ...flow, position, isHolder };
  const workers = readWorkers(db);
  const paused = readJobPauses(db);
  const able = liveWorkers(workers, now).filter(({ queues }) => queues.includes(queue));
  const key = readKey(db, run, now);
  const queues = new Set([queue, ...key?.firsts.map((first) => first.queue) ?? []].map(versionQueue));
  const pausedNames = new Set(paused.map(({ jobName }) => jobName));
  const limits = able.flatMap((worker) => readLimits(db, run, { worker, queues, paused: pausedNames }, now));
  const isRateClosed = limits.some((limit) => limit.queue === versionQueue(queue) && limit.rate?.allowed === 0);
  const group = row.fairness_key === null ? NO_GROUP : readGroup(db, { ...run, isRateClosed });
  return {
    run: toRun(row),
    now,
    queue,
    position,
    leasedAt: row.leased_at,
    endedParentId: row.parent_id !== null && isOrphan(db, row.seq) ? row.parent_id : null,
    isDue: isDueNow(row, flow, now),
    dueSince: row.status === "waiting" ? row.updated_at : row.start_at ?? row.created_at,
    awaited: isWaiting ? readAwaited(db, row.seq) : [],
    paused,
    workers,
    key,
    head: group.headSeq === null ? null : { key: readKeyOf(db, group.headSeq, now), ahead: group.count },
    limits,
    readyBefore: countReady(db, run, able, pausedNames) + group.count,
  };
}

function flowOf(db: SqliteDatabase, { seq, job, queue_state, flow }: BlockedRow): FlowRow {
  const row = flow === null ? undefined : db.get<FlowRow>(
    `SELECT job, position, queue_state, due_at, key_concurrency, key_rate_limit, key_rate_period
     FROM holdfast_flow WHERE run_seq = ?`,
    seq,
  );
  return row ?? {
    job,
    position: positionOf(seq, 0),
    queue_state,
    due_at: null,
    key_concurrency: 1,
    key_rate_limit: null,
    key_rate_period: null,
  };
}

function holds(db: SqliteDatabase, key: string, runId: string): boolean {
  return db.get("SELECT 1 FROM holdfast_holders WHERE concurrency_key = ? AND run_id = ?", key, runId) !== undefined;
}

/** Whether a run is due, or becomes so with the next claim. */
function isDueNow({ status, held, timer_at }: BlockedRow, { queue_state, due_at }: FlowRow, now: number): boolean {
  if (queue_state !== null) return true;
  if (status === "waiting") return timer_at !== null && timer_at <= now;
  return held === null && due_at !== null && due_at <= now;
}

/** What a waiting run waits for. */
function readAwaited(db: SqliteDatabase, runSeq: number): BlockerFacts["awaited"] {
  const pauses = db.all<
    { seq: number; id: string; kind: string; name: string; deadline_at: number; unfinished: number }
  >(
    `SELECT seq, id, kind, name, deadline_at, unfinished FROM holdfast_pauses
     WHERE run_seq = ? AND awaited = 1 AND status = 'pending' ORDER BY seq`,
    runSeq,
  );
  const steps = db.all<{ name: string; attempts: number; failure: JsonText; retry_at: number }>(
    `SELECT name, attempts, failure, retry_at FROM holdfast_steps INDEXED BY holdfast_steps_retrying
     WHERE run_seq = ? AND status = 'retrying' ORDER BY position, seq`,
    runSeq,
  );
  return [
    ...pauses.flatMap(({ seq, id, kind, name, deadline_at, unfinished }): BlockerFacts["awaited"] => {
      if (kind === "wait") return [{ kind: "signal", waitId: id, name, deadlineAt: deadline_at }];
      if (kind === "sleep") return [{ kind: "sleep", name, until: deadline_at }];
      const child = db.get<{ id: string; job: string; status: RunStatus }>(
        `SELECT r.id, r.job, r.status FROM holdfast_child_runs c INDEXED BY holdfast_child_runs_open
         JOIN holdfast_runs r ON r.seq = c.run_seq
         WHERE c.parent_seq = ? AND c.is_open = 1 AND c.pause_seq = ? ORDER BY c.run_seq LIMIT 1`,
        runSeq,
        seq,
      );
      if (child === undefined) return [];
      const { id: runId, job, status } = child;
      return [{ kind: "child", child: { runId, jobName: jobNameOf(job), status }, open: unfinished }];
    }),
    ...steps.map(({ name, attempts, failure, retry_at }) => ({
      kind: "retry" as const,
      stepName: name,
      attempts,
      error: failureText(toFailure(failure)!), // a step between two attempts has failed
      at: retry_at,
    })),
  ];
}

/** The workers that are known, in the order of their ids. */
function readWorkers(db: SqliteDatabase): WorkerFacts[] {
  const rows = db.all<
    { id: string; jobs: JsonText; seen_at: number; lease_ms: number; limits: JsonText; details: JsonText }
  >(
    "SELECT id, jobs, seen_at, lease_ms, limits, details FROM holdfast_workers ORDER BY id",
  );
  const leases = countLeases(db);
  return rows.map(({ id, jobs, seen_at, lease_ms, limits, details }) => ({
    id,
    ...toNamedWorker(parseWorkerDetails(details)),
    lastSeenAt: seen_at,
    leaseMs: lease_ms,
    queues: JSON.parse(jobs),
    limits: JSON.parse(limits),
    leases: leases.get(id) ?? 0,
  }));
}

/** What the limits of a worker for some queues allow. */
function readLimits(
  db: SqliteDatabase,
  run: Pick<KeyedRun, "seq" | "position">,
  { worker, queues, paused }: { worker: WorkerFacts; queues: ReadonlySet<string>; paused: ReadonlySet<string> },
  now: number,
): LimitFacts[] {
  return worker.limits.filter(({ queue }) => queues.has(queue)).map(({ queue, names, concurrency, rate }) => {
    const own = worker.queues.filter((other) => names.includes(jobNameOf(other)) && !paused.has(jobNameOf(other)));
    const ahead = own.reduce((sum, other) => sum + countJobReady(db, other, run, "all"), 0);
    const begun = rate === null ? 0 : own.reduce((sum, other) => sum + countJobReady(db, other, run, "begun"), 0);
    return {
      workerId: worker.id,
      queue,
      inUse: countExecuted(db, { names }),
      concurrency,
      rate: rate === null ? null : readRoom(db, jobScope(names[0]), rate, now),
      ahead: Math.min(ahead, MAX_AHEAD),
      aheadNew: rate === null ? 0 : Math.min(ahead - begun, MAX_AHEAD),
    };
  });
}

/** How many runs of a queue that have passed their keys come before a run: all, or those that have begun before. */
function countJobReady(
  db: SqliteDatabase,
  queue: string,
  { seq, position }: Pick<KeyedRun, "seq" | "position">,
  which: "all" | "begun",
): number {
  const [plain, flow] = which === "all"
    ? [
      "INDEXED BY holdfast_runs_ready WHERE queue_state = 'R'",
      "INDEXED BY holdfast_flow_ready WHERE queue_state = 'R'",
    ]
    : [
      "INDEXED BY holdfast_runs_ready_begun WHERE queue_state = 'R' AND started_at IS NOT NULL",
      "INDEXED BY holdfast_flow_ready_begun WHERE queue_state = 'R' AND begun = 1",
    ];
  const { count } = db.one<{ count: number }>(
    `SELECT (SELECT count(*) FROM (SELECT 1 FROM holdfast_runs ${plain} AND job = ? AND seq < ? LIMIT ${MAX_AHEAD}))
       + (SELECT count(*) FROM (SELECT 1 FROM (SELECT position, run_seq FROM holdfast_flow ${flow} AND job = ?
           LIMIT ${MAX_EXAMINED}) WHERE position < ? AND run_seq <> ? LIMIT ${MAX_AHEAD})) AS count`,
    queue,
    position,
    queue,
    position,
    seq,
  );
  return count;
}

/** What a rate allows: how many starts now, and when the next one may follow them. */
function readRoom(db: SqliteDatabase, scope: string, rate: Rate, now: number): NonNullable<LimitFacts["rate"]> {
  const { limit, period } = rate;
  const oldest = db.get<{ at: number }>(
    `SELECT at FROM holdfast_starts
     WHERE scope = ? AND no > (SELECT max(no) FROM holdfast_starts WHERE scope = ?) - ? AND at > ? ORDER BY no LIMIT 1`,
    scope,
    scope,
    limit,
    now - period,
  );
  const opensAt = Math.min(oldest?.at ?? now, now) + period;
  return { limit, period, allowed: countAllowed(db, scope, rate, limit, now), opensAt };
}

/** A rate that is used up, and when it opens. */
function openingOf(db: SqliteDatabase, scope: string, rate: Rate, now: number): (Rate & { opensAt: number }) | null {
  const opensAt = rateOpensAt(db, scope, rate, now);
  return opensAt <= now ? null : { limit: rate.limit, period: rate.period, opensAt };
}

interface KeyedRun extends Omit<FlowRow, "queue_state" | "due_at"> {
  seq: number;
  id: string;
  concurrency_key: string | null;
  started_at: number | null;
  isHolder: boolean;
}

/** The facts of the key of a run that is due and has flow. */
function readKeyOf(db: SqliteDatabase, seq: number, now: number): KeyFacts | null {
  const row = db.one<Omit<KeyedRun, "isHolder">>(
    `SELECT r.seq, r.id, r.concurrency_key, r.started_at, f.job, f.position, f.key_concurrency, f.key_rate_limit,
       f.key_rate_period
     FROM holdfast_runs r JOIN holdfast_flow f ON f.run_seq = r.seq WHERE r.seq = ?`,
    seq,
  );
  const { concurrency_key: key, id } = row;
  return readKey(db, { ...row, isHolder: key !== null && holds(db, key, id) }, now);
}

function readKey(db: SqliteDatabase, run: KeyedRun, now: number): KeyFacts | null {
  const { concurrency_key: key, job: queue, position, isHolder, id } = run;
  if (key === null) return null;
  const { count } = db.one<{ count: number }>(
    "SELECT count(*) AS count FROM holdfast_holders WHERE concurrency_key = ? AND run_id <> ?",
    key,
    id,
  );
  const { key_rate_limit: limit, key_rate_period: period } = run;
  const hasRate = limit !== null && period !== null && run.started_at === null;
  return {
    queue,
    position,
    isHolder,
    holders: readHolders(db, key, id, now),
    holderCount: count,
    concurrency: run.key_concurrency,
    rate: hasRate ? openingOf(db, keyScope(key), { limit, period }, now) : null,
    firsts: readFirsts(db, key, run, now),
  };
}

function readHolders(db: SqliteDatabase, key: string, id: string, now: number): KeyFacts["holders"] {
  const rows = db.all<
    {
      run_id: string;
      job: string | null;
      ghost_job: string | null;
      status: RunStatus | null;
      since: number | null;
      lease_owner: string | null;
    }
  >(
    `SELECT h.run_id, r.job, g.job AS ghost_job, r.status, r.lease_owner,
       CASE r.status WHEN 'running' THEN r.leased_at WHEN 'cancelled' THEN r.completed_at ELSE r.updated_at END AS since
     FROM (SELECT run_id FROM holdfast_holders WHERE concurrency_key = ? AND run_id <> ? ORDER BY run_id LIMIT ${MAX_HOLDERS}) h
     LEFT JOIN holdfast_runs r ON r.id = h.run_id LEFT JOIN holdfast_ghosts g ON g.run_id = h.run_id`,
    key,
    id,
  );
  return rows.map(({ run_id: runId, job, ghost_job, status, since, lease_owner: workerId }) => ({
    runId,
    jobName: jobNameOf(job ?? ghost_job ?? ""),
    status: status ?? "cancelled", // it was deleted
    since: since ?? now,
    workerId,
  }));
}

/** Of each queue, the first run in the line of a key but one, and how many come before that one. */
function readFirsts(
  db: SqliteDatabase,
  key: string,
  { seq, position }: Pick<KeyedRun, "seq" | "position">,
  now: number,
): KeyFacts["firsts"] {
  return [...queuesInLine(db, key)].flatMap((queue) => {
    const first = db.get<{ position: number; state: string; begun: number; concurrency: number }>(
      `SELECT position, state, begun, concurrency FROM (
         SELECT * FROM (SELECT seq AS position, queue_state AS state, started_at IS NOT NULL AS begun, 1 AS concurrency FROM holdfast_runs INDEXED BY holdfast_runs_queued_by_key
           WHERE concurrency_key = ? AND job = ? AND queue_state IS NOT NULL AND seq <> ? ORDER BY seq LIMIT 1)
         UNION ALL
         SELECT * FROM (SELECT position, queue_state AS state, begun, key_concurrency AS concurrency FROM holdfast_flow INDEXED BY holdfast_flow_queued_by_key
           WHERE concurrency_key = ? AND job = ? AND queue_state IS NOT NULL AND run_seq <> ? ORDER BY position LIMIT 1))
       ORDER BY position LIMIT 1`,
      key,
      queue,
      seq,
      key,
      queue,
      seq,
    );
    if (first === undefined) return [];
    const opening = db.get<{ opens_at: number }>(
      "SELECT opens_at FROM holdfast_openings WHERE concurrency_key = ? AND job = ?",
      key,
      queue,
    );
    const isReady = opening === undefined ? first.state === "R" : opening.opens_at <= now;
    const before = countBefore(db, key, queue, { seq, position });
    const { position: at, begun, concurrency } = first;
    return [{ queue, position: at, isReady, hasBegun: begun === 1, concurrency, before }];
  });
}

function countBefore(
  db: SqliteDatabase,
  key: string,
  queue: string,
  { seq, position }: { seq: number; position: number },
): number {
  const { count } = db.one<{ count: number }>(
    `SELECT (SELECT count(*) FROM (SELECT 1 FROM holdfast_runs INDEXED BY holdfast_runs_queued_by_key
         WHERE concurrency_key = ? AND job = ? AND queue_state IS NOT NULL AND seq < ? LIMIT ${MAX_AHEAD}))
       + (SELECT count(*) FROM (SELECT 1 FROM holdfast_flow INDEXED BY holdfast_flow_queued_by_key
         WHERE concurrency_key = ? AND job = ? AND queue_state IS NOT NULL AND position < ? AND run_seq <> ?
         LIMIT ${MAX_AHEAD})) AS count`,
    key,
    queue,
    position,
    key,
    queue,
    position,
    seq,
  );
  return Math.min(count, MAX_AHEAD);
}

/** The queues of the runs in the line of a key: one probe for each. */
function* queuesInLine(db: SqliteDatabase, key: string): Generator<string> {
  for (let last = "";;) {
    const { next } = db.one<{ next: string | null }>(
      `SELECT min(job) AS next FROM (
         SELECT * FROM (SELECT job FROM holdfast_runs INDEXED BY holdfast_runs_queued_by_key
           WHERE concurrency_key = ? AND job > ? AND queue_state IS NOT NULL ORDER BY job LIMIT 1)
         UNION ALL
         SELECT * FROM (SELECT job FROM holdfast_flow INDEXED BY holdfast_flow_queued_by_key
           WHERE concurrency_key = ? AND job > ? AND queue_state IS NOT NULL ORDER BY job LIMIT 1))`,
      key,
      last,
      key,
      last,
    );
    if (next === null) return;
    yield next;
    last = next;
  }
}

/** The runs of the group of a run that come before it. */
interface Group {
  /** The first of them; `null`: none comes before it. */
  headSeq: number | null;
  /** How many, up to the maximum. */
  count: number;
}

const NO_GROUP: Group = { headSeq: null, count: 0 };

function readGroup(
  db: SqliteDatabase,
  { job, fairness_key, position, started_at, isRateClosed, seq }: KeyedRun & {
    fairness_key: string | null;
    isRateClosed: boolean;
  },
): Group {
  // While a rate is used up, runs that have not started do not count for one that has.
  const isBegunOnly = isRateClosed && started_at !== null;
  const where = `INDEXED BY ${isBegunOnly ? "holdfast_flow_ready_begun" : "holdfast_flow_ready"}
    WHERE queue_state = 'R' ${isBegunOnly ? "AND begun = 1" : ""} AND job = ? AND fairness_key = ? AND position < ?
      AND run_seq <> ?`;
  const parameters = [job, fairness_key, position, seq];
  const head = db.get<{ run_seq: number }>(
    `SELECT run_seq FROM holdfast_flow ${where} ORDER BY position LIMIT 1`,
    ...parameters,
  );
  const { count } = db.one<{ count: number }>(
    `SELECT count(*) AS count FROM (SELECT 1 FROM holdfast_flow ${where} LIMIT ${MAX_AHEAD})`,
    ...parameters,
  );
  return { headSeq: head?.run_seq ?? null, count };
}

/**
 * How many runs come before one in the queues of some workers: those without a fairness key, and of each fairness key the
 * first one. Those of its own fairness key do not count.
 */
function countReady(
  db: SqliteDatabase,
  run: KeyedRun & { fairness_key: string | null },
  able: readonly WorkerFacts[],
  paused: ReadonlySet<string>,
): number {
  const queues = new Set(able.flatMap(({ queues }) => queues).filter((queue) => !paused.has(jobNameOf(queue))));
  const { position, seq, job, fairness_key } = run;
  let count = 0;
  for (const queue of queues) {
    const room = MAX_AHEAD - count;
    if (room <= 0) break;
    const found = db.one<{ count: number }>(
      `SELECT (SELECT count(*) FROM (SELECT 1 FROM holdfast_runs INDEXED BY holdfast_runs_ready
           WHERE queue_state = 'R' AND job = ? AND seq < ? LIMIT ${MAX_AHEAD}))
         + (SELECT count(*) FROM (SELECT 1 FROM holdfast_flow INDEXED BY holdfast_flow_ready
           WHERE queue_state = 'R' AND job = ? AND fairness_key IS NULL AND position < ? AND run_seq <> ? LIMIT ${MAX_AHEAD}))
         + (SELECT count(*) FROM (SELECT 1 FROM holdfast_heads
           WHERE job = ? AND position < ? AND (job <> ? OR fairness_key IS NOT ?) LIMIT ${MAX_AHEAD})) AS count`,
      queue,
      position,
      queue,
      position,
      seq,
      queue,
      position,
      job,
      fairness_key,
    );
    count += found.count;
  }
  return Math.min(count, MAX_AHEAD);
}
