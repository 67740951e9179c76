import { ownPosition } from "../flow/queues.ts";
import { MAX_FORGOTTEN, MAX_TIMERS, STARTS_KEPT_MS } from "../../../rules.ts";
import { ENTRY, JOINS_LISTS } from "../basics.ts";
import { REPLAYED_STEP } from "./histories.ts";
import { LEASE_SCAN, scanStart } from "./scan_starts.ts";

// So many changes of the numbers of runs are made one row each. A claim that finds runs looks so often whether there are.
const MAX_CHANGES = 1_000;
const FOLD_EACH = 0.1;
// Connections hold at least about so many bytes for a client that does not read.
const MAX_LENGTH = 200_000;
// What a claim says of a run, without its input and its history.
const HEAD = `'id', r.id, 'job', r.job, 'labels', r.labels,
    'concurrency_key', r.concurrency_key, 'lease_generation', r.lease_generation,
    'lease_claim', r.lease_claim, 'recorded', r.recorded, 'lease_expires_at', r.lease_expires_at,
    'interruptions', r.interruptions, 'created_at', r.created_at, 'start_at', r.start_at, 'started_at', r.started_at,
    'priority', r.priority, 'fairness_key', r.fairness_key,
    'depth', r.depth, 'slot_at', r.slot_at, 'slot', r.slot, 'trace', r.trace, 'finish_by', r.finish_by, 'origin_id', r.origin_id,
    'hold', case when r.lease_generation > 1 then (select jsonb_build_object('continues', h.continues,
      'generation', h.generation) from {schema}.holds h where h.run_seq = r.seq) end,
    'copied', case when r.origin_id is not null then (select jsonb_build_object('upTo', c.copied_up_to,
      'unfinished', c.unfinished::jsonb)
      || case when c.undone is null then '{}' else jsonb_build_object('undone', c.undone::jsonb) end from {schema}.copies c where c.run_seq = r.seq) end`;

