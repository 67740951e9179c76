import { LAST_KEPT, MAX_TIMERS } from "../../../rules.ts";
import { FIRST, queueScan, scanStart } from "./scan_starts.ts";

// How often a claim looks further when others are taking the runs that it has found.
const MAX_PAGES = 3;

/** How a claim takes runs while other processes write and claim. */
export const TAKE_BESIDE = `
-- The waiting runs that are due, as far as they use neither keys nor turns. NULL: one of the next ones does.
create or replace function fn.find_due_pauses(p_timer_at bigint, p_now bigint) returns bigint[] language plpgsql stable as $$
declare v_seqs bigint[]; v_special boolean;
begin
  if p_timer_at is null or p_timer_at > p_now then return '{}'; end if;
  select array_agg(o.seq order by o.timer_at, o.seq), bool_or(o.concurrency_key is not null or o.fairness_key is not null)
    into v_seqs, v_special from (select q.seq, q.timer_at, q.concurrency_key, q.fairness_key from {schema}.runs q
      where q.timer_at <= p_now order by q.timer_at, q.seq limit ${MAX_TIMERS}) o;
  return case when not v_special then v_seqs end;
end $$;

-- The next runs after a position, one more than the limit, with those of p_due that will be ready. NULL: a claim of them
-- changes more than themselves and the queues of their keys, or a limit of the worker has to be kept.
create or replace function fn.find_free(p jsonb, p_rooms bigint[], p_limits bigint[], p_open text[], p_limit int,
  p_due bigint[], p_position bigint default ${FIRST}, p_seq bigint default 0) returns bigint[] language plpgsql stable as $$
declare v_page bigint[]; v_special boolean;
begin
  if p_limit = 0 then return '{}'; end if;
  if exists (select 1 from {schema}.heads)
      or exists (select 1 from unnest(p_rooms, p_limits) x (room, rate) where x.room is not null or x.rate is not null)
      or ((p ->> 'triesHeld')::boolean and exists (select 1 from {schema}.holds h where h.since is not null)) then
    return null;
  end if;
  select array_agg(o.seq order by o.position, o.seq), bool_or(o.is_held or (o.concurrency_key is not null
      and (o.key_concurrency > 1 or o.key_rate_limit is not null or o.position < ${LAST_KEPT}
        or not fn.is_alone(o.concurrency_key, o.queue))))
    into v_page, v_special from (
    select u.* from (
      select r.* from (select q as queue, ${scanStart(queueScan("q"))} as start from unnest(p_open) q offset 0) q
      cross join lateral (
        select r.seq, r.position, r.queue, r.is_held, r.concurrency_key, r.key_concurrency, r.key_rate_limit
        from {schema}.runs r where r.queue = q.queue and r.queue_state = 'R' and r.fairness_key is null
          and (r.position, r.seq) > (greatest(p_position, q.start), p_seq) order by r.position, r.seq limit p_limit + 1) r
      union all
      select r.seq, r.position, r.queue, r.is_held, r.concurrency_key, r.key_concurrency, r.key_rate_limit
      from {schema}.runs r where r.seq = any(p_due) and r.queue || '' = any(p_open)) u
    order by u.position, u.seq limit p_limit + 1) o;
  return case when v_special then null else coalesce(v_page, '{}') end;
end $$;

-- Whether a claim of the first run in the queue of a key leaves the queue as it is: all its runs are of one job, and the
-- next one does not share the key.
create or replace function fn.is_alone(p_key text, p_queue text) returns boolean language plpgsql stable as $$
begin
  return (select not exists (select 1 from {schema}.runs r
      where r.concurrency_key = p_key and r.queue_state is not null and r.queue > p_queue)
    and not exists (select 1 from {schema}.runs r
      where r.concurrency_key = p_key and r.queue_state is not null and r.queue < p_queue)
    and coalesce((select r.key_concurrency = 1 from {schema}.runs r
      where r.concurrency_key = p_key and r.queue = p_queue and r.queue_state is not null
      order by r.position, r.seq offset 1 limit 1), true));
end $$;

-- Makes the waiting runs p_due ready, and takes the runs p_page, but for those that others are taking, and those whose
-- keys others are changing. It looks further if these are many. p is the request of the claim.
create or replace function fn.take_beside(p jsonb, p_paused text[], p_open text[], p_page bigint[], p_due bigint[],
  p_now bigint, out seqs bigint[], out before text[], out resumed bigint[], out failed jsonb, out cancelled jsonb,
  out more boolean) language plpgsql as $$
declare v_limit int := (p ->> 'limit')::int; v_left int; v_keys text[]; t record; l record;
begin
  seqs := '{}'; before := '{}'; resumed := '{}'; failed := '[]'; cancelled := '[]'; more := cardinality(p_page) > 0;
  perform fn.resume_due(p_due, p_now);
  if v_limit = 0 or fn.has_closed(p_paused, p_now) then return; end if;
  more := false;
  for page in 1 .. ${MAX_PAGES} loop
    v_left := v_limit - cardinality(seqs);
    v_keys := array(select k.key from (select distinct q.concurrency_key as key from {schema}.runs q
        where q.seq = any(p_page[:v_left]) and q.concurrency_key is not null offset 0) k
      where pg_try_advisory_xact_lock(fn.lock_no('key', k.key)));
    select coalesce(array_agg(o.seq order by o.position, o.seq), '{}') as seqs,
        coalesce(array_agg(o.status order by o.position, o.seq), '{}') as before,
        array_agg(o.concurrency_key) filter (where o.concurrency_key is not null) as keys,
        array_agg(o.id) filter (where o.concurrency_key is not null) as ids,
        array_agg(o.lease_generation + 1) filter (where o.concurrency_key is not null) as generations into t from (
      -- Found by their numbers alone, not by an index of a queue.
      select q.* from {schema}.runs q where q.seq = any(p_page[:v_left])
        and (q.concurrency_key is null or q.concurrency_key = any(v_keys))
        order by q.position, q.seq offset 0 for no key update skip locked) o
      -- Since it looked, one can have been claimed, and held and offered to other code, or abandoned.
      where o.queue_state = 'R' and not o.is_held and o.queue = any(p_open)
        and (o.concurrency_key is null or fn.is_alone(o.concurrency_key, o.queue));
    if t.keys is not null then
      insert into {schema}.holders (concurrency_key, run_id, generation)
        select x.* from unnest(t.keys, t.ids, t.generations) x
        on conflict (concurrency_key, run_id) do update set generation = excluded.generation;
    end if;
    seqs := seqs || t.seqs;
    before := before || t.before;
    -- Also those that were left out: who has locked them may neither take them nor wake anybody.
    more := more or cardinality(p_page) > cardinality(t.seqs);
    exit when cardinality(seqs) >= v_limit or cardinality(p_page) <= v_left;
    select q.position, q.seq into l from {schema}.runs q where q.seq = p_page[v_left];
    -- It has no limits, or it would not have come here.
    p_page := fn.find_free(p, '{}', '{}', p_open, v_limit - cardinality(seqs), '{}', l.position, l.seq);
    exit when coalesce(cardinality(p_page), 0) = 0;
  end loop;
end $$;

-- Makes waiting runs ready whose time has come, but for those that others are changing.
create or replace function fn.resume_due(p_seqs bigint[], p_now bigint) returns void language plpgsql as $$
declare r record;
begin
  if p_seqs = '{}' then return; end if;
  for r in select o.seq from (select q.seq, q.timer_at from {schema}.runs q where q.seq = any(p_seqs)
      order by q.timer_at, q.seq offset 0 for no key update skip locked) o where o.timer_at <= p_now loop
    perform fn.commit_deadlines(r.seq, p_now);
    perform fn.wake(r.seq, p_now);
  end loop;
end $$;

-- Whether something can keep the runs that a claim has found from being claimed, which was not so before it had the lock:
-- a job is paused, a parent has ended, or a deadline has passed. The next claim looks anew.
create or replace function fn.has_closed(p_paused text[], p_now bigint) returns boolean language plpgsql stable as $$
begin
  return (select exists (select 1 from {schema}.paused_jobs j where j.job <> all(p_paused))
    or exists (select 1 from {schema}.orphans)
    or exists (select 1 from {schema}.runs r where r.deadline_at is not null and r.deadline_at <= p_now));
end $$;
`;
