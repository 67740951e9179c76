/** A connection of `pg` or PGlite. */
export interface Queryable {
  query(sql: string): Promise<{ rows: unknown[] }>;
}

// A run that comes back with its key is this much before the others.
const FAR_BEFORE = -(2 ** 51);

/**
 * Looks for what must never be in the tables of a schema: a number of runs that is kept wrongly, a broken invariant of
 * `src/stores/postgres/sql/flow/queues.ts` or `turns.ts`.
 *
 * @returns What is wrong, or `null`.
 */
export async function findFault(client: Queryable, schema: string): Promise<string | null> {
  for (const [fault, sql] of FAULTS) {
    const { rows: [row] } = await client.query(sql.replaceAll("{schema}", schema));
    if (row !== undefined) return `${fault}: ${JSON.stringify(row)}`;
  }
  return null;
}

const FAULTS: readonly [fault: string, sql: string][] = [
  [
    "A number of runs is wrong",
    `select status, job, sum(kept) as kept, sum(counted) as counted from (
       select status, job, runs as kept, 0 as counted from {schema}.counts
       union all select status, job, 0, 1 from {schema}.runs) c
     group by status, job having sum(kept) <> sum(counted)`,
  ],
  [
    "K1 or K2 is broken",
    `select id, queue, queue_state, expected from (
       select r.id, r.queue, r.queue_state, case when r.position < ${FAR_BEFORE} or (
           row_number() over (partition by r.concurrency_key, r.queue order by r.position, r.seq) = 1
           and (select count(*) from {schema}.holders h where h.concurrency_key = r.concurrency_key) < r.key_concurrency
           and (r.key_rate_limit is null or r.started_at is not null or not exists (select 1 from {schema}.openings o
             where o.concurrency_key = r.concurrency_key and o.queue = r.queue and not o.is_open)))
         then 'R' else 'B' end as expected
       from {schema}.runs r where r.concurrency_key is not null and r.queue_state is not null) q
     where queue_state <> expected::"char"`,
  ],
  [
    "A run without a key is blocked",
    `select id from {schema}.runs where concurrency_key is null and queue_state = 'B'`,
  ],
  [
    "T1 is broken",
    `select * from (select queue, fairness_key, run_seq, position from {schema}.heads) h
     full join (select distinct on (queue, fairness_key) queue, fairness_key, seq as run_seq, position
       from {schema}.runs where queue_state = 'R' and fairness_key is not null
       order by queue, fairness_key, position, seq) r using (queue, fairness_key, run_seq, position)
     where h.* is null or r.* is null`,
  ],
  [
    "A run is in a queue that it cannot be in",
    `select r.id, r.status, r.queue_state, r.queue, r.is_held from {schema}.runs r
     left join {schema}.holds h on h.run_seq = r.seq and h.since is not null
     where r.is_held <> (h.run_seq is not null)
       or (r.queue_state is not null and r.status not in ('pending', 'waiting'))
       or (r.is_held and (r.status <> 'pending' or (h.offered_in = '') <> (r.queue_state is null)
         or (h.offered_in <> '' and h.offered_in <> r.queue)))
       or (not r.is_held and r.queue <> r.job)`,
  ],
];
