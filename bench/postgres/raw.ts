import pg from "pg";
import { type PostgresContender, STEPS } from "./contender.ts";

/**
 * Raw PostgreSQL: the least SQL that keeps what a durable job engine has to keep, on one connection. So many runs are
 * claimed by one statement; each round records the same step of all of them in one statement; the last one ends them.
 * Nothing is checked but the lease.
 */
export const raw: PostgresContender = {
  unfinished: "select 1 from raw_runs where completed_at is null limit 1",
  async open({ url, concurrency }) {
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    await client.query("select pg_advisory_lock(1)");
    await client.query(TABLES);
    await client.query("select pg_advisory_unlock(1)");
    let draining = Promise.resolve();
    return {
      async add(count) {
        await client.query(
          `insert into raw_runs (id, job, status, input, created_at, updated_at)
           select gen_random_uuid(), 'steps', 'pending', '{"n":1}', 0, 0 from generate_series(1, $1)`,
          [count],
        );
      },
      start() {
        draining = drain(client, concurrency);
        return Promise.resolve();
      },
      async close() {
        await draining;
        await client.end();
      },
    };
  },
};

const TABLES = `
  create table if not exists raw_runs (
    seq bigint generated always as identity primary key,
    id uuid not null unique,
    job text not null,
    status text not null,
    input text,
    output text,
    lease_owner text,
    lease_expires_at bigint,
    lease_generation int not null default 0,
    created_at bigint not null,
    updated_at bigint not null,
    completed_at bigint
  ) with (fillfactor = 70);
  create index if not exists raw_runs_pending on raw_runs (job, seq) where status = 'pending';
  create table if not exists raw_steps (
    run_seq bigint not null,
    name text not null,
    output text,
    completed_at bigint not null,
    primary key (run_seq, name)
  );
`;

const CLAIM = {
  name: "claim",
  text: `update raw_runs set status = 'running', lease_owner = 'raw', lease_expires_at = $1::bigint + 30000,
      lease_generation = lease_generation + 1, updated_at = $1
    where seq = any(array(select seq from raw_runs where status = 'pending' and job = 'steps' order by seq limit $2
      for update skip locked))
    returning seq, lease_generation`,
};
const RECORD = {
  name: "record",
  text: `with touched as (
      update raw_runs r set updated_at = $3 from unnest($1::bigint[], $2::int[]) as w (seq, generation)
      where r.seq = w.seq and r.lease_generation = w.generation and r.status = 'running' returning r.seq)
    insert into raw_steps (run_seq, name, output, completed_at) select seq, $4, $5, $3 from touched`,
};
const COMPLETE = {
  name: "complete",
  text: `update raw_runs r set status = 'completed', lease_owner = null, lease_expires_at = null, updated_at = $3,
      completed_at = $3 from unnest($1::bigint[], $2::int[]) as w (seq, generation)
    where r.seq = w.seq and r.lease_generation = w.generation and r.status = 'running'`,
};

async function drain(client: pg.Client, concurrency: number): Promise<void> {
  while (true) {
    const { rows } = await client.query({ ...CLAIM, values: [Date.now(), concurrency] });
    if (rows.length === 0) return;
    const seqs = rows.map(({ seq }) => seq);
    const generations = rows.map(({ lease_generation }) => lease_generation);
    for (let n = 0; n < STEPS; n++) {
      await client.query({ ...RECORD, values: [seqs, generations, Date.now(), `step ${n}`, String(n)] });
    }
    await client.query({ ...COMPLETE, values: [seqs, generations, Date.now()] });
  }
}
