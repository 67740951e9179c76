import type { Rate } from "../../../model/flow.ts";
import { countAhead, isLimitMeant, type LimitFacts, MAX_AHEAD, type WorkerFacts } from "../../operate/blocker_facts.ts";
import { jobNameOf } from "../../queue_name.ts";
import { MAX_COUNTED_READY } from "../../rules.ts";
import { readyRunsOf } from "../flow/candidate.ts";
import { countExecuted } from "../flow/job_gates.ts";
import { countAllowed, jobScope } from "../flow/rates.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { type Part, raw, sql } from "../statement.ts";
import type { KeyedRun } from "./key_facts.ts";

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
function letPass(queue: string, now: number): Part {
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
