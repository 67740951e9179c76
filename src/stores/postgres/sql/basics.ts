import { FACTS_PER_ROW } from "./names.ts";

// A function that starts a call has these settings; those that it calls inherit them. Plans are made when the tables are
// empty and live as long as the session, so they must not depend on how many rows there are. Rows are fetched by
// "= any(array)", or by a subquery with "offset 0" for each: a join with a list could read the whole table.

/**
 * Where names without a schema are looked up: among the built-in ones alone. Otherwise `public.unnest(text[])` of a role
 * that may create functions in `public` would be preferred to the built-in `unnest(anyarray)`, and be executed with the
 * rights of the service.
 */
export const SEARCH_PATH = "search_path = pg_catalog, pg_temp";

/** The settings of a function that is called by the store. */
export const ENTRY = `set ${SEARCH_PATH} ` +
  "set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off " +
  "set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan set lock_timeout = '2s'";

/**
 * The setting of a function that joins lists with each other, and reads tables by "= any(array)" alone: a row is joined with
 * its element by "seq + 0 = ...", since "seq = ..." could be looked up for each element in an index of another order.
 * Such a list looks short to the planner, which would compare each element with each row.
 */
export const JOINS_LISTS = "set enable_hashjoin = on set enable_nestloop = off";
// Locks are taken in this order: the worker of a claim, the lock of the schema, the locks of keys by their numbers, the
// rows of runs by `seq`. Claims never wait for a key or a row: they leave out what others have locked.

