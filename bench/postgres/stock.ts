/** What a database is full of: runs that a claim must not have to look at. */
export type Stock = keyof typeof STATES;

/** The job of all runs. */
export const STOCK_JOB = "import-csv";

/** Of each stock the values of `status`, `queue_state`, `concurrency_key`, `started_at` and `completed_at`. */
const STATES = {
  finished: `'completed', null, null, 1, 1`,
  waiting: `'waiting', null, null, 1, null`,
  behind: `'pending', 'B', 'busy', null, null`,
} as const;

/** The statement that adds so many runs. The key of those that are behind one is held by a run that does not end. */
export function stockSql(stock: Stock, count: number): string {
  const far = 9_000_000_000_000;
  const holder = `
    insert into holdfast.runs (seq, id, job, status, queue, position, labels, concurrency_key, lease_owner, lease_claim,
        lease_expires_at, lease_generation, created_at, updated_at, started_at)
      overriding system value
      select seq, 'holder', '${STOCK_JOB}', 'running', '${STOCK_JOB}', seq, '{}', 'busy', 'other', 'other', ${far}, 1, 1, 1, 1
      from (select nextval('holdfast.runs_seq_seq') as seq) s;
    insert into holdfast.holders values ('busy', 'holder', 1);
    insert into holdfast.counts values ('running', '${STOCK_JOB}', 1);`;
  const pauses = `
    update holdfast.runs set has_pauses = true, timer_at = ${far} where status = 'waiting';
    insert into holdfast.pauses (id, run_seq, kind, name, status, awaited, created_at, deadline_at)
      select 'wait-' || seq, seq, 'wait', 'approval', 'pending', true, 1, ${far} from holdfast.runs where status = 'waiting';`;
  return `
    insert into holdfast.runs (seq, id, job, status, queue_state, concurrency_key, started_at, completed_at, queue,
        position, labels, created_at, updated_at)
      overriding system value
      select seq, gen_random_uuid()::text, '${STOCK_JOB}', ${STATES[stock]}, '${STOCK_JOB}', seq, '{}', 1, 1
      from (select nextval('holdfast.runs_seq_seq') as seq from generate_series(1, ${count})) s;
    insert into holdfast.inputs (run_seq, payload) select seq, '{}' from holdfast.runs on conflict do nothing;
    insert into holdfast.counts values (${STATES[stock].split(",")[0]}, '${STOCK_JOB}', ${count});
    ${stock === "behind" ? holder : ""}${stock === "waiting" ? pauses : ""}
    analyze holdfast.runs, holdfast.inputs, holdfast.counts, holdfast.pauses`;
}
