import type { Rate } from "../../../model/flow.ts";
import { countAhead, isLimitMeant, type LimitFacts, MAX_AHEAD, type WorkerFacts } from "../../operate/blocker_facts.ts";
import { jobNameOf } from "../../queue_name.ts";
import { MAX_COUNTED_READY } from "../../rules.ts";
import { countExecuted } from "../flow/job_gates.ts";
import { countAllowed, jobScope } from "../flow/rates.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import type { KeyedRun } from "./key_facts.ts";

/** What the limits of workers allow for a run, and for those of some other queues. */
export function readLimits(
  db: SqliteDatabase,
  run: Pick<KeyedRun, "seq" | "position" | "job">,
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
    const meant = worker.limits.filter((limit) => isLimitMeant(limit, run.job, queues));
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

// The runs of a queue that wait for the rate of their key, which has opened: the next claim moves them on.
const LET_PASS = `(SELECT concurrency_key AS key FROM holdfast_openings
    WHERE job = ? AND is_open = 0 AND opens_at <= ? LIMIT ${MAX_AHEAD})
  JOIN holdfast_flow ON run_seq = (SELECT run_seq FROM holdfast_flow INDEXED BY holdfast_flow_queued_by_key
    WHERE concurrency_key = key AND job = ? AND queue_state IS NOT NULL ORDER BY position LIMIT 1)
  WHERE queue_state = 'B'`;

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
  const rows = db.all<{ position: number; begun: number }>(
    `SELECT * FROM (SELECT seq AS position, started_at IS NOT NULL AS begun
         FROM holdfast_runs INDEXED BY holdfast_runs_ready
         WHERE queue_state = 'R' AND job = ? AND seq < ? ORDER BY seq LIMIT ${MAX_AHEAD})
       UNION ALL
       SELECT position, begun FROM (SELECT position, begun, run_seq
         FROM holdfast_flow INDEXED BY holdfast_flow_ready
         WHERE queue_state = 'R' AND job = ? LIMIT ${MAX_COUNTED_READY}) WHERE position < ? AND run_seq <> ?
       UNION ALL
       SELECT position, begun FROM ${LET_PASS} AND position < ? AND run_seq <> ?`,
    queue,
    position,
    queue,
    position,
    seq,
    queue,
    now,
    queue,
    position,
    seq,
  );
  return rows.map(({ position, begun }) => ({ queue, position, hasBegun: begun === 1 }));
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

/** How many runs of the group of a run, which have its fairness key, come before it. */
export function countGroup(
  db: SqliteDatabase,
  { job, fairness_key, position, started_at, isRateClosed, seq }: KeyedRun & {
    fairness_key: string | null;
    isRateClosed: boolean;
  },
): number {
  // While a rate is used up, runs that have not started do not count for one that has.
  const [index, begun] = isRateClosed && started_at !== null
    ? ["holdfast_flow_ready_begun", "AND begun = 1"]
    : ["holdfast_flow_ready", ""];
  const { count } = db.one<{ count: number }>(
    `SELECT count(*) AS count FROM (SELECT 1 FROM holdfast_flow INDEXED BY ${index}
       WHERE queue_state = 'R' ${begun} AND job = ? AND fairness_key = ? AND position < ? AND run_seq <> ?
       LIMIT ${MAX_AHEAD})`,
    job,
    fairness_key,
    position,
    seq,
  );
  return count;
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
           WHERE job = ? AND position < ? AND (job <> ? OR fairness_key IS NOT ?) LIMIT ${MAX_AHEAD}))
         + (SELECT count(*) FROM ${LET_PASS} AND fairness_key IS NULL AND position < ? AND run_seq <> ?) AS count`,
      queue,
      position,
      queue,
      position,
      seq,
      queue,
      position,
      job,
      fairness_key,
      queue,
      now,
      queue,
      position,
      seq,
    );
    count += found.count;
  }
  return Math.min(count, MAX_AHEAD);
}
