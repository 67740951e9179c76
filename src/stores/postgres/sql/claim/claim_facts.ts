import { MAX_BEFORE_OPENING } from "../../../rules.ts";
import { LEASE_SCAN, queueScan, scanStart } from "./scan_starts.ts";

/** What a claim has to know before it looks for runs, and when the next one is needed. */
export const CLAIM_FACTS = `
-- What a claim has to know before it looks for runs.
-- pause_at is when the first pause ends, other_at when the first of all other timers expires, timer_at the earlier one.
create or replace function fn.claim_facts(out timer_at bigint, out pause_at bigint, out other_at bigint,
  out opening_at bigint, out passed_opening_at bigint, out newest_start bigint, out has_orphans boolean, out has_alone boolean,
  out has_held boolean, out paused text[])
language plpgsql stable as $$
begin
  -- PostgreSQL ignores NULL in least(). Each of these reads one row of an index.
  select r.timer_at into pause_at from {schema}.runs r where r.timer_at is not null order by r.timer_at limit 1;
  other_at := least(
    (select r.lease_expires_at from {schema}.runs r where r.status = 'running'
      and r.lease_expires_at > ${scanStart(LEASE_SCAN)} order by r.lease_expires_at limit 1),
    (select min(g.expires_at) from {schema}.ghosts g),
    (select r.due_at from {schema}.runs r where r.due_at is not null order by r.due_at limit 1),
    (select r.deadline_at from {schema}.runs r where r.deadline_at is not null order by r.deadline_at limit 1));
  timer_at := least(pause_at, other_at);
  select o.opens_at into opening_at from {schema}.openings o where not o.is_open order by o.opens_at limit 1;
  select o.opens_at into passed_opening_at from {schema}.openings o where o.is_open order by o.opens_at desc limit 1;
  select s.at into newest_start from {schema}.starts s order by s.at desc limit 1;
  has_orphans := exists (select 1 from {schema}.orphans);
  has_alone := exists (select 1 from {schema}.runs r where r.queue_state is not null and right(r.queue, 1) = E'\\t');
  has_held := exists (select 1 from {schema}.holds h where h.since is not null);
  paused := array(select j.job from {schema}.paused_jobs j);
end $$;

-- Whether time has something to do, the clock was set back, or there are children to cancel.
create or replace function fn.has_expired(p_timer_at bigint, p_opening_at bigint, p_passed_opening_at bigint,
  p_newest_start bigint, p_has_orphans boolean, p_now bigint) returns boolean language sql immutable as $$
  select p_has_orphans or coalesce(least(p_timer_at, p_opening_at) <= p_now, false)
    or coalesce(p_newest_start > p_now, false) or coalesce(p_passed_opening_at > p_now, false)
$$;

-- The queues from which a worker claims, with what the limits of their jobs allow; NULL: no limit. Those of paused jobs
-- are left out. p is the request of the claim.
create or replace function fn.open_gates(p jsonb, p_paused text[], p_most bigint, p_now bigint,
  out queues text[], out names text[], out rooms bigint[], out starts bigint[], out limits bigint[], out periods bigint[])
language plpgsql stable as $$
declare j jsonb; v_room bigint; v_starts bigint; v_names text[];
begin
  queues := '{}'; names := '{}'; rooms := '{}'; starts := '{}'; limits := '{}'; periods := '{}';
  for j in select x from jsonb_array_elements(p -> 'jobs') x loop
    continue when j ->> 'name' = any(p_paused);
    v_room := null; v_starts := null;
    v_names := array(select jsonb_array_elements_text(j -> 'names'));
    if j ->> 'concurrency' is not null then
      v_room := (j ->> 'concurrency')::bigint - fn.count_executed(v_names);
    end if;
    if j ->> 'rateLimit' is not null then
      v_starts := fn.count_allowed('job ' || v_names[1], (j ->> 'rateLimit')::bigint, (j ->> 'ratePeriod')::bigint,
        p_most, p_now);
    end if;
    queues := queues || case when (p ->> 'isAlone')::boolean then fn.alone_queue(j ->> 'queue')
      when (p ->> 'triesHeld')::boolean then j ->> 'printQueue' else j ->> 'queue' end;
    names := names || v_names[1];
    rooms := rooms || v_room;
    starts := starts || v_starts;
    limits := limits || (j ->> 'rateLimit')::bigint;
    periods := periods || (j ->> 'ratePeriod')::bigint;
  end loop;
end $$;

-- The queues whose jobs have room; p_begun: those of which only runs that have begun before may be claimed.
create or replace function fn.gates_where(p_queues text[], p_rooms bigint[], p_starts bigint[], p_begun boolean)
returns text[] language plpgsql immutable as $$
begin
  return (select coalesce(array_agg(x.queue), '{}') from unnest(p_queues, p_rooms, p_starts) x (queue, room, starts)
  where coalesce(x.room > 0, true) and coalesce(x.starts <= 0, false) = p_begun);
end $$;

-- Whether a run is ready in one of the queues; p_begun are those whose rate is used up.
create or replace function fn.has_ready(p_open text[], p_begun text[]) returns boolean language plpgsql stable as $$
begin
  return (select exists (select 1 from unnest(p_open) q where exists (
      select 1 from {schema}.runs r where r.queue = q and r.queue_state = 'R' and r.fairness_key is null
        and r.position > ${scanStart(queueScan("q"))})
    or exists (select 1 from {schema}.heads h where h.queue = q))
  or exists (select 1 from unnest(p_begun) q where exists (
      select 1 from {schema}.runs r where r.queue = q and r.queue_state = 'R' and r.fairness_key is null
        and r.started_at is not null)
    or exists (select 1 from {schema}.runs r where r.queue = q and r.queue_state = 'R' and r.fairness_key is not null
        and r.started_at is not null)));
end $$;

-- Since when a run is due that is claimed alone, and that the worker is to claim as soon as it holds nothing. See
-- ClaimResult.
create or replace function fn.alone_since(p jsonb, p_paused text[], p_now bigint) returns bigint
language plpgsql stable as $$
declare v_earlier text[] := '{}';
begin
  if p -> 'holding' <> '[]' then
    v_earlier := array(select distinct q from {schema}.workers w, unnest(w.queues) q where w.id < (p ->> 'workerId') collate "C"
      and w.seen_at <= p_now and w.seen_at + w.lease_ms > p_now and right(q, 1) = E'\\t');
  end if;
  return (select min(r.updated_at)
    from (select q, j ->> 'concurrency' is not null as is_limited
      from jsonb_array_elements(p -> 'jobs') j, unnest(fn.queues_of_job(j, true)) q
      where j ->> 'name' <> all(p_paused) and q <> all(v_earlier)) o
    join {schema}.runs r on r.queue = o.q
    where r.queue_state is not null and right(r.queue, 1) = E'\\t' and (r.queue_state = 'R' or o.is_limited));
end $$;

-- When the next timer expires, or the next rate opens that holds up a run.
create or replace function fn.next_instant(p_timer_at bigint, p_opening_at bigint, p_queues text[], p_names text[],
  p_rooms bigint[], p_limits bigint[], p_periods bigint[], p_paused text[], p jsonb, p_now bigint)
returns bigint language plpgsql stable as $$
begin
  if p_opening_at is null and not exists (select 1 from unnest(p_limits) x where x is not null) then return p_timer_at; end if;
  return least(p_timer_at, fn.find_opening(p_queues, p_names, p_rooms, p_limits, p_periods,
    fn.passing_queues(p, p_paused, p_now), fn.queues_of_worker(p), p_now));
end $$;

-- The queues of live workers, the one of the claim p included, without those of paused jobs. What their limits let pass:
-- true: any run, false: one that has started before, NULL: none.
create or replace function fn.passing_queues(p jsonb, p_paused text[], p_now bigint) returns jsonb
language plpgsql stable as $$
begin
  return (select coalesce(jsonb_object_agg(o.queue, o.open), '{}') from (
    select q.queue, bool_or(case when l.x ->> 'concurrency' is null
        or fn.count_executed(fn.texts(l.x -> 'names')) < (l.x ->> 'concurrency')::bigint
      then l.x ->> 'rate' is null or fn.count_allowed('job ' || (l.x #>> '{names,0}'), (l.x #>> '{rate,limit}')::bigint,
        (l.x #>> '{rate,period}')::bigint, 1, p_now) > 0 end) as open
    from (select w.queues, w.limits from {schema}.workers w
        where w.id <> p ->> 'workerId' and w.seen_at <= p_now and w.seen_at + w.lease_ms > p_now
      union all select fn.all_queues_of_worker(p), p -> 'limits') w
      cross join lateral unnest(w.queues) q (queue)
      left join lateral jsonb_array_elements(w.limits) l (x) on l.x ->> 'queue' = fn.version_queue(q.queue)
    where fn.job_name_of(q.queue) <> all(p_paused) group by q.queue) o);
end $$;

-- How many runs of a job are executed, or may be after a cancel, under all its names.
create or replace function fn.count_executed(p_names text[]) returns bigint language plpgsql stable as $$
begin
  return (select count(*) from {schema}.runs r where r.status = 'running' and fn.job_name_of(r.job) = any(p_names))
    + (select count(*) from {schema}.ghosts g where g.job = any(p_names));
end $$;

-- When the first of the rates opens that hold up a run which could be claimed otherwise; NULL: none does.
create or replace function fn.find_opening(p_queues text[], p_names text[], p_rooms bigint[], p_limits bigint[],
  p_periods bigint[], p_live jsonb, p_own text[], p_now bigint) returns bigint language plpgsql stable as $$
declare v_first bigint; v_job bigint; v_opens bigint; v_any boolean; x jsonb; v_runs jsonb;
begin
  for i in 1 .. cardinality(p_queues) loop
    continue when p_rooms[i] <= 0;
    v_job := -1;
    if p_limits[i] is not null then v_job := fn.rate_opens_at('job ' || p_names[i], p_limits[i], p_periods[i], p_now); end if;
    for v_list in 1 .. case when v_job > p_now then 3 else 1 end loop
      if v_list = 1 then
        select jsonb_agg(to_jsonb(e)) into v_runs from (
          select o.concurrency_key as key, o.opens_at as at, (select r.position from {schema}.runs r
              where r.concurrency_key = o.concurrency_key and r.queue = o.queue and r.queue_state is not null
              order by r.position, r.seq limit 1) as position
          from {schema}.openings o where o.queue = p_queues[i] and not o.is_open order by o.opens_at limit ${MAX_BEFORE_OPENING}) e;
      elsif v_list = 2 then
        select jsonb_agg(to_jsonb(e)) into v_runs from (
          select r.concurrency_key as key, -1 as at, r.position from {schema}.runs r
          where r.queue = p_queues[i] and r.queue_state = 'R' and r.fairness_key is null and r.started_at is null
          order by r.position, r.seq limit ${MAX_BEFORE_OPENING}) e;
      else
        select jsonb_agg(to_jsonb(e)) into v_runs from (
          select r.concurrency_key as key, -1 as at, r.position from {schema}.runs r
          where r.queue = p_queues[i] and r.queue_state = 'R' and r.fairness_key is not null and r.started_at is null
          order by r.fairness_key, r.position, r.seq limit ${MAX_BEFORE_OPENING}) e;
      end if;
      continue when v_runs is null;
      -- If more are left than are examined, the first opening may be too early, but none is missed.
      v_any := jsonb_array_length(v_runs) = ${MAX_BEFORE_OPENING} and (select bool_and(
        fn.is_behind(e ->> 'key', p_queues[i], (e ->> 'position')::bigint, p_live, p_own))
        from jsonb_array_elements(v_runs) e);
      for x in select e from jsonb_array_elements(v_runs) e loop
        v_opens := greatest((x ->> 'at')::bigint, v_job);
        continue when v_opens <= p_now or v_opens >= v_first;
        if v_any or not fn.is_behind(x ->> 'key', p_queues[i], (x ->> 'position')::bigint, p_live, p_own) then
          v_first := v_opens;
        end if;
      end loop;
    end loop;
  end loop;
  return v_first;
end $$;
`;