/** How runs are claimed. */
export const CLAIM = `
-- Claims due runs. See Store.claim().
create or replace function fn.claim(p jsonb, p_now bigint) returns json language plpgsql ${ENTRY} as $$
declare
  v_now bigint := fn.clock(p_now); v_worker text := p ->> 'workerId'; v_claim text := p ->> 'claimId';
  v_limit int := (p ->> 'limit')::int; v_lease_ms bigint := ceil((p ->> 'leaseMs')::numeric); w {schema}.workers;
  f record; g record; v_own text[] := fn.queues_of_worker(p); v_open text[]; v_begun text[];
  v_page bigint[]; v_due bigint[]; v_beside boolean; v_dead boolean := false; t record;
  v_live bigint := (v_limit + 1) * cardinality(v_own);
begin
  -- A call that is repeated while its first try is still under way waits for it.
  perform pg_advisory_xact_lock(fn.lock_no('worker', v_worker));
  if fn.was_away() then
    perform fn.lock_all();
    perform fn.begin_leases_anew(fn.clock(p_now));
    v_now := fn.clock(p_now);
  end if;
  select q.* into w from {schema}.workers q where q.id = v_worker;
  f := fn.claim_facts();
  if w.claim_id = v_claim then
    -- A repetition does nothing. The next call checks for more.
    perform fn.commit_something();
    return fn.claim_json(p, array(select q.seq from {schema}.runs q where q.status = 'running' and q.lease_owner = v_worker
      and q.lease_claim = v_claim order by q.position, q.seq), '[]', '[]', f.timer_at, true, null, true, v_now);
  end if;
  if not fn.has_expired(f.other_at, f.opening_at, f.passed_opening_at, f.newest_start, f.has_orphans, v_now) then
    g := fn.open_gates(p, f.paused, v_limit + 1, v_now);
    v_open := fn.gates_where(g.queues, g.rooms, g.starts, false);
    v_begun := fn.gates_where(g.queues, g.rooms, g.starts, true);
    v_due := fn.find_due_pauses(f.pause_at, v_now);
    v_page := fn.find_free(p, g.rooms, g.limits, v_open, v_limit, v_due);
    v_dead := fn.reads_dead(v_live) and fn.may_note_starts(v_own, v_now);
    -- There is nothing to do, and others have seen not long ago that the worker is alive.
    if not v_dead and v_due = '{}' and coalesce(cardinality(v_page), 0) = 0
        and coalesce(v_now - w.seen_at between 0 and v_lease_ms / 3, false)
        and (v_limit = 0 or not fn.has_ready(v_open, v_begun))
        and not ((p ->> 'triesHeld')::boolean and v_limit > 0
          and exists (select from fn.offers_for(p -> 'jobs', v_own || fn.live_queues(v_worker, v_now), 1, v_now))) then
      return fn.claim_json(p, '{}', '[]', '[]', fn.next_instant(f.timer_at, f.opening_at, g.queues, g.names, g.rooms,
        g.limits, g.periods, f.paused, p, v_now), false,
        case when f.has_alone then fn.alone_since(p, f.paused, v_now) end, f.has_held, v_now);
    end if;
  end if;

  v_beside := not v_dead and coalesce(cardinality(v_page) + cardinality(v_due) > 0, false);
  if v_beside then
    -- Other processes claim and write at the same moment.
    perform fn.lock_some('{}', '{}', '{}');
    v_now := fn.clock(p_now);
    t := fn.take_beside(p, f.paused, v_open, v_page, v_due, v_now);
  else
    perform fn.lock_all();
    v_now := fn.clock(p_now);
    t := fn.take_in_turn(p, v_now);
  end if;
  perform fn.give_leases(p, t.seqs, t.before, t.resumed, v_now);
  insert into {schema}.workers as q (id, queues, seen_at, lease_ms, claim_id, details, started_at, limits, sole_claim)
    values (v_worker, fn.all_queues_of_worker(p), v_now, v_lease_ms, v_claim, p ->> 'worker', v_now, p -> 'limits',
      case when jsonb_array_length(p -> 'holding') + cardinality(t.seqs) = 1 then v_claim end)
    on conflict (id) do update set queues = excluded.queues, seen_at = excluded.seen_at, lease_ms = excluded.lease_ms,
      claim_id = excluded.claim_id, details = excluded.details,
      limits = excluded.limits, sole_claim = case when cardinality(t.seqs) = 0 then q.sole_claim else excluded.sole_claim end;
  perform fn.settle_heads();
  if not v_beside and fn.reads_dead(v_live) and fn.may_note_starts(v_own, v_now) then perform fn.note_starts(v_own, v_now); end if;
  -- An idle worker writes an empty claim at intervals, to show that it is alive.
  if cardinality(t.seqs) = 0 and not v_beside then perform fn.tidy_up(v_now);
  elsif random() < ${FOLD_EACH} then perform fn.fold_counts();
  end if;
  f := fn.claim_facts();
  g := fn.open_gates(p, f.paused, 1, v_now);
  return fn.claim_json(p, t.seqs, t.failed, t.cancelled, fn.next_instant(f.timer_at, f.opening_at, g.queues, g.names, g.rooms,
      g.limits, g.periods, f.paused, p, v_now),
    -- A limit that is used up now may let others pass a run that is claimed alone.
    t.more or (cardinality(t.seqs) > 0 and f.has_alone) or fn.has_expired(f.timer_at, f.opening_at, f.passed_opening_at, f.newest_start, f.has_orphans, v_now),
    case when f.has_alone then fn.alone_since(p, f.paused, v_now) end, f.has_held, v_now);
end $$;

create or replace function fn.claim_json(p jsonb, p_seqs bigint[], p_failed jsonb, p_cancelled jsonb, p_timer_at bigint,
  p_more boolean, p_alone_since bigint, p_held boolean, p_now bigint) returns json language plpgsql stable as $$
declare v_is_large boolean := p_seqs <> '{}' and p ? 'isBounded' and fn.length_of_histories(p_seqs) > ${MAX_LENGTH};
begin
  return (select json_build_object('claims', case when not v_is_large then fn.claimed(p_seqs) end,
    'heads', case when v_is_large then fn.claim_heads(p_seqs) end, 'failed', p_failed, 'cancelled', p_cancelled,
    'nextTimerAt', p_timer_at, 'hasMore', p_more, 'aloneSince', p_alone_since, 'hasHeld', p_held, 'now', p_now));
end $$;

-- The queues from which a claim takes runs.
create or replace function fn.queues_of_worker(p jsonb) returns text[] language plpgsql immutable as $$
begin
  return (select coalesce(array_agg(distinct x), '{}')
  from jsonb_array_elements(p -> 'jobs') j, unnest(fn.queues_of_job(j, (p ->> 'isAlone')::boolean)) x);
end $$;

-- The same of one job.
create or replace function fn.queues_of_job(j jsonb, p_alone boolean) returns text[] language sql immutable as $$
  select case when p_alone then array[fn.alone_queue(j ->> 'queue')] else array[j ->> 'queue', j ->> 'printQueue'] end
$$;

-- The queues from which a worker claims, those of the runs that are claimed alone included.
create or replace function fn.all_queues_of_worker(p jsonb) returns text[] language plpgsql immutable as $$
begin
  return (select coalesce(array_agg(distinct x), '{}') from jsonb_array_elements(p -> 'jobs') j,
    unnest(fn.queues_of_job(j, false) || fn.queues_of_job(j, true)) x);
end $$;

-- The queue of the runs of another one which are claimed alone: see aloneQueue().
create or replace function fn.alone_queue(p_queue text) returns text language sql immutable as $$
  select case when strpos(p_queue, E'\\t') > 0 then p_queue || E'\\t' else p_queue || E'\\t1\\t' end
$$;

-- Gives a lease to each run that was taken. p_before are their statuses before, p_resumed those that were held.
create or replace function fn.give_leases(p jsonb, p_seqs bigint[], p_before text[], p_resumed bigint[], p_now bigint)
returns void language plpgsql ${JOINS_LISTS} as $$
declare v_worker text := p ->> 'workerId'; v_paused bigint[]; h record;
begin
  if cardinality(p_seqs) = 0 then return; end if;
  with x as materialized (select x.* from unnest(p_seqs, p_before) with ordinality x (seq, before, no)),
  u as (
    update {schema}.runs q set status = 'running', queue_state = null, timer_at = null, deadline_at = null, queue = q.job,
      position = ${ownPosition("q")}, is_held = false, lease_owner = v_worker,
      lease_claim = p ->> 'claimId', lease_expires_at = p_now + ceil((p ->> 'leaseMs')::numeric)::bigint,
      lease_generation = q.lease_generation + 1, last_report_no = 0, leased_at = p_now, started_at = coalesce(q.started_at, p_now),
      updated_at = p_now, finish_by = coalesce(q.finish_by, p_now + q.finish_within)
    from x where q.seq = any(p_seqs) and q.seq + 0 = x.seq
    returning x.no, x.before, q.seq, q.job, q.lease_generation, q.lease_expires_at, q.interruptions, q.has_pauses),
  c as (
    insert into {schema}.counts (status, job, runs)
      select m.status, m.job, sum(m.runs) from (select u.before as status, u.job, -1 as runs from u
        union all select 'running', u.job, 1 from u) m group by m.status, m.job),
  f as (
    insert into {schema}.journal (at, facts) select p_now, k.facts from fn.pack_facts(array(
      select '[' || u.seq || e.fact from u cross join lateral (values (0, ',"resumed"]'), (1, ',"claimed",'
        || u.lease_generation || ',' || to_json(v_worker)::text || ',' || u.lease_expires_at || ','
        || u.interruptions + 1 || ']')) e (kind, fact)
      where e.kind = 1 or u.seq = any(p_resumed) order by u.no, e.kind)) k)
  select array_agg(u.seq) into v_paused from u where u.has_pauses;
  perform fn.start_before(${LEASE_SCAN}, p_now + ceil((p ->> 'leaseMs')::numeric)::bigint);
  if cardinality(p_resumed) > 0 then
    perform fn.end_hold(q.seq, q.lease_generation) from {schema}.runs q where q.seq = any(p_resumed);
  end if;
  if v_paused is null then return; end if;
  for h in select x.seq, x.before from unnest(p_seqs, p_before) with ordinality x (seq, before, no)
      where x.seq = any(v_paused) order by x.no loop
    perform fn.commit_deadlines(h.seq, p_now);
    if h.before = 'waiting' then
      -- When it first resumed after the pauses that it waited on were over.
      update {schema}.pauses set first_resumed_at = p_now
        where run_seq = h.seq and awaited and status = 'resolved' and first_resumed_at is null;
    end if;
  end loop;
end $$;

-- Removes what says nothing any more.
create or replace function fn.tidy_up(p_now bigint) returns void language plpgsql as $$
begin
  perform fn.fold_counts();
  perform fn.trim_journal(p_now);
  -- Some of the starts that count no more, of scopes that have no new ones, and of the fairness keys whose turn has come.
  delete from {schema}.starts s using (
    select o.scope, o.no from {schema}.starts o where o.at < p_now - ${STARTS_KEPT_MS}
    order by o.at limit ${MAX_FORGOTTEN}) old
  where s.scope = old.scope and s.no = old.no and p_now - ${STARTS_KEPT_MS} >= s.at + (
    select l.period from {schema}.starts l where l.scope = s.scope order by l.no desc limit 1);
  delete from {schema}.fairness_keys where fairness_key = any(array(
    select k.fairness_key from {schema}.fairness_keys k where k.next_turn <= (select turn from {schema}.serving)
    order by k.next_turn limit ${MAX_FORGOTTEN}));
  perform fn.forget_dead_workers(p_now);
end $$;

-- Makes one row of the changes of each number of runs, if there are many. It does nothing while another call does it.
create or replace function fn.fold_counts() returns void language plpgsql as $$
begin
  if (select count(*) from (select from {schema}.counts limit ${MAX_CHANGES}) c) < ${MAX_CHANGES} then return; end if;
  if not pg_try_advisory_xact_lock(hashtextextended('holdfast/fold/' || {literal}, 0)) then return; end if;
  with gone as (delete from {schema}.counts returning status, job, runs)
  insert into {schema}.counts (status, job, runs)
    select g.status, g.job, sum(g.runs) from gone g group by g.status, g.job having sum(g.runs) <> 0;
end $$;

-- Claims due runs. If their histories are large, it leaves them out: "claims" is null, and the runs are in "heads". The
-- server sends an answer before it commits: a client that is stopped, and does not read, would keep all others who write
-- waiting. fn.read_histories() reads what is left out, without a lock.
create or replace function fn.bounded_claim(p jsonb, p_now bigint) returns text language plpgsql ${ENTRY} as $$
begin
  return fn.claim(p || '{"isBounded": true}', p_now)::text;
end $$;

-- Claimed runs with their histories, in the order of p_seqs.
create or replace function fn.claimed(p_seqs bigint[]) returns json language plpgsql stable as $$
begin
  return (select coalesce(json_agg(json_build_object(${HEAD},
    'payload', i.payload, 'input', i.input, 'schema_print', i.schema_print,
    'steps', case when r.recorded > 0 then fn.steps_json(r.seq) else '[]' end,
    'pauses', case when r.has_pauses then fn.pauses_json(r.seq) else '[]' end) order by x.no), '[]')
  from unnest(p_seqs) with ordinality x (seq, no)
    cross join lateral (select q.* from {schema}.runs q where q.seq = x.seq offset 0) r
    cross join lateral (select j.* from {schema}.inputs j where j.run_seq = x.seq offset 0) i);
end $$;

-- The same without their inputs and their histories: see fn.read_histories().
create or replace function fn.claim_heads(p_seqs bigint[]) returns json language plpgsql stable as $$
begin
  return (select json_agg(json_build_object(${HEAD}) order by x.no) from unnest(p_seqs) with ordinality x (seq, no)
    cross join lateral (select q.* from {schema}.runs q where q.seq = x.seq offset 0) r);
end $$;

-- The recorded steps of a run as a replay needs them.
create or replace function fn.steps_json(p_seq bigint) returns jsonb language plpgsql stable as $$
begin
  return (select coalesce(jsonb_agg(${REPLAYED_STEP} order by s.recorded_no), '[]')
  from {schema}.steps s where s.run_seq = p_seq and s.status <> 'cancelled');
end $$;

-- All pauses of a run: see PauseRow.
create or replace function fn.pauses_json(p_seq bigint) returns jsonb language plpgsql stable as $$
begin
  return (select coalesce(jsonb_agg(fn.pause_json(w) order by w.seq), '[]') from {schema}.pauses w where w.run_seq = p_seq);
end $$;

-- Processes expired timers. Returns the runs that failed.
create or replace function fn.process_timers(p_max int, p_newest_start bigint, p_now bigint) returns jsonb
language plpgsql as $$
declare r {schema}.runs; v_failed jsonb := '[]'; v_one jsonb; g record; v_key text;
begin
  if p_newest_start > p_now then
    -- The clock was set back: starts in the future are starts of now.
    update {schema}.starts set at = p_now where at > p_now;
    update {schema}.openings set opens_at = p_now + period where opens_at > p_now + period;
  end if;
  for r in select q.* from {schema}.runs q where q.status = 'running' and q.lease_expires_at <= p_now
        and q.lease_expires_at > ${scanStart(LEASE_SCAN)} order by q.lease_expires_at, q.seq limit ${MAX_TIMERS} loop
    v_one := fn.revoke_lease(r, p_max, p_now);
    if v_one is not null then v_failed := v_failed || v_one; end if;
  end loop;
  for g in select q.run_id, q.generation from {schema}.ghosts q where q.expires_at <= p_now
      order by q.expires_at limit ${MAX_TIMERS} loop
    perform fn.release_ghost(g.run_id, g.generation, null, null, p_now);
  end loop;
  for r in select o.* from (select q.* from {schema}.runs q where q.deadline_at <= p_now
      order by q.deadline_at, q.seq limit ${MAX_TIMERS}) o order by o.seq loop
    v_failed := v_failed || case when r.started_at is null then fn.fail_run(r, 'expired', r.start_within, p_now)
      else fn.fail_run(r, 'timeout', r.finish_within, p_now) end;
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
`;
