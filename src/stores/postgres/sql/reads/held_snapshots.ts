import { ENTRY } from "../basics.ts";

/** Transactions of others that keep dead rows from being removed. */
export const HELD_SNAPSHOTS = `
-- The sessions of this database whose transaction has been open for long, the oldest first. Only a role with the rights
-- of pg_read_all_stats sees those of other roles.
create or replace function fn.held_snapshots(p jsonb, p_now bigint) returns jsonb language sql stable ${ENTRY} as $$
  select coalesce(jsonb_agg(jsonb_build_object('pid', a.pid, 'user', a.usename, 'application', a.application_name,
      'state', a.state, 'since', floor(extract(epoch from a.xact_start) * 1000)) order by a.xact_start), '[]')
  from pg_catalog.pg_stat_activity a
  where a.datname = current_database() and a.pid <> pg_backend_pid() and a.backend_type = 'client backend'
    and (a.backend_xmin is not null or a.backend_xid is not null)
    and a.xact_start <= clock_timestamp() - (p ->> 'olderThanMs')::float8 * interval '1 millisecond'
$$;
`;
