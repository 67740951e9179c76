import { POSITIONS_PER_PRIORITY } from "../../../flow.ts";
import { ENTRY } from "./basics.ts";

// How many expired timers of each kind one claim processes, so that a thousand deadlines at once take several short
// transactions.
const MAX_TIMERS = 40;
// How many children of ended runs a claim passes over in the queues: the next claims cancel them.
const MAX_PASSED_OVER = 256;
// How many runs are examined for each queue to tell when a rate opens: one of them can be behind a run of another job.
const MAX_EXAMINED = 8;
// How many runs are read ahead, at least.
const MIN_PAGE = 4;
// So many changes of the numbers of runs are made one row each. A claim that finds runs looks so often whether there are.
const MAX_CHANGES = 1_000;
const FOLD_EACH = 0.1;

/** How runs are claimed. */
export const CLAIM = `
-- What a claim has to know before it looks for runs.
create or replace function fn.claim_facts(p_jobs jsonb, out timer_at bigint, out opening_at bigint,
  out passed_opening_at bigint, out newest_start bigint, out has_orphans boolean, out paused text[])
language plpgsql stable as $$
declare v_ghost bigint;
begin
  -- PostgreSQL ignores NULL in least(). Each of these reads one row of an index, but for the few runs under a lease.
  timer_at := least(
    (select r.timer_at from {schema}.runs r where r.timer_at is not null order by r.timer_at limit 1),
    (select min(r.lease_expires_at) from {schema}.runs r where r.status = 'running'),
    (select min(g.expires_at) from {schema}.ghosts g where g.concurrency_key is not null),
    (select r.due_at from {schema}.runs r where r.due_at is not null order by r.due_at limit 1),
    (select r.deadline_at from {schema}.runs r where r.deadline_at is not null order by r.deadline_at limit 1));
  select min(g.expires_at) into v_ghost from {schema}.ghosts g where g.job = any(array(
    select j ->> 'name' from jsonb_array_elements(p_jobs) j where j ->> 'concurrency' is not null));
  timer_at := least(timer_at, v_ghost);
  select o.opens_at into opening_at from {schema}.openings o where not o.is_open order by o.opens_at limit 1;
  select o.opens_at into passed_opening_at from {schema}.openings o where o.is_open order by o.opens_at desc limit 1;
  select s.at into newest_start from {schema}.starts s order by s.at desc limit 1;
  has_orphans := exists (select 1 from {schema}.orphans);
  paused := array(select j.job from {schema}.paused_jobs j);
end $$;

-- Whether time has something to do, the clock was set back, or there are children to cancel.
create or replace function fn.has_expired(p_timer_at bigint, p_opening_at bigint, p_passed_opening_at bigint,
  p_newest_start bigint, p_has_orphans boolean, p_now bigint) returns boolean language sql immutable as $$
  select p_has_orphans or coalesce(least(p_timer_at, p_opening_at) <= p_now, false)
    or coalesce(p_newest_start > p_now, false) or coalesce(p_passed_opening_at > p_now, false)
$$;

-- The queues from which a worker claims, with what the limits of their jobs allow; NULL: no limit. Those of paused jobs
-- are left out.
create or replace function fn.open_gates(p_jobs jsonb, p_paused text[], p_most bigint, p_now bigint,
  out queues text[], out names text[], out rooms bigint[], out starts bigint[], out limits bigint[], out periods bigint[])
language plpgsql stable as $$
declare j jsonb; v_room bigint; v_starts bigint;
begin
  queues := '{}'; names := '{}'; rooms := '{}'; starts := '{}'; limits := '{}'; periods := '{}';
  for j in select x from jsonb_array_elements(p_jobs) x loop
    continue when j ->> 'name' = any(p_paused);
    v_room := null; v_starts := null;
    if j ->> 'concurrency' is not null then
      v_room := (j ->> 'concurrency')::bigint - (select count(*) from {schema}.runs r where r.status = 'running'
          and (r.job = j ->> 'name' or r.job > (j ->> 'name') || E'\\t' and r.job < (j ->> 'name') || E'\\n'))
        - (select count(*) from {schema}.ghosts g where g.job = j ->> 'name');
    end if;
    if j ->> 'rateLimit' is not null then
      v_starts := fn.count_allowed('job ' || (j ->> 'name'), (j ->> 'rateLimit')::bigint, (j ->> 'ratePeriod')::bigint,
        p_most, p_now);
    end if;
    queues := queues || (j ->> 'queue') || (j ->> 'printQueue');
    names := names || (j ->> 'name') || (j ->> 'name');
    rooms := rooms || v_room || v_room;
    starts := starts || v_starts || v_starts;
    limits := limits || (j ->> 'rateLimit')::bigint || (j ->> 'rateLimit')::bigint;
    periods := periods || (j ->> 'ratePeriod')::bigint || (j ->> 'ratePeriod')::bigint;
  end loop;
end $$;

-- Whether a run is ready in one of the queues; p_begun are those whose rate is used up.
create or replace function fn.has_ready(p_open text[], p_begun text[]) returns boolean language sql stable as $$
  select exists (select 1 from unnest(p_open) q where exists (
      select 1 from {schema}.runs r where r.queue = q and r.queue_state = 'R' and r.fairness_key is null)
    or exists (select 1 from {schema}.heads h where h.queue = q))
  or exists (select 1 from unnest(p_begun) q where exists (
      select 1 from {schema}.runs r where r.queue = q and r.queue_state = 'R' and r.fairness_key is null
        and r.started_at is not null)
    or exists (select 1 from {schema}.runs r where r.queue = q and r.queue_state = 'R' and r.fairness_key is not null
        and r.started_at is not null))
$$;

-- When the first of the rates opens that hold up a run which could be claimed otherwise; NULL: none does.
create or replace function fn.find_opening(p_queues text[], p_names text[], p_rooms bigint[], p_limits bigint[],
  p_periods bigint[], p_live text[], p_own text[], p_now bigint) returns bigint language plpgsql stable as $$
declare v_first bigint; v_job bigint; v_opens bigint; v_any boolean; v_list int; x jsonb; v_runs jsonb;
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
          from {schema}.openings o where o.queue = p_queues[i] and not o.is_open order by o.opens_at limit ${MAX_EXAMINED}) e;
      elsif v_list = 2 then
        select jsonb_agg(to_jsonb(e)) into v_runs from (
          select r.concurrency_key as key, -1 as at, r.position from {schema}.runs r
          where r.queue = p_queues[i] and r.queue_state = 'R' and r.fairness_key is null and r.started_at is null
          order by r.position, r.seq limit ${MAX_EXAMINED}) e;
      else
        select jsonb_agg(to_jsonb(e)) into v_runs from (
          select r.concurrency_key as key, -1 as at, r.position from {schema}.runs r
          where r.queue = p_queues[i] and r.queue_state = 'R' and r.fairness_key is not null and r.started_at is null
          order by r.fairness_key, r.position, r.seq limit ${MAX_EXAMINED}) e;
      end if;
      continue when v_runs is null;
      -- If more are left than are examined, the first opening may be too early, but none is missed.
      v_any := jsonb_array_length(v_runs) = ${MAX_EXAMINED} and (select bool_and(
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

-- Processes expired timers. Returns the runs that failed.
create or replace function fn.process_timers(p_max int, p_newest_start bigint, p_now bigint) returns jsonb
language plpgsql as $$
declare r {schema}.runs; v_failed jsonb := '[]'; v_one jsonb; g record; v_key text;
begin
  if p_newest_start > p_now then perform fn.correct_starts(p_now); end if;
  for r in select q.* from {schema}.runs q where q.status = 'running' and q.lease_expires_at <= p_now
      order by q.lease_expires_at, q.seq limit ${MAX_TIMERS} loop
    v_one := fn.revoke_lease(r, p_max, p_now);
    if v_one is not null then v_failed := v_failed || v_one; end if;
  end loop;
  for g in select q.run_id, q.generation from {schema}.ghosts q where q.expires_at <= p_now
      order by q.expires_at limit ${MAX_TIMERS} loop
    perform fn.release_ghost(g.run_id, g.generation, null, p_now);
  end loop;
  for r in select o.* from (select q.* from {schema}.runs q where q.deadline_at <= p_now
      order by q.deadline_at, q.seq limit ${MAX_TIMERS}) o order by o.seq loop
    v_failed := v_failed || fn.fail_late_run(r, p_now);
  end loop;
  for g in select q.seq from {schema}.runs q where q.timer_at <= p_now order by q.timer_at, q.seq limit ${MAX_TIMERS} loop
    perform fn.commit_deadlines(g.seq, p_now);
    perform fn.wake(g.seq, p_now);
  end loop;
  for g in select q.seq from {schema}.runs q where q.due_at <= p_now order by q.due_at, q.seq limit ${MAX_TIMERS} loop
    update {schema}.runs set updated_at = p_now where seq = g.seq;
    perform fn.enter_queue(g.seq, p_now);
  end loop;
  -- Keys whose rate has opened, and all whose rate is closed again: a run that has passed it would be claimed too early.
  for v_key in (select o.concurrency_key from {schema}.openings o where not o.is_open and o.opens_at <= p_now
        order by o.opens_at limit ${MAX_TIMERS})
      union all (select o.concurrency_key from {schema}.openings o where o.is_open and o.opens_at > p_now) loop
    perform fn.update_queue(v_key, p_now);
  end loop;
  return v_failed;
end $$;

-- Claims due runs. See Store.claim().
create or replace function fn.claim(p jsonb, p_now bigint) returns jsonb language plpgsql ${ENTRY} as $$
declare
  v_now bigint := fn.clock(p_now); v_worker text := p ->> 'workerId'; v_claim text := p ->> 'claimId';
  v_limit int := (p ->> 'limit')::int; v_lease_ms bigint := ceil((p ->> 'leaseMs')::numeric); w {schema}.workers;
  f record; g record; v_open text[]; v_begun text[]; v_own text[]; v_live text[]; v_late boolean;
  v_failed jsonb := '[]'; v_cancelled jsonb := '[]'; v_more boolean := false; v_offers boolean;
  v_page {schema}.runs[] := '{}'; v_at int := 1; v_size int; v_last boolean := false;
  v_position bigint := -9223372036854775808; v_seq bigint := 0; v_passed int := 0;
  v_fair boolean; v_own_gate int; v_counted boolean; v_head_seq bigint; r {schema}.runs; k {schema}.runs; h record; v_head record; v_turn bigint; v_is_head boolean; v_limit_heads int;
  v_full boolean; v_keys text[] := '{}'; v_seqs bigint[] := '{}'; v_before text[] := '{}'; v_resumed bigint[] := '{}';
  v_added boolean; v_limited boolean; v_started bigint[]; v_next bigint;
begin
  v_own := array(select x from jsonb_array_elements(p -> 'jobs') j, unnest(array[j ->> 'queue', j ->> 'printQueue']) x);
  -- Without a lock: a claim that finds nothing to do.
  select q.* into w from {schema}.workers q where q.id = v_worker;
  if w.claim_id <> v_claim and v_now - w.seen_at between 0 and v_lease_ms / 3 then
    f := fn.claim_facts(p -> 'jobs');
    if not fn.has_expired(f.timer_at, f.opening_at, f.passed_opening_at, f.newest_start, f.has_orphans, v_now) then
      g := fn.open_gates(p -> 'jobs', f.paused, 1, v_now);
      v_open := fn.gates_where(g.queues, g.rooms, g.starts, false);
      v_begun := fn.gates_where(g.queues, g.rooms, g.starts, true);
      if (v_limit = 0 or not fn.has_ready(v_open, v_begun))
          and not ((p ->> 'offersHeld')::boolean and v_limit > 0
            and fn.has_offer(p -> 'jobs', v_own || fn.live_queues(v_worker, v_now))) then
        return jsonb_build_object('claims', '[]'::jsonb, 'failed', v_failed, 'cancelled', v_cancelled,
          'nextTimerAt', fn.next_instant(f.timer_at, f.opening_at, g.queues, g.names, g.rooms, g.limits, g.periods,
            f.paused, v_own, v_worker, v_now), 'hasMore', false, 'now', v_now);
      end if;
    end if;
  end if;

  perform fn.lock_all();
  v_now := fn.clock(p_now);
  select q.* into w from {schema}.workers q where q.id = v_worker;
  if w.claim_id = v_claim then
    -- A repetition does nothing. The next call checks for more.
    v_seqs := array(select q.seq from {schema}.runs q where q.status = 'running' and q.lease_owner = v_worker
      and q.lease_claim = v_claim order by q.position, q.seq);
    f := fn.claim_facts(p -> 'jobs');
    return jsonb_build_object('claims', fn.claimed(v_seqs), 'failed', v_failed, 'cancelled', v_cancelled,
      'nextTimerAt', f.timer_at, 'hasMore', true, 'now', v_now);
  end if;

  update {schema}.runs q set lease_expires_at = v_now + v_lease_ms from jsonb_array_elements(p -> 'holding') x
    where q.id = x ->> 'runId' and q.lease_generation = (x ->> 'generation')::int and q.status = 'running'
      and q.lease_expires_at <= v_now;
  f := fn.claim_facts(p -> 'jobs');
  if f.has_orphans then v_cancelled := fn.cancel_orphans(${MAX_TIMERS}, v_now); end if;
  v_late := fn.has_expired(f.timer_at, f.opening_at, f.passed_opening_at, f.newest_start, f.has_orphans, v_now);
  if v_late then v_failed := fn.process_timers((p ->> 'maxAbandonments')::int, f.newest_start, v_now); end if;
  v_own := array(select q from unnest(v_own) q where fn.job_name_of(q) <> all(f.paused));
  v_live := array(select q from unnest(fn.live_queues(v_worker, v_now)) q where fn.job_name_of(q) <> all(f.paused))
    || v_own;
  if (p ->> 'offersHeld')::boolean and v_limit > 0 then
    perform fn.offer_held_runs(p -> 'jobs', v_own || fn.live_queues(v_worker, v_now), v_now);
  end if;
  perform fn.settle_heads();

  g := fn.open_gates(p -> 'jobs', f.paused, v_limit + 1, v_now);
  v_limited := exists (select 1 from unnest(g.rooms, g.starts) x (room, starts) where x.room is not null or x.starts is not null);
  v_started := array_fill(0::bigint, array[cardinality(g.queues)]);
  v_open := fn.gates_where(g.queues, g.rooms, g.starts, false);
  v_begun := fn.gates_where(g.queues, g.rooms, g.starts, true);
  v_fair := exists (select 1 from {schema}.heads);
  v_size := greatest(${MIN_PAGE}, v_limit + 1);
  loop
    v_turn := null; v_is_head := false;
    if v_at <= cardinality(v_page) and not v_fair then
      r := v_page[v_at];
      v_at := v_at + 1;
      v_position := r.position; v_seq := r.seq;
      if v_limited and r.queue <> all(v_open) and (r.queue <> all(v_begun) or r.started_at is null) then continue; end if;
      if r.concurrency_key = any(v_keys) then
        -- A run of another queue has taken the key in this claim.
        select q.* into r from {schema}.runs q where q.seq = r.seq and q.queue_state = 'R';
        continue when not found;
      end if;
      if r.parent_seq is not null and fn.is_orphan(r.parent_seq) then
        v_passed := v_passed + 1;
        exit when v_passed >= ${MAX_PASSED_OVER};
        continue;
      end if;
      continue when fn.is_behind(r.concurrency_key, r.queue, r.position, v_live, v_own);
    elsif not v_fair then
      exit when v_last;
      v_page := fn.ready_page(v_open, v_begun, v_position, v_seq, v_size);
      v_at := 1;
      v_last := cardinality(v_page) < v_size;
      continue;
    else
      -- The first run without a fairness key that can be claimed.
      k := null;
      loop
        v_page := fn.ready_page(v_open, v_begun, v_position, v_seq, 1);
        exit when cardinality(v_page) = 0;
        k := v_page[1];
        if k.parent_seq is not null and fn.is_orphan(k.parent_seq) then v_passed := v_passed + 1;
        elsif not fn.is_behind(k.concurrency_key, k.queue, k.position, v_live, v_own) then exit;
        end if;
        v_position := k.position; v_seq := k.seq;
        k := null;
        exit when v_passed >= ${MAX_PASSED_OVER};
      end loop;
      -- The first head that can be claimed, by turn.
      v_head_seq := null;
      v_limit_heads := ${MIN_PAGE};
      loop
        v_size := 0;
        for h in select * from fn.first_heads(v_open, v_begun, v_limit_heads) loop
          v_size := v_size + 1;
          exit when v_passed >= ${MAX_PASSED_OVER};
          select q.* into r from {schema}.runs q where q.seq = h.run_seq;
          if r.parent_seq is not null and fn.is_orphan(r.parent_seq) then v_passed := v_passed + 1; continue; end if;
          continue when fn.is_behind(r.concurrency_key, r.queue, r.position, v_live, v_own);
          v_head := h;
          v_head_seq := h.run_seq;
          exit;
        end loop;
        exit when v_head_seq is not null or v_size < v_limit_heads or v_passed >= ${MAX_PASSED_OVER};
        v_limit_heads := 4 * v_limit_heads;
      end loop;
      exit when v_passed >= ${MAX_PASSED_OVER} or (k.seq is null and v_head_seq is null);
      if v_head_seq is not null then select greatest(s.turn, s.keyless) into v_turn from {schema}.serving s; end if;
      v_is_head := v_head_seq is not null;
      if v_is_head and k.seq is not null then v_is_head := (v_head.turn, v_head.position) < (v_turn, k.position); end if;
      if v_is_head then
        v_turn := v_head.turn;
        select q.* into r from {schema}.runs q where q.seq = v_head_seq;
      else r := k;
      end if;
      v_page := '{}'; v_at := 1; v_last := false;
    end if;

    if cardinality(v_seqs) >= v_limit then v_more := true; exit; end if;
    if (r.started_at is null and r.start_by <= v_now) or (r.started_at is not null and r.finish_by <= v_now) then
      v_failed := v_failed || fn.fail_late_run(r, v_now);
      v_more := true;
      perform fn.settle_heads();
      if not v_fair and exists (select 1 from {schema}.heads) then
        update {schema}.runs set queue_state = null where seq = any(v_seqs);
      end if;
      v_fair := exists (select 1 from {schema}.heads);
      v_page := '{}'; v_at := 1; v_last := false;
      if v_fair then v_position := -9223372036854775808; end if;
      continue;
    end if;

    v_seqs := v_seqs || r.seq;
    v_before := v_before || r.status;
    if r.is_held then v_resumed := v_resumed || r.seq; end if;
    if v_limited then
      -- All queues of a job share its limits. A start counts if the worker has a rate for the version of the run.
      v_own_gate := array_position(g.queues, r.queue);
      v_counted := r.started_at is null and g.limits[v_own_gate] is not null;
      if v_counted then v_started[v_own_gate] := v_started[v_own_gate] + 1; end if;
      for i in 1 .. cardinality(g.queues) loop
        continue when g.names[i] <> fn.job_name_of(r.job);
        g.rooms[i] := g.rooms[i] - 1;
        if v_counted then g.starts[i] := g.starts[i] - 1; end if;
      end loop;
      v_open := fn.gates_where(g.queues, g.rooms, g.starts, false);
      v_begun := fn.gates_where(g.queues, g.rooms, g.starts, true);
    end if;
    if v_is_head then perform fn.serve_group(r.queue, r.fairness_key, v_turn);
    elsif v_turn is not null then perform fn.serve_keyless(v_turn);
    end if;
    if r.concurrency_key is null and not v_fair then continue; end if;

    -- Out of its queue at once, since the next run depends on it.
    update {schema}.runs set queue_state = null where seq = r.seq;
    perform fn.touch_group(r.queue, r.fairness_key);
    v_added := false;
    if r.concurrency_key is not null then
      v_keys := v_keys || r.concurrency_key;
      perform fn.forget_opening(r.concurrency_key, r.queue);
      if r.started_at is null and r.key_rate_limit is not null then
        perform fn.add_starts('key ' || r.concurrency_key, r.key_rate_limit, r.key_rate_period, 1, v_now);
      end if;
      v_added := fn.take_key(r.concurrency_key, r.id, r.lease_generation + 1, v_now);
    end if;
    perform fn.settle_heads();
    if not v_fair and exists (select 1 from {schema}.heads) then
      v_fair := true;
      update {schema}.runs set queue_state = null where seq = any(v_seqs);
    else v_fair := exists (select 1 from {schema}.heads);
    end if;
    if v_fair and r.concurrency_key is not null then v_position := -9223372036854775808; v_seq := 0; end if;
    if v_added or v_fair then v_page := '{}'; v_at := 1; v_last := false; end if;
    v_size := greatest(${MIN_PAGE}, v_limit + 1 - cardinality(v_seqs));
  end loop;
  v_more := v_more or v_passed >= ${MAX_PASSED_OVER};

  for i in 1 .. cardinality(g.queues) loop
    if v_started[i] > 0 then
      perform fn.add_starts('job ' || g.names[i], g.limits[i], g.periods[i], v_started[i], v_now);
    end if;
  end loop;
  if cardinality(v_seqs) > 0 then
    update {schema}.runs q set status = 'running', queue_state = null, timer_at = null, deadline_at = null, queue = q.job,
      position = q.seq - ${POSITIONS_PER_PRIORITY} * q.priority::bigint, is_held = false, lease_owner = v_worker,
      lease_claim = v_claim, lease_expires_at = v_now + v_lease_ms, lease_generation = q.lease_generation + 1,
      last_report_no = 0, started_at = coalesce(q.started_at, v_now), updated_at = v_now,
      finish_by = coalesce(q.finish_by, v_now + q.finish_within) where q.seq = any(v_seqs);
    insert into {schema}.counts (status, job, runs)
      select m.status, m.job, sum(m.runs) from (
        select x.before as status, q.job, -1 as runs from unnest(v_seqs, v_before) x (seq, before)
          join {schema}.runs q on q.seq = x.seq
        union all select 'running', q.job, 1 from {schema}.runs q where q.seq = any(v_seqs)) m
      group by m.status, m.job;
    insert into {schema}.journal (at, run_seq, facts)
      select v_now, x.seq, '[' || x.seq || e.fact from unnest(v_seqs) with ordinality x (seq, no)
        join {schema}.runs q on q.seq = x.seq
        cross join lateral (values (0, ',"resumed"]'), (1, ',"claimed",' || q.lease_generation || ','
          || to_json(v_worker)::text || ',' || q.lease_expires_at || ',' || q.interruptions + 1 || ']')) e (kind, fact)
        where e.kind = 1 or x.seq = any(v_resumed) order by x.no, e.kind;
    if cardinality(v_resumed) > 0 then
      perform fn.end_hold(q.seq, q.lease_generation) from {schema}.runs q where q.seq = any(v_resumed);
    end if;
    for h in select x.seq, x.before from unnest(v_seqs, v_before) with ordinality x (seq, before, no)
        join {schema}.runs q on q.seq = x.seq where q.has_pauses order by x.no loop
      perform fn.commit_deadlines(h.seq, v_now);
      if h.before = 'waiting' then
        -- When it first resumed after the pauses that it waited on were over.
        update {schema}.pauses set first_resumed_at = v_now
          where run_seq = h.seq and awaited and status = 'resolved' and first_resumed_at is null;
      end if;
    end loop;
  end if;
  insert into {schema}.workers as q (id, queues, seen_at, lease_ms, claim_id)
    select v_worker, coalesce(array_agg(distinct x), '{}'), v_now, v_lease_ms, v_claim
      from jsonb_array_elements(p -> 'jobs') j, unnest(array[j ->> 'queue', j ->> 'printQueue']) x
    on conflict (id) do update set queues = excluded.queues, seen_at = excluded.seen_at, lease_ms = excluded.lease_ms,
      claim_id = excluded.claim_id;
  perform fn.settle_heads();
  -- An idle worker writes an empty claim at intervals, to show that it is alive.
  if cardinality(v_seqs) = 0 then perform fn.tidy_up(v_now);
  elsif random() < ${FOLD_EACH} then perform fn.fold_counts();
  end if;
  f := fn.claim_facts(p -> 'jobs');
  return jsonb_build_object('claims', fn.claimed(v_seqs), 'failed', v_failed, 'cancelled', v_cancelled,
    'nextTimerAt', fn.next_instant(f.timer_at, f.opening_at, g.queues, g.names, g.rooms, g.limits, g.periods, f.paused,
      v_own, v_worker, v_now),
    'hasMore', v_more or fn.has_expired(f.timer_at, f.opening_at, f.passed_opening_at, f.newest_start, f.has_orphans, v_now),
    'now', v_now);
end $$;

-- The queues whose jobs have room; p_begun: those of which only runs that have begun before may be claimed.
create or replace function fn.gates_where(p_queues text[], p_rooms bigint[], p_starts bigint[], p_begun boolean)
returns text[] language sql immutable as $$
  select coalesce(array_agg(x.queue), '{}') from unnest(p_queues, p_rooms, p_starts) x (queue, room, starts)
  where coalesce(x.room > 0, true) and coalesce(x.starts <= 0, false) = p_begun
$$;

-- The ready runs without a fairness key after a position, by position.
create or replace function fn.ready_page(p_open text[], p_begun text[], p_position bigint, p_seq bigint, p_size int)
returns {schema}.runs[] language sql stable as $$
  select coalesce(array_agg(o.run order by (o.run).position, (o.run).seq), '{}') from (
    select u.run from (
      select c.run from unnest(p_open) q cross join lateral (
        select r as run from {schema}.runs r where r.queue = q and r.queue_state = 'R' and r.fairness_key is null
          and (r.position, r.seq) > (p_position, p_seq) order by r.position, r.seq limit p_size) c
      union all
      select c.run from unnest(p_begun) q cross join lateral (
        select r as run from {schema}.runs r where r.queue = q and r.queue_state = 'R' and r.fairness_key is null
          and r.started_at is not null and (r.position, r.seq) > (p_position, p_seq)
        order by r.position, r.seq limit p_size) c) u
    order by (u.run).position, (u.run).seq limit p_size) o
$$;

-- The first heads of queues, by turn. Of queues whose rate is used up, for each group the first run that has begun.
create or replace function fn.first_heads(p_open text[], p_begun text[], p_limit int)
returns table (turn bigint, "position" bigint, run_seq bigint) language sql stable as $$
  select u.turn, u.position, u.run_seq from (
    select c.turn, c.position, c.run_seq from unnest(p_open) q cross join lateral (
      select h.turn, h.position, h.run_seq from {schema}.heads h where h.queue = q order by h.turn, h.position limit p_limit) c
    union all
    select h.turn, b.position, b.seq from unnest(p_begun) q cross join lateral (
      select distinct on (r.fairness_key) r.fairness_key, r.position, r.seq from {schema}.runs r
        where r.queue = q and r.queue_state = 'R' and r.fairness_key is not null and r.started_at is not null
        order by r.fairness_key, r.position, r.seq) b
      join {schema}.heads h on h.queue = q and h.fairness_key = b.fairness_key) u
  order by u.turn, u.position limit p_limit
$$;

-- When the next timer expires, or the next rate opens that holds up a run.
create or replace function fn.next_instant(p_timer_at bigint, p_opening_at bigint, p_queues text[], p_names text[],
  p_rooms bigint[], p_limits bigint[], p_periods bigint[], p_paused text[], p_own text[], p_worker text, p_now bigint)
returns bigint language plpgsql stable as $$
declare v_own text[]; v_live text[];
begin
  if p_opening_at is null and not exists (select 1 from unnest(p_limits) x where x is not null) then return p_timer_at; end if;
  v_own := array(select q from unnest(p_own) q where fn.job_name_of(q) <> all(p_paused));
  v_live := array(select q from unnest(fn.live_queues(p_worker, p_now)) q where fn.job_name_of(q) <> all(p_paused)) || v_own;
  return least(p_timer_at, fn.find_opening(p_queues, p_names, p_rooms, p_limits, p_periods, v_live, v_own, p_now));
end $$;

-- Makes one row of the changes of each number of runs, if there are many. The caller has locked out all others who write.
create or replace function fn.fold_counts() returns void language plpgsql as $$
begin
  if (select count(*) from (select from {schema}.counts limit ${MAX_CHANGES}) c) < ${MAX_CHANGES} then return; end if;
  with gone as (delete from {schema}.counts returning status, job, runs)
  insert into {schema}.counts (status, job, runs)
    select g.status, g.job, sum(g.runs) from gone g group by g.status, g.job having sum(g.runs) <> 0;
end $$;

-- Removes what says nothing any more.
create or replace function fn.tidy_up(p_now bigint) returns void language plpgsql as $$
begin
  perform fn.fold_counts();
  perform fn.trim_journal(p_now);
  perform fn.forget_starts(p_now);
  perform fn.forget_turns();
end $$;

-- Claimed runs with their histories, in the order of p_seqs.
create or replace function fn.claimed(p_seqs bigint[]) returns jsonb language sql stable as $$
  select coalesce(jsonb_agg(jsonb_build_object('id', r.id, 'job', r.job, 'labels', r.labels,
    'concurrency_key', r.concurrency_key, 'lease_generation', r.lease_generation, 'lease_expires_at', r.lease_expires_at,
    'interruptions', r.interruptions, 'started_at', r.started_at, 'priority', r.priority, 'fairness_key', r.fairness_key,
    'depth', r.depth, 'slot_at', r.slot_at, 'finish_by', r.finish_by, 'origin_id', r.origin_id,
    'payload', i.payload, 'input', i.input, 'schema_print', i.schema_print,
    'hold', case when r.lease_generation > 1 then (select jsonb_build_object('continues', h.continues,
      'generation', h.generation) from {schema}.holds h where h.run_seq = r.seq) end,
    'copied', case when r.origin_id is not null then (select jsonb_build_object('upTo', c.copied_up_to,
      'unfinished', c.unfinished) from {schema}.copies c where c.run_seq = r.seq) end,
    'steps', case when r.recorded > 0 then fn.steps_json(r.seq) else '[]' end,
    'pauses', case when r.has_pauses then fn.pauses_json(r.seq) else '[]' end) order by x.no), '[]')
  from unnest(p_seqs) with ordinality x (seq, no) join {schema}.runs r on r.seq = x.seq
    join {schema}.inputs i on i.run_seq = r.seq
$$;

-- The recorded steps of a run as a replay needs them: see ReplayedStepRow.
create or replace function fn.steps_json(p_seq bigint) returns jsonb language sql stable as $$
  select coalesce(jsonb_agg(jsonb_build_object('name', s.name, 'position', s.position, 'status', s.status,
    'output', s.output, 'failure', s.failure, 'attempts', s.attempts, 'retry_at', s.retry_at, 'recorded_no', s.recorded_no)
    order by s.recorded_no), '[]')
  from {schema}.steps s where s.run_seq = p_seq and s.status <> 'cancelled'
$$;

-- All pauses of a run: see PauseRow.
create or replace function fn.pauses_json(p_seq bigint) returns jsonb language sql stable as $$
  select coalesce(jsonb_agg(fn.pause_json(w) order by w.seq), '[]') from {schema}.pauses w where w.run_seq = p_seq
$$;

-- Whether the run that waited for a run has ended: it is not claimed any more.
create or replace function fn.is_orphan(p_parent bigint) returns boolean language sql stable as $$
  select exists (select 1 from {schema}.orphans o where o.parent_seq = p_parent)
$$;
`;
