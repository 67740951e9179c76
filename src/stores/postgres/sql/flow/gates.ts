import { queueScan } from "../claim/scan_starts.ts";

// A scope is a job or a concurrency key. Its starts are numbered without a gap, and their instants never decrease: so the
// start that decides whether the next one is allowed is found by its number. A key can have several rates, those of its
// runs: there `period` is the longest of those that have counted a start so far, so it never decreases either.

// The claimable runs of one queue and one fairness key are a group. Its head is the run with the lowest position, and the
// group has a turn. T1: each group that is not empty has exactly one row in `heads`, with its first run.
//
// A group gets its turn when its first run becomes claimable: the turn being served, or a later one if its fairness key
// has had that already. It keeps the turn, whichever run is its head, until one of its runs is claimed or none is left.
//
// Within a call a group may be empty for a moment. So groups that have changed are noted, in a setting of the
// transaction, and settled when the call ends, and within a claim before the next run is looked for.

/** What keeps due runs from being claimed: rates of jobs and of concurrency keys, and pauses of jobs. */
export const GATES = `
-- When a rate allows the next start; -1: nothing holds it up.
create or replace function fn.rate_opens_at(p_scope text, p_limit bigint, p_period bigint, p_now bigint) returns bigint
language plpgsql stable as $$
begin
  return (select coalesce((
    select least(s.at, p_now) + p_period from {schema}.starts s
    where s.scope = p_scope
      and s.no = (select l.no from {schema}.starts l where l.scope = p_scope order by l.no desc limit 1) - p_limit + 1
  ), -1));
end $$;

-- How many starts a rate allows now, as far as more than p_most do not matter.
create or replace function fn.count_allowed(p_scope text, p_limit bigint, p_period bigint, p_most bigint, p_now bigint)
returns bigint language plpgsql stable as $$
declare v_last bigint; v_first bigint; v_over bigint;
begin
  select s.no into v_last from {schema}.starts s where s.scope = p_scope order by s.no desc limit 1;
  if not found then return p_limit; end if;
  select min(o.no), count(*) filter (where least(o.at, p_now) + p_period <= p_now) into v_first, v_over from (
    select s.no, s.at from {schema}.starts s where s.scope = p_scope and s.no > v_last - p_limit
    order by s.no limit p_most) o;
  -- The instants never decrease, so those that count no more come first.
  return p_limit - (v_last - coalesce(v_first, v_last + 1) + 1) + v_over;
end $$;

-- Counts starts. Removes those that no rate counts any more, some more than are added.
create or replace function fn.add_starts(p_scope text, p_limit bigint, p_period bigint, p_count bigint, p_now bigint)
returns void language plpgsql as $$
declare v_last bigint; v_period bigint;
begin
  select s.no, s.period into v_last, v_period from {schema}.starts s where s.scope = p_scope order by s.no desc limit 1;
  v_last := coalesce(v_last, 0);
  v_period := case when starts_with(p_scope, 'key ') then greatest(p_period, v_period) else p_period end;
  insert into {schema}.starts (scope, no, at, period)
    select p_scope, v_last + n, p_now, v_period from generate_series(1, p_count) n;
  delete from {schema}.starts s where s.scope = p_scope and s.no = any(array(
      select o.no from {schema}.starts o where o.scope = p_scope order by o.no limit 2 * p_count))
    and s.at + v_period <= p_now and s.no <= v_last + p_count - p_limit;
end $$;

-- Pauses a job, unless it is paused already. See Store.pauseJob().
create or replace function fn.pause_job(p jsonb, p_now bigint) returns jsonb language sql volatile as $$
  insert into {schema}.paused_jobs (job, paused_at, paused_by, note)
    values (p ->> 'jobName', p_now, p ->> 'by', p ->> 'note') on conflict do nothing;
  select to_jsonb(j) from {schema}.paused_jobs j where j.job = p ->> 'jobName'
$$;

-- Ends the pause of a job. Returns whether it was paused.
create or replace function fn.resume_job(p jsonb, p_now bigint) returns jsonb language sql volatile as $$
  with gone as (delete from {schema}.paused_jobs where job = p ->> 'jobName' returning 1)
  select to_jsonb(exists (select 1 from gone))
$$;

-- Notes that a run of a queue can be claimed now.
create or replace function fn.add_ready(p_queue text, p_fairness_key text, p_position bigint) returns void
language plpgsql as $$
begin
  if p_fairness_key is null then perform fn.start_before(${queueScan("p_queue")}, p_position);
  else perform fn.touch_group(p_queue, p_fairness_key);
  end if;
end $$;

-- Notes that the claimable runs of a group have changed.
create or replace function fn.touch_group(p_queue text, p_fairness_key text) returns void language plpgsql as $$
declare v_touched jsonb; v_group text := jsonb_build_array(p_queue, p_fairness_key)::text;
begin
  if p_fairness_key is null then return; end if;
  v_touched := coalesce(nullif(current_setting('holdfast.touched', true), ''), '[]')::jsonb;
  if v_touched ? v_group then return; end if;
  perform set_config('holdfast.touched', (v_touched || to_jsonb(v_group))::text, true);
end $$;

-- Restores T1.
create or replace function fn.settle_heads() returns void language plpgsql as $$
declare v_touched text := current_setting('holdfast.touched', true); g record; r record;
begin
  if coalesce(v_touched, '') = '' then return; end if;
  perform set_config('holdfast.touched', '', true);
  for g in select t.x::jsonb ->> 0 as queue, t.x::jsonb ->> 1 as fairness_key
      from jsonb_array_elements_text(v_touched::jsonb) t (x) loop
    select q.seq, q.position into r from {schema}.runs q
      where q.queue = g.queue and q.fairness_key = g.fairness_key and q.queue_state = 'R' and q.fairness_key is not null
      order by q.position, q.seq limit 1;
    if not found then
      delete from {schema}.heads h where h.queue = g.queue and h.fairness_key = g.fairness_key;
    else
      insert into {schema}.heads as h (queue, fairness_key, turn, position, run_seq)
        select g.queue, g.fairness_key,
          greatest(s.turn, coalesce((select k.next_turn from {schema}.fairness_keys k
            where k.fairness_key = g.fairness_key), 0)), r.position, r.seq
        from {schema}.serving s
        on conflict (queue, fairness_key) do update set position = excluded.position, run_seq = excluded.run_seq
        where h.run_seq <> excluded.run_seq or h.position <> excluded.position;
    end if;
  end loop;
end $$;

-- Notes that a group was served in its turn, before its run leaves it.
create or replace function fn.serve_group(p_queue text, p_fairness_key text, p_turn bigint) returns void
language plpgsql as $$
begin
  update {schema}.serving set turn = p_turn where turn < p_turn;
  insert into {schema}.fairness_keys as k values (p_fairness_key, p_turn + 1)
    on conflict (fairness_key) do update set next_turn = excluded.next_turn;
  delete from {schema}.heads h where h.queue = p_queue and h.fairness_key = p_fairness_key;
  perform fn.touch_group(p_queue, p_fairness_key);
  -- The other groups of the fairness key have had this turn, too.
  update {schema}.heads h set turn = p_turn + 1 where h.fairness_key = p_fairness_key and h.turn < p_turn + 1;
end $$;

`;