/** What all other functions use. */
export const BASICS = `
-- The instant of a call: the one that was passed, or that of the server. It is read after all locks are held.
create or replace function fn.clock(p_now bigint) returns bigint language sql volatile as $$
  select coalesce(p_now, floor(extract(epoch from clock_timestamp()) * 1000)::bigint)
$$;

-- A transaction that has waited for a lock must see what others have committed meanwhile, which a transaction of another isolation
-- level does not: it sees what was committed before its first statement.
create or replace function fn.check_isolation() returns void language plpgsql as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'Transactions have to be READ COMMITTED, and default_transaction_isolation of this role or database is %',
      current_setting('transaction_isolation') using errcode = 'invalid_transaction_state';
  end if;
end $$;

-- Takes the lock that all who write to the journal share, until the end of the transaction: from before it draws a
-- position until its rows are visible. Readers look who holds it: see reads/journal.ts.
create or replace function fn.lock_journal() returns void language plpgsql as $$
begin
  perform fn.check_isolation();
  perform pg_advisory_xact_lock_shared(hashtext('holdfast/journal'), hashtext({literal}));
end $$;

-- Adds a fact to the journal: JSON without the bracket and the run at its begin.
create or replace function fn.note(p_run bigint, p_fact text, p_now bigint) returns void language plpgsql volatile as $$
begin
  insert into {schema}.journal (at, facts) values (p_now, '[' || p_run || ',' || p_fact);
end $$;

-- Adds several facts of a run.
create or replace function fn.note_all(p_run bigint, p_facts text[], p_now bigint) returns void
language plpgsql volatile as $$
begin
  if p_facts = '{}' then return; end if;
  insert into {schema}.journal (at, facts)
  select p_now, string_agg('[' || p_run || ',' || f.fact, ',' order by f.no)
  from unnest(p_facts) with ordinality f (fact, no) group by (f.no - 1) / ${FACTS_PER_ROW} order by (f.no - 1) / ${FACTS_PER_ROW};
end $$;

-- Counts a run's change from one status to another; NULL: it is new, or deleted.
create or replace function fn.move_run(p_job text, p_from text, p_to text) returns void language plpgsql volatile as $$
begin
  insert into {schema}.counts (status, job, runs)
  select c.status, p_job, c.runs from (values (p_from, -1), (p_to, 1)) c (status, runs) where c.status is not null;
end $$;

-- The name of the job of a queue.
create or replace function fn.job_name_of(p_queue text) returns text language sql immutable as $$
  select split_part(p_queue, E'\\t', 1)
$$;

-- The queues of all versions of a job that has runs, and that of its first version.
create or replace function fn.queues_of(p_job text) returns text[] language plpgsql stable as $$
declare v_queues text[] := array[p_job]; v_queue text collate "C" := p_job || E'\\t';
begin
  loop
    select r.job into v_queue from {schema}.runs r
      where r.job > v_queue and r.job < p_job || E'\\n' order by r.job limit 1;
    exit when not found;
    v_queues := v_queues || v_queue;
  end loop;
  return v_queues;
end $$;

-- Of several strings, as JSON.
create or replace function fn.texts(p jsonb) returns text[] language plpgsql immutable as $$
begin
  return (select coalesce(array_agg(t.x order by t.no), '{}') from jsonb_array_elements_text(p) with ordinality t (x, no));
end $$;

-- The end of a fact with who did it, of what withActor() made; empty if nobody said so.
create or replace function fn.actor_of_fact(p_text text) returns text language sql immutable as $$
  select case when strpos(p_text, chr(10)) > 0 then ',' || to_json(split_part(p_text, chr(10), 2))::text else '' end
$$;

-- A run with its payload and its hold: see RunRow.
create or replace function fn.run_json(r {schema}.runs) returns jsonb language plpgsql stable as $$
begin
  return (select to_jsonb(r) || jsonb_build_object(
    'payload', (select i.payload from {schema}.inputs i where i.run_seq = r.seq),
    'held', case when r.is_held then (
      select jsonb_build_object('code', h.code, 'message', h.message, 'since', h.since)
      from {schema}.holds h where h.run_seq = r.seq and h.since is not null) end));
end $$;

-- A child that has ended, or what is kept of a deleted one; NULL: it has not ended, or its result is lost. See ChildRow.
create or replace function fn.child_json(m {schema}.children) returns jsonb language plpgsql stable as $$
begin
  return (select coalesce(m.result::jsonb, (
    select jsonb_build_object('id', r.id, 'job', r.job, 'labels', r.labels, 'status', r.status, 'output', r.output,
      'failure', r.failure, 'failed_step', r.failed_step)
    from {schema}.runs r where r.seq = m.run_seq and r.completed_at is not null)));
end $$;

-- A pause, with the result of its only child, or the messages that it took: see PauseRow.
create or replace function fn.pause_json(p {schema}.pauses) returns jsonb language plpgsql stable as $$
begin
  return (select to_jsonb(p) || jsonb_build_object('child', case when p.total = 1 and p.outcome = 'children' then (
    select fn.child_json(m) from {schema}.children m where m.pause_seq = p.seq and m.no = 0) end,
    'messages', case when p.outcome = 'messages' then (select jsonb_agg(jsonb_build_object('id', m.id, 'name', m.name,
      'payload', m.payload, 'input', m.input, 'accepted_at', m.accepted_at) order by m.no)
      from {schema}.messages m where m.pause_seq = p.seq) end));
end $$;

-- Live workers are those that claimed within the length of their leases: the queues from which they claim.
create or replace function fn.live_queues(p_except text, p_now bigint) returns text[] language plpgsql stable as $$
begin
  return (select coalesce(array_agg(distinct q), '{}') from {schema}.workers w, unnest(w.queues) q
  where w.id <> p_except and w.seen_at <= p_now and w.seen_at + w.lease_ms > p_now);
end $$;

-- The number of a lock of something with a name, of this schema.
create or replace function fn.lock_no(p_kind text, p_name text) returns bigint language sql immutable as $$
  select hashtextextended('holdfast/' || p_kind || '/' || {literal} || '/' || p_name, 0)
$$;

-- A write that changes turns, limits, children or held runs waits here for all other writes, so that it sees what those
-- before it have committed.
create or replace function fn.lock_all() returns void language plpgsql volatile as $$
begin
  perform pg_advisory_xact_lock(hashtextextended('holdfast/write/' || {literal}, 0));
  perform fn.lock_journal();
end $$;

-- A write that changes nothing but runs under its leases, and the queues of these keys, waits for writes to the same runs
-- and keys, and not for others like it. p_locks are numbers of further locks.
create or replace function fn.lock_some(p_ids text[], p_keys text[], p_locks bigint[]) returns void
language plpgsql volatile as $$
begin
  perform pg_advisory_xact_lock_shared(hashtextextended('holdfast/write/' || {literal}, 0));
  if cardinality(p_keys) + cardinality(p_locks) > 0 then
    perform pg_advisory_xact_lock(k.no) from (
      select fn.lock_no('key', k) as no from unnest(p_keys) k union select unnest(p_locks) order by 1) k;
  end if;
  perform 1 from {schema}.runs r where r.id = any(p_ids) order by r.seq for no key update;
  perform fn.lock_journal();
end $$;

-- Ends a call that may have written nothing. Then it may answer with what another one has committed, above all its own first
-- try; and if that session was ended while its commit waited for a synchronous standby, this server alone has it. A message
-- in the log, which nobody reads, makes the commit of this call wait, too.
create or replace function fn.commit_something() returns void language plpgsql volatile as $$
begin
  if pg_current_xact_id_if_assigned() is null then perform pg_logical_emit_message(true, 'holdfast', ''); end if;
end $$;

`;

/**
 * The condition that a lease, a JSON parameter, is the current one of a run, the name of a row. It is NULL if there is no
 * run. It is written so that a run is found by its id: a plan that is made while the tables are empty could prefer the
 * index of all runs under a lease.
 */
export function underLease(run: string, lease: string): string {
  return `${
    hadLease(run, lease)
  } and ${run}.recorded >= (${lease} ->> 'recorded')::int and ${run}.status || '' = 'running'`;
}

/** The condition that a lease was the last one of a run, whether or not it has ended since. */
export function hadLease(run: string, lease: string): string {
  return `${run}.lease_generation = (${lease} ->> 'generation')::int and ${run}.lease_claim = ${lease} ->> 'claimId'`;
}
