import type { Rate } from "../../../model/flow.ts";
import type { RunStatus } from "../../../model/run.ts";
import { type KeyFacts, MAX_AHEAD } from "../../operate/blocker_facts.ts";
import { jobNameOf } from "../../queue_name.ts";
import { LAST_KEPT, MAX_HOLDERS } from "../../rules.ts";
import { type KeyLimits, queuesOfKey } from "../flow/concurrency_keys.ts";
import { keyScope, rateOpensAt } from "../flow/rates.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { raw } from "../statement.ts";

/** A run, and what its key needs to know of it. */
export interface KeyedRun extends KeyLimits {
  /** Its row number. */
  seq: number;
  /** Its id. */
  id: string;
  /** The queue from which it is claimed. */
  queue: string;
  /** Its place in the order of claims. */
  position: number;
  /** Its key; `null`: it has none. */
  concurrency_key: string | null;
  /** When it was first claimed; `null`: it never was. */
  started_at: number | null;
  /** Whether it holds the key. */
  isHolder: boolean;
}

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
