import type { DatabaseSync } from "node:sqlite";
import { prepared } from "./prepared.ts";

/**
 * Looks for a run that stands where it should not, by the invariants of `src/stores/sqlite/flow/concurrency_keys.ts`
 * and `turns.ts`: K1 and K2, T1 and T2. A held run is in the queue in which it is offered, or in none.
 *
 * @returns What is wrong, or `null`.
 */
export function findBrokenLine(database: DatabaseSync): string | null {
  return findTwice(database) ?? findBrokenQueue(database) ?? findBrokenHead(database) ?? findBrokenHold(database);
}

function findTwice(database: DatabaseSync): string | null {
  const [row] = prepared(
    database,
    `SELECT r.id FROM holdfast_runs r LEFT JOIN holdfast_flow f ON f.run_seq = r.seq
     WHERE (r.flow IS NOT NULL AND (r.queue_state IS NOT NULL OR f.run_seq IS NULL))
       OR (r.flow IS NULL AND f.run_seq IS NOT NULL)`,
  ).all();
  return row === undefined ? null : `T2 is broken: run ${row.id} stands in two lines`;
}

interface QueuedRow {
  id: string;
  job: string;
  key: string;
  position: number;
  state: string;
  concurrency: number;
  isRated: number;
  opening: number | null;
}

// A run that comes back with its key is this much before the others.
const FAR_BEFORE = -(2 ** 51);

function findBrokenQueue(database: DatabaseSync): string | null {
  const queued = prepared(
    database,
    `SELECT id, job, concurrency_key AS key, seq AS position, queue_state AS state, 1 AS concurrency, 0 AS isRated,
       NULL AS opening, seq
     FROM holdfast_runs WHERE concurrency_key IS NOT NULL AND queue_state IS NOT NULL
     UNION ALL
     SELECT r.id, f.job, f.concurrency_key, f.position, f.queue_state, f.key_concurrency,
       f.key_rate_limit IS NOT NULL AND f.begun = 0,
       (SELECT 1 FROM holdfast_openings o WHERE o.concurrency_key = f.concurrency_key AND o.job = f.job AND o.is_open = 0), f.run_seq
     FROM holdfast_flow f JOIN holdfast_runs r ON r.seq = f.run_seq
     WHERE f.concurrency_key IS NOT NULL AND f.queue_state IS NOT NULL
     ORDER BY position, seq`,
  ).all() as unknown as QueuedRow[];
  if (queued.length === 0) return null;
  const holders = new Map(
    prepared(database, "SELECT concurrency_key AS key, count(*) AS held FROM holdfast_holders GROUP BY 1").all()
      .map(({ key, held }) => [key, Number(held)]),
  );
  const firsts = new Set<string>();
  for (const run of queued) {
    const { id, job, key, state } = run;
    const isFirst = !firsts.has(`${key} ${job}`);
    firsts.add(`${key} ${job}`);
    const hasKept = run.position < FAR_BEFORE;
    const hasRoom = (holders.get(key) ?? 0) < run.concurrency;
    const isClosed = run.isRated === 1 && run.opening === 1;
    const expected = hasKept || (isFirst && hasRoom && !isClosed) ? "R" : "B";
    if (state === expected) continue;
    return `${state === "R" ? "K1" : "K2"} is broken: run ${id} stands at ${state}, not ${expected}`;
  }
  return null;
}

function findBrokenHead(database: DatabaseSync): string | null {
  const heads = prepared(
    database,
    "SELECT job, fairness_key AS key, run_seq AS seq, position FROM holdfast_heads ORDER BY job, fairness_key",
  ).all();
  const expected = prepared(
    database,
    `SELECT job, key, seq, position FROM (SELECT job, fairness_key AS key, run_seq AS seq, position,
       row_number() OVER (PARTITION BY job, fairness_key ORDER BY position, run_seq) AS place
       FROM holdfast_flow WHERE queue_state = 'R' AND fairness_key IS NOT NULL) WHERE place = 1 ORDER BY job, key`,
  ).all();
  const [found, wanted] = [JSON.stringify(heads), JSON.stringify(expected)];
  return found === wanted ? null : `T1 is broken: the heads are ${found}, not ${wanted}`;
}

function findBrokenHold(database: DatabaseSync): string | null {
  const [row] = prepared(
    database,
    `SELECT r.id FROM holdfast_runs r LEFT JOIN holdfast_flow f ON f.run_seq = r.seq
     LEFT JOIN holdfast_holds h ON h.run_seq = r.seq AND h.since IS NOT NULL
     WHERE iif(h.run_seq IS NULL,
       f.queue_state IS NOT NULL AND f.job <> r.job,
       r.status <> 'pending' OR r.queue_state IS NOT NULL OR
         iif(h.offered_in = '', f.queue_state IS NOT NULL, f.queue_state IS NULL OR f.job <> h.offered_in))`,
  ).all();
  return row === undefined ? null : `Held run ${row.id} is in another queue than that in which it is offered`;
}
