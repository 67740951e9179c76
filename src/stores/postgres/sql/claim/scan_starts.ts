// A claim reads the first entries of `runs_ready` and `runs_leases`. What was claimed or has ended is a dead entry before
// them, until vacuum removes it; and as long as any transaction or snapshot of the server stays open, vacuum removes
// nothing. So `scan_starts` says where the entries begin: of a queue, by position, and of leases, by their end.
//
// S1: no entry of a scope comes at or before the lowest `position` that the scope has in `scan_starts`. This holds since
//   - a start is noted under the exclusive lock of the schema: nobody else is adding an entry, and what the sequence of
//     `runs.seq` draws later is higher than all before;
//   - a transaction that adds an entry holds that lock, shared at least, and notes a lower start in the same transaction, if the entry
//     comes before. It adds a row, so that two of them do not wait for each other. A run that is added without flow is the
//     last of its queue, and a renewal makes a lease longer: these do not look;
//   - a scan reads the start in the same statement, so in the same snapshot.
// Without a row a scan begins with the first entry.

// So many dead entries are read before a claim notes where the entries begin, and so often at most.
const MAX_DEAD = 1_000;
const NOTED_EACH_MS = 1_000;

/** Before all positions. */
export const FIRST = "-9223372036854775808";

/** The scope of the leases. */
export const LEASE_SCAN = "'leases'";

/** The scope of the runs of a queue that are ready and have no fairness key. */
export function queueScan(queue: string): string {
  return `'queue ' || ${queue}`;
}

/** All entries of a scope come after this: an expression. */
export function scanStart(scope: string): string {
  return `coalesce((select s.position from {schema}.scan_starts s where s.scope = ${scope} order by s.position limit 1), ${FIRST})`;
}

/** Where the scans of a claim begin. */
export const SCAN_STARTS = `
-- Keeps S1 for an entry that is added.
create or replace function fn.start_before(p_scope text, p_position bigint) returns void language plpgsql volatile as $$
begin
  if ${scanStart("p_scope")} < p_position then return; end if;
  insert into {schema}.scan_starts (scope, position, noted_at)
    select p_scope, p_position - 1, max(s.noted_at) from {schema}.scan_starts s where s.scope = p_scope;
end $$;

-- Whether this transaction has read many dead entries. p_live: so many entries that it has read can be live.
create or replace function fn.reads_dead(p_live bigint) returns boolean language sql volatile as $$
  select pg_stat_get_xact_tuples_returned('{schema}.runs_ready'::regclass)
    + pg_stat_get_xact_tuples_returned('{schema}.runs_leases'::regclass) > p_live + ${MAX_DEAD}
$$;

-- Whether it is time to note where the entries of some queues begin.
create or replace function fn.may_note_starts(p_queues text[], p_now bigint) returns boolean language plpgsql stable as $$
begin
  return not exists (select 1 from unnest(p_queues) q join {schema}.scan_starts s on s.scope = ${queueScan("q")}
    where s.noted_at > p_now - ${NOTED_EACH_MS} and s.noted_at <= p_now);
end $$;

-- Notes where the entries of some queues and of the leases begin. The caller holds the exclusive lock of the schema.
create or replace function fn.note_starts(p_queues text[], p_now bigint) returns void language plpgsql volatile as $$
declare v_last bigint := coalesce(pg_sequence_last_value('{schema}.runs_seq_seq'::regclass), 0);
  v_queue text; v_first bigint; v_lease bigint;
begin
  foreach v_queue in array p_queues loop
    select r.position into v_first from {schema}.runs r
      where r.queue = v_queue and r.queue_state = 'R' and r.fairness_key is null
        and r.position > ${scanStart(queueScan("v_queue"))} order by r.position, r.seq limit 1;
    delete from {schema}.scan_starts where scope = ${queueScan("v_queue")};
    insert into {schema}.scan_starts values (${queueScan("v_queue")}, least(v_first - 1, v_last), p_now);
  end loop;
  select r.lease_expires_at into v_lease from {schema}.runs r
    where r.status = 'running' and r.lease_expires_at > ${scanStart(LEASE_SCAN)} order by r.lease_expires_at limit 1;
  delete from {schema}.scan_starts where scope = ${LEASE_SCAN};
  insert into {schema}.scan_starts values (${LEASE_SCAN}, coalesce(v_lease - 1, p_now), p_now);
end $$;
`;
