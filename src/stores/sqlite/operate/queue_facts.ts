import type { Rate } from "../../../model/flow.ts";
import {
  countAhead,
  isLimitMeant,
  type KeyFacts,
  type LimitFacts,
  MAX_AHEAD,
  type WorkerFacts,
} from "../../operate/blocker_facts.ts";
import { jobNameOf } from "../../queue_name.ts";
import { LAST_KEPT, MAX_COUNTED_READY, MAX_HOLDERS } from "../../rules.ts";
import { readyRunsOf } from "../flow/candidate.ts";
import { countExecuted } from "../flow/job_gates.ts";
import { countAllowed, jobScope, keyScope, rateOpensAt } from "../flow/rates.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { raw, sql, type SqlPart } from "../statement.ts";
import type { RunStatus } from "../../../model/run.ts";
import { type KeyLimits, queuesOfKey } from "../flow/concurrency_keys.ts";
import type { RunWith } from "../rows.ts";

/** What the limits of workers allow for a run, and for those of some other queues. */
export function readLimits(
  db: SqliteDatabase,
  run: Pick<KeyedRun, "seq" | "position" | "queue">,
  { workers, queues, paused }: {
    workers: readonly WorkerFacts[];
    queues: ReadonlySet<string>;
    paused: ReadonlySet<string>;
  },
  now: number,
): LimitFacts[] {
  const ready = new Map<string, ReadyRun[]>(); // each queue is read once, however many workers claim from it
  const readyOf = (queue: string) => {
    const runs = ready.get(queue) ?? readReady(db, queue, run, now);
    ready.set(queue, runs);
    return runs;
  };
  return workers.flatMap((worker) => {
    const meant = worker.limits.filter((limit) => isLimitMeant(limit, run.queue, queues));
    return meant.map(({ queue, names, concurrency, rate }) => {
      const own = worker.queues.filter((other) => names.includes(jobNameOf(other)) && !paused.has(jobNameOf(other)));
      return {
        workerId: worker.id,
        queue,
        inUse: countExecuted(db, { names }),
        concurrency,
        rate: rate === null ? null : readRoom(db, jobScope(names[0]), rate, now),
        ahead: countAhead(own.flatMap(readyOf)),
      };
    });
  });
}

interface ReadyRun {
  queue: string;
  position: number;
  hasBegun: boolean;
}

/** The runs of a queue that wait for the rate of their key, which has opened: the next claim moves them on. */
function letPass(queue: string, now: number): SqlPart {
  return sql`(SELECT concurrency_key AS key FROM holdfast_openings
      WHERE queue = ${queue} AND is_open = 0 AND opens_at <= ${now} LIMIT ${raw(MAX_AHEAD)})
    JOIN holdfast_runs ON seq = (SELECT seq FROM holdfast_runs INDEXED BY holdfast_runs_queued_by_key
      WHERE concurrency_key = key AND queue = ${queue} AND queue_state IS NOT NULL ORDER BY position LIMIT 1)
    WHERE queue_state = 'B'`;
}

/**
 * The runs of a queue that have passed their keys and come before a run, with those that the next claim lets
 * pass.
 */
function readReady(
  db: SqliteDatabase,
  queue: string,
  { seq, position }: Pick<KeyedRun, "seq" | "position">,
  now: number,
): ReadyRun[] {
  const isBefore = sql`position < ${position} AND seq <> ${seq}`;
  const rows = db.all<{ position: number; begun: number }>`
    SELECT * FROM (${readyRunsOf(queue, BEFORE)} AND fairness_key IS NULL AND ${isBefore}
      ORDER BY position LIMIT ${raw(MAX_AHEAD)})
    UNION ALL
    SELECT position, begun FROM (${readyRunsOf(queue, `${BEFORE}, seq`)} AND fairness_key IS NOT NULL
      LIMIT ${raw(MAX_COUNTED_READY)}) WHERE ${isBefore}
    UNION ALL
    SELECT ${raw(BEFORE)} FROM ${letPass(queue, now)} AND ${isBefore}`;
  return rows.map(({ position, begun }) => ({ queue, position, hasBegun: begun === 1 }));
}

const BEFORE = "position, started_at IS NOT NULL AS begun";

/** What a rate allows: how many starts now, and when the next one may follow them. */
function readRoom(db: SqliteDatabase, scope: string, rate: Rate, now: number): NonNullable<LimitFacts["rate"]> {
  const { limit, period } = rate;
  const oldest = db.get<{ at: number }>`SELECT at FROM holdfast_starts
    WHERE scope = ${scope} AND no > (SELECT max(no) FROM holdfast_starts WHERE scope = ${scope}) - ${limit}
      AND at > ${now - period} ORDER BY no LIMIT 1`;
  const opensAt = Math.min(oldest?.at ?? now, now) + period;
  return { limit, period, allowed: countAllowed(db, scope, rate, limit, now), opensAt };
}

/** How many runs of the group of a run, which have its fairness key, come before it. */
export function countGroup(
  db: SqliteDatabase,
  { queue, fairness_key, position, started_at, isRateClosed, seq }: KeyedRun & {
    fairness_key: string | null;
    isRateClosed: boolean;
  },
): number {
  // While a rate is used up, runs that have not started do not count for one that has.
  return db.one<{ count: number }>`
    SELECT count(*) AS count FROM (${readyRunsOf(queue, "1", isRateClosed && started_at !== null)}
      AND fairness_key = ${fairness_key} AND position < ${position} AND seq <> ${seq} LIMIT ${raw(MAX_AHEAD)})`.count;
}

