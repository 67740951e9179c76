import type { Rate } from "../../../flow.ts";
import { type LimitFacts, MAX_AHEAD, type WorkerFacts } from "../../operate/blocker_facts.ts";
import { jobNameOf } from "../../queue_name.ts";
import { countExecuted } from "../flow/job_gates.ts";
import { countAllowed, jobScope } from "../flow/rates.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import type { KeyedRun } from "./key_facts.ts";

// Runs with a fairness key are not in the order of their positions: so many of a queue are examined.
const MAX_EXAMINED = 5_000;

/** What the limits of a worker for some queues allow. */
export function readLimits(
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
