// Locks are taken in this order: the worker of a claim, the lock of the schema, the locks of keys by their numbers, the
// rows of runs by `seq`. Claims never wait for a key or a row: they leave out what others have locked.

/** How writes keep out of each other's way. */
export const LOCKS = `
-- A write that changes turns, limits, children or held runs waits here for all other writes, so that it sees what those
-- before it have committed.
create or replace function fn.lock_all() returns void language plpgsql volatile as $$
begin
  perform pg_advisory_xact_lock(hashtextextended('holdfast/write/' || {literal}, 0));
  perform fn.lock_journal();
end $$;

-- A write that changes nothing but runs under its leases, and the queues of these keys, waits for writes to the same runs
-- and keys, and not for others like it.
create or replace function fn.lock_some(p_ids text[], p_keys text[]) returns void language plpgsql volatile as $$
begin
  perform pg_advisory_xact_lock_shared(hashtextextended('holdfast/write/' || {literal}, 0));
  if cardinality(p_keys) > 0 then
    perform pg_advisory_xact_lock(k.no) from (select distinct fn.key_lock(k) as no from unnest(p_keys) k order by 1) k;
  end if;
  perform 1 from {schema}.runs r where r.id = any(p_ids) order by r.seq for no key update;
  perform fn.lock_journal();
end $$;

-- Those of some keys whose locks are free: they are taken. The caller holds the lock of the schema.
create or replace function fn.lock_free_keys(p_keys text[]) returns text[] language plpgsql volatile as $$
begin
  return array(select k from unnest(p_keys) k where pg_try_advisory_xact_lock(fn.key_lock(k)));
end $$;

-- The number of the lock of a key.
create or replace function fn.key_lock(p_key text) returns bigint language sql immutable as $$
  select hashtextextended('holdfast/key/' || {literal} || '/' || p_key, 0)
$$;

-- A worker has one claim at a time.
create or replace function fn.lock_worker(p_worker text) returns void language sql volatile as $$
  select pg_advisory_xact_lock(hashtextextended('holdfast/worker/' || {literal} || '/' || p_worker, 0))
$$;
`;
