import { MAX_FORGOTTEN, STARTS_KEPT_MS } from "../../../rules.ts";

// A scope is a job or a concurrency key. Its starts are numbered without a gap, and their instants never decrease: so the
// start that decides whether the next one is allowed is found by its number. A key can have several rates, those of its
// runs: there `period` is the longest of those that have counted a start so far, so it never decreases either.

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

-- Makes starts in the future starts of now: the clock was set back.
create or replace function fn.correct_starts(p_now bigint) returns void language sql volatile as $$
  update {schema}.starts set at = p_now where at > p_now;
  update {schema}.openings set opens_at = p_now + period where opens_at > p_now + period;
$$;

-- Removes some of the starts that count no more, of scopes that have no new ones.
create or replace function fn.forget_starts(p_now bigint) returns void language sql volatile as $$
  delete from {schema}.starts s using (
    select o.scope, o.no from {schema}.starts o where o.at < p_now - ${STARTS_KEPT_MS}
    order by o.at limit ${MAX_FORGOTTEN}) old
  where s.scope = old.scope and s.no = old.no and p_now - ${STARTS_KEPT_MS} >= s.at + (
    select l.period from {schema}.starts l where l.scope = s.scope order by l.no desc limit 1)
$$;

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
`;
