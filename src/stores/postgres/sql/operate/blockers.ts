import { MAX_AHEAD } from "../../../operate/blocker_facts.ts";
import { HEAD_START, LAST_KEPT, MAX_COUNTED_READY, MAX_HOLDERS } from "../../../rules.ts";
import { ENTRY } from "../basics.ts";

/** What may hold up a run: `BlockerFacts` as JSON. */
export const BLOCKERS = `
-- What may hold up a run. See Store.getBlockers().
create or replace function fn.get_blockers(p jsonb, p_now bigint) returns jsonb language plpgsql stable ${ENTRY} as $$
declare
  r {schema}.runs; v_now bigint := fn.clock(p_now); v_waits boolean; v_holder boolean; v_limits jsonb;
  v_able text[]; v_key jsonb; v_closed boolean; v_group int := 0; v_ready int;
begin
  select q.* into r from {schema}.runs q where q.id = p ->> 'runId';
  if not found then return null; end if;
  v_waits := r.status = 'waiting' and r.queue_state is null;
  v_holder := exists (select 1 from {schema}.holders h where h.concurrency_key = r.concurrency_key and h.run_id = r.id);
  if v_waits and v_holder then r.position := r.position - ${HEAD_START}; end if;
  -- The queues of the live workers that have its job, without those of paused jobs.
  select coalesce(array_agg(distinct q), '{}') into v_able from {schema}.workers w, unnest(w.queues) q
    where r.queue = any(w.queues) and w.seen_at <= v_now and w.seen_at + w.lease_ms > v_now
      and right(q, 1) <> E'\\t' and not exists (select 1 from {schema}.paused_jobs j where j.job = fn.job_name_of(q));
  v_key := fn.key_facts(r, v_holder, v_now);
  v_limits := fn.limit_facts(r, v_key, v_now);
  v_closed := exists (select 1 from jsonb_array_elements(v_limits) l
    where l ->> 'queue' = fn.version_queue(r.queue) and l -> 'rate' ->> 'allowed' = '0');
  if r.fairness_key is not null then
    -- While a rate is used up, runs that have not started do not count for one that has.
    if v_closed and r.started_at is not null then
      select count(*) into v_group from (select from {schema}.runs q where q.queue = r.queue
        and q.fairness_key = r.fairness_key and q.fairness_key is not null and q.queue_state = 'R'
        and q.started_at is not null and q.position < r.position and q.seq <> r.seq limit ${MAX_AHEAD}) o;
    else
      select count(*) into v_group from (select from {schema}.runs q where q.queue = r.queue
        and q.fairness_key = r.fairness_key and q.fairness_key is not null and q.queue_state = 'R'
        and q.position < r.position and q.seq <> r.seq limit ${MAX_AHEAD}) o;
    end if;
  end if;
  select coalesce(sum(o.n), 0) into v_ready from unnest(v_able) x (queue) cross join lateral (
    select (select count(*) from (select from {schema}.runs q where q.queue = x.queue and q.queue_state = 'R'
          and q.fairness_key is null and q.position < r.position and q.seq <> r.seq limit ${MAX_AHEAD}) a)
      + (select count(*) from (select from {schema}.heads h where h.queue = x.queue and h.position < r.position
          and (h.queue <> r.queue or h.fairness_key is distinct from r.fairness_key) limit ${MAX_AHEAD}) b)
      + (select count(*) from fn.let_pass(x.queue, v_now) c where c.fairness_key is null and c.position < r.position
          and c.seq <> r.seq) as n) o;
  return jsonb_build_object('run', fn.run_json(r), 'now', v_now, 'queue', r.queue, 'position', r.position,
    'leasedAt', r.leased_at,
    'endedParentId', case when r.parent_seq is not null and fn.is_orphan(r.parent_seq) then r.parent_id end,
    'isDue', r.queue_state is not null or case when r.status = 'waiting' then coalesce(r.timer_at <= v_now, false)
      else not r.is_held and coalesce(r.due_at <= v_now, false) end,
    'delayedUntil', r.due_at, 'abandonments', r.abandonments, 'dueSince', case when r.status = 'waiting' then coalesce(r.timer_at, r.updated_at)
      else coalesce(r.start_at, r.created_at) end,
    'awaited', case when v_waits then fn.awaited_json(r.seq, r.timer_at) else '[]' end,
    'unread', case when r.completed_at is null then '[]' else (
      select coalesce(jsonb_agg(jsonb_build_object('name', u.name, 'count', u.count) order by u.first), '[]') from (
        select m.name, count(*) as count, min(m.no) as first from {schema}.messages m
        where m.run_seq = r.seq and m.pause_seq is null group by m.name) u) end,
    'paused', (select coalesce(jsonb_agg(to_jsonb(j) order by j.job), '[]') from {schema}.paused_jobs j),
    'workers', (select coalesce(jsonb_agg(jsonb_build_object('id', w.id, 'lastSeenAt', w.seen_at, 'leaseMs', w.lease_ms,
        'queues', w.queues, 'details', w.details, 'limits', w.limits, 'leases', (select count(*) from {schema}.runs q
          where q.status = 'running' and q.lease_owner = w.id)) order by w.id), '[]')
      from {schema}.workers w),
    'key', v_key,
    'limits', v_limits, 'readyBefore', least(v_ready, ${MAX_AHEAD}) + v_group);
end $$;

-- The queue of the version of a job, of a queue that may be that of a print.
create or replace function fn.version_queue(p_queue text) returns text language sql immutable as $$
  select case when split_part(p_queue, E'\\t', 2) in ('', '1') then split_part(p_queue, E'\\t', 1)
    else split_part(p_queue, E'\\t', 1) || E'\\t' || split_part(p_queue, E'\\t', 2) end
$$;

-- What the limits of the live workers allow for a run and for the others in the queue of its key: see LimitFacts.
create or replace function fn.limit_facts(r {schema}.runs, p_key jsonb, p_now bigint) returns jsonb
language plpgsql stable as $$
declare
  v_limits jsonb := '[]'; l record; v_names text[]; v_rate jsonb; v_used bigint; v_oldest bigint;
  v_ahead jsonb;
  v_queues text[] := array[fn.version_queue(r.queue)] || array(select fn.version_queue(f ->> 'queue')
    from jsonb_array_elements(coalesce(p_key -> 'firsts', '[]')) f);
begin
  for l in select w.id, w.queues, e.x, (e.x -> 'rate' ->> 'limit')::bigint as most, (e.x -> 'rate' ->> 'period')::bigint as period
      from {schema}.workers w, jsonb_array_elements(w.limits) e (x)
      where w.seen_at <= p_now and w.seen_at + w.lease_ms > p_now
        and (e.x ->> 'queue' = any(v_queues) or e.x -> 'names' ? fn.job_name_of(r.queue)) order by w.id loop
    v_names := array(select jsonb_array_elements_text(l.x -> 'names'));
    v_rate := 'null';
    if l.most is not null then
      select s.at into v_oldest from {schema}.starts s where s.scope = 'job ' || v_names[1] and s.at > p_now - l.period
        and s.no > (select o.no from {schema}.starts o where o.scope = 'job ' || v_names[1] order by o.no desc limit 1) - l.most
        order by s.no limit 1;
      v_rate := jsonb_build_object('limit', l.most, 'period', l.period,
        'allowed', fn.count_allowed('job ' || v_names[1], l.most, l.period, l.most, p_now),
        'opensAt', least(coalesce(v_oldest, p_now), p_now) + l.period);
    end if;
    select count(*) + (select count(*) from {schema}.ghosts g where g.job = any(v_names)) into v_used
      from {schema}.runs q where q.status = 'running' and fn.job_name_of(q.job) = any(v_names);
    -- The runs of the job that have passed their keys and come before this one: those that follow one another and are
    -- alike together. Those with a fairness key are not in the order of their positions, so not all of them are examined.
    with ready as (
      select x.queue, c.started_at is not null as begun, c.position, c.seq from unnest(l.queues) x (queue) cross join lateral (
          (select q.started_at, q.position, q.seq from {schema}.runs q where q.queue = x.queue and q.queue_state = 'R'
            and q.fairness_key is null and q.position < r.position and q.seq <> r.seq
            order by q.position limit ${MAX_AHEAD})
          union all
          (select f.* from (select q.started_at, q.position, q.seq from {schema}.runs q where q.queue = x.queue
              and q.queue_state = 'R' and q.fairness_key is not null order by q.fairness_key, q.position
              limit ${MAX_COUNTED_READY}) f where f.position < r.position and f.seq <> r.seq)
          union all
          (select f.started_at, f.position, f.seq from fn.let_pass(x.queue, p_now) f
            where f.position < r.position and f.seq <> r.seq)) c
      where fn.job_name_of(x.queue) = any(v_names) and right(x.queue, 1) <> E'\\t'
        and not exists (select 1 from {schema}.paused_jobs j where j.job = fn.job_name_of(x.queue))
      order by c.position, c.seq limit ${MAX_AHEAD}),
    numbered as (select o.queue, o.begun, row_number() over (order by o.position, o.seq) as no,
      row_number() over (partition by o.queue, o.begun order by o.position, o.seq) as own_no from ready o)
    select coalesce(jsonb_agg(jsonb_build_object('queue', g.queue, 'hasBegun', g.begun, 'count', g.n) order by g.first), '[]')
      into v_ahead from (select n.queue, n.begun, count(*) as n, min(n.no) as first from numbered n
        group by n.queue, n.begun, n.no - n.own_no) g;
    v_limits := v_limits || jsonb_build_object('workerId', l.id, 'queue', l.x -> 'queue', 'inUse', v_used,
      'concurrency', l.x -> 'concurrency', 'rate', v_rate, 'ahead', v_ahead);
  end loop;
  return v_limits;
end $$;

-- The runs of a queue that wait for the rate of their key, which has opened: the next claim moves them on.
create or replace function fn.let_pass(p_queue text, p_now bigint) returns setof {schema}.runs language plpgsql stable as $$
begin
  return query select f.* from (select o.concurrency_key from {schema}.openings o
      where o.queue = p_queue and not o.is_open and o.opens_at <= p_now limit ${MAX_AHEAD}) o
    cross join lateral (select q.* from {schema}.runs q
      where q.concurrency_key = o.concurrency_key and q.queue = p_queue and q.queue_state is not null
      order by q.position, q.seq limit 1) f where f.queue_state = 'B';
end $$;

-- The concurrency key of a run: see KeyFacts.
create or replace function fn.key_facts(r {schema}.runs, p_holder boolean, p_now bigint) returns jsonb
language plpgsql stable as $$
declare
  v_firsts jsonb := '[]'; v_queue text collate "C" := ''; f record; v_opens bigint; v_ready boolean; v_before int;
  v_kept int;
begin
  if r.concurrency_key is null then return null; end if;
  loop
    select q.queue into v_queue from {schema}.runs q
      where q.concurrency_key = r.concurrency_key and q.queue_state is not null and q.queue > v_queue
      order by q.queue limit 1;
    exit when not found;
    select q.position, q.queue_state, q.started_at is not null as begun, q.key_concurrency into f from {schema}.runs q
      where q.concurrency_key = r.concurrency_key and q.queue = v_queue and q.queue_state is not null and q.seq <> r.seq
      order by q.position, q.seq limit 1;
    continue when not found;
    select o.opens_at <= p_now into v_ready from {schema}.openings o
      where o.concurrency_key = r.concurrency_key and o.queue = v_queue;
    if not found then v_ready := f.queue_state = 'R'; end if;
    select count(*), count(*) filter (where o.position < ${LAST_KEPT}) into v_before, v_kept
      from (select q.position from {schema}.runs q
        where q.concurrency_key = r.concurrency_key and q.queue = v_queue and q.queue_state is not null
          and q.position < r.position and q.seq <> r.seq order by q.position limit ${MAX_AHEAD}) o;
    v_firsts := v_firsts || jsonb_build_object('queue', v_queue, 'position', f.position, 'isReady', v_ready,
      'hasBegun', f.begun, 'concurrency', f.key_concurrency, 'before', v_before, 'kept', v_kept);
  end loop;
  v_opens := null;
  if r.key_rate_limit is not null and r.started_at is null then
    v_opens := fn.rate_opens_at('key ' || r.concurrency_key, r.key_rate_limit, r.key_rate_period, p_now);
  end if;
  return jsonb_build_object('queue', r.queue, 'position', r.position, 'isHolder', p_holder,
    'holders', (select coalesce(jsonb_agg(jsonb_build_object('runId', h.run_id,
        'jobName', fn.job_name_of(coalesce(q.job, (select g.job from {schema}.ghosts g where g.run_id = h.run_id), '')),
        'status', coalesce(q.status, 'cancelled'), 'workerId', q.lease_owner,
        'since', coalesce(case q.status when 'running' then q.leased_at when 'cancelled' then q.completed_at
          else q.updated_at end, p_now)) order by h.run_id), '[]')
      from (select o.run_id from {schema}.holders o where o.concurrency_key = r.concurrency_key and o.run_id <> r.id
        order by o.run_id limit ${MAX_HOLDERS}) h left join {schema}.runs q on q.id = h.run_id),
    'holderCount', (select count(*) from {schema}.holders o
      where o.concurrency_key = r.concurrency_key and o.run_id <> r.id),
    'concurrency', r.key_concurrency,
    'rate', case when v_opens is not null then jsonb_build_object('limit', r.key_rate_limit, 'period', r.key_rate_period,
      'opensAt', v_opens) end, 'firsts', v_firsts);
end $$;

-- What a waiting run waits for. A retry before its timer is not awaited: the job has gone on without it.
create or replace function fn.awaited_json(p_seq bigint, p_timer_at bigint) returns jsonb language sql stable as $$
  select coalesce(jsonb_agg(o.x order by o.kind, o.no), '[]') from (
    select 0 as kind, w.seq as no, jsonb_build_object('kind', w.kind, 'id', w.id, 'name', w.name, 'at', w.deadline_at,
      'since', w.created_at, 'receive', w.receive,
      'others', case when w.kind = 'receive' then (
        select count(*) from {schema}.messages m where m.run_seq = p_seq and m.pause_seq is null) end,
      'open', w.unfinished, 'child', case when w.kind = 'children' then (
        select jsonb_build_object('id', c.id, 'job', c.job, 'status', c.status) from {schema}.runs c
        where c.parent_seq = p_seq and c.completed_at is null and c.parent_pause = w.seq order by c.seq limit 1) end) as x
    from {schema}.pauses w where w.run_seq = p_seq and w.awaited and w.status = 'pending'
    union all
    select 1, row_number() over (order by s.position, s.seq), jsonb_build_object('kind', 'retry', 'name', s.name,
      'at', s.retry_at, 'attempts', s.attempts, 'failure', s.failure)
    from {schema}.steps s where s.run_seq = p_seq and s.status = 'retrying' and s.retry_at >= p_timer_at) o
$$;
`;