/**
 * How many runs come before one in the queues of some workers: those without a fairness key, and of each fairness key the
 * first one. Those of its own fairness key do not count.
 */
export function countReady(
  db: SqliteDatabase,
  run: KeyedRun & { fairness_key: string | null },
  able: readonly WorkerFacts[],
  paused: ReadonlySet<string>,
  now: number,
): number {
  const queues = new Set(able.flatMap(({ queues }) => queues).filter((queue) => !paused.has(jobNameOf(queue))));
  const { position, seq, fairness_key } = run;
  const isBefore = sql`fairness_key IS NULL AND position < ${position} AND seq <> ${seq}`;
  let count = 0;
  for (const queue of queues) {
    const room = MAX_AHEAD - count;
    if (room <= 0) break;
    count += db.one<{ count: number }>`
      SELECT (SELECT count(*) FROM (${readyRunsOf(queue, "1")} AND ${isBefore} LIMIT ${raw(MAX_AHEAD)}))
        + (SELECT count(*) FROM (SELECT 1 FROM holdfast_heads WHERE queue = ${queue} AND position < ${position}
          AND (queue <> ${run.queue} OR fairness_key IS NOT ${fairness_key}) LIMIT ${raw(MAX_AHEAD)}))
        + (SELECT count(*) FROM ${letPass(queue, now)} AND ${isBefore}) AS count`.count;
  }
  return Math.min(count, MAX_AHEAD);
}

/** A run, and what its key needs to know of it. */
type KeyedRun = KeyLimits & RunWith<"seq id queue position concurrency_key started_at"> & {
  /** Whether it holds the key. */
  isHolder: boolean;
};

/** The facts of the key of a run. */
export function readKey(db: SqliteDatabase, run: KeyedRun, now: number): KeyFacts | null {
  const { concurrency_key: key, queue, position, isHolder, id } = run;
  if (key === null) return null;
  const { count } = db.one<{ count: number }>`
    SELECT count(*) AS count FROM holdfast_holders WHERE concurrency_key = ${key} AND run_id <> ${id}`;
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

/** A rate, and when it opens. */
function openingOf(db: SqliteDatabase, scope: string, rate: Rate, now: number): Rate & { opensAt: number } {
  return { limit: rate.limit, period: rate.period, opensAt: rateOpensAt(db, scope, rate, now) };
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
  >`SELECT h.run_id, r.job, g.job AS ghost_job, r.status, r.lease_owner,
      CASE r.status WHEN 'running' THEN r.leased_at WHEN 'cancelled' THEN r.completed_at ELSE r.updated_at END AS
        since
    FROM (SELECT run_id FROM holdfast_holders WHERE concurrency_key = ${key} AND run_id <> ${id}
      ORDER BY run_id LIMIT ${raw(MAX_HOLDERS)}) h
    LEFT JOIN holdfast_runs r ON r.id = h.run_id LEFT JOIN holdfast_ghosts g ON g.run_id = h.run_id`;
  return rows.map(({ run_id: runId, job, ghost_job, status, since, lease_owner: workerId }) => ({
    runId,
    jobName: jobNameOf(job ?? ghost_job ?? ""),
    status: status ?? "cancelled", // it was deleted
    since: since ?? now,
    workerId,
  }));
}

/** Of each queue, the first run with a key but one, and how many come before that one. */
function readFirsts(
  db: SqliteDatabase,
  key: string,
  { seq, position }: Pick<KeyedRun, "seq" | "position">,
  now: number,
): KeyFacts["firsts"] {
  return [...queuesOfKey(db, key)].flatMap((queue) => {
    const first = db.get<{ position: number; state: string; begun: number; concurrency: number }>`
      SELECT position, queue_state AS state, started_at IS NOT NULL AS begun, key_concurrency AS concurrency
      FROM holdfast_runs INDEXED BY holdfast_runs_queued_by_key
      WHERE concurrency_key = ${key} AND queue = ${queue} AND queue_state IS NOT NULL AND seq <> ${seq}
        ORDER BY position LIMIT 1`;
    if (first === undefined) return [];
    const opening = db.get<{ opens_at: number }>`
      SELECT opens_at FROM holdfast_openings WHERE concurrency_key = ${key} AND queue = ${queue}`;
    const isReady = opening === undefined ? first.state === "R" : opening.opens_at <= now;
    const before = countBefore(db, key, queue, { seq, position });
    const kept = countBefore(db, key, queue, { seq, position: Math.min(position, LAST_KEPT) });
    const { position: at, begun, concurrency } = first;
    return [{ queue, position: at, isReady, hasBegun: begun === 1, concurrency, before, kept }];
  });
}

function countBefore(
  db: SqliteDatabase,
  key: string,
  queue: string,
  { seq, position }: { seq: number; position: number },
): number {
  return db.one<{ count: number }>`
    SELECT count(*) AS count FROM (SELECT 1 FROM holdfast_runs INDEXED BY holdfast_runs_queued_by_key
    WHERE concurrency_key = ${key} AND queue = ${queue} AND queue_state IS NOT NULL AND position < ${position}
      AND seq <> ${seq}
    LIMIT ${raw(MAX_AHEAD)})`.count;
}
