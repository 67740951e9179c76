/** The runs that clean up after others. `on_end` is what `toOnEnd()` makes. */
export const END_RUNS = `
-- Adds the run that cleans up after a run, which ends now, if it has one for this end.
create or replace function fn.add_end_run(r {schema}.runs, p_status text, p_now bigint) returns void language plpgsql as $$
declare e jsonb := r.on_end::jsonb; v_places bigint[]; v_payload text := '{"runId":' || to_json(r.id)::text || '}';
begin
  if not (e -> 'statuses') ? p_status then return; end if;
  v_places := fn.draw_places(1);
  perform fn.insert_run(jsonb_build_object('id', e ->> 'id',
      'queue', (e ->> 'jobName') || substr(r.job, length(fn.job_name_of(r.job)) + 1),
      'payload', v_payload, 'input', null, 'schemaPrint', null, 'labels', r.labels, 'labelMap', r.labels::jsonb,
      'concurrencyKey', r.concurrency_key, 'trace', r.trace, 'endOf', r.id,
      'flow', jsonb_build_object('priority', r.priority, 'fairnessKey', r.fairness_key,
        'keyConcurrency', r.key_concurrency, 'keyRateLimit', r.key_rate_limit, 'keyRatePeriod', r.key_rate_period,
        'finishWithin', e -> 'finishWithin')),
    v_places[1], null, null, null, 0, p_now);
end $$;

-- The open run that cleans up after a run; without a row, there is none.
create or replace function fn.open_end(r {schema}.runs) returns {schema}.runs language plpgsql stable as $$
declare e {schema}.runs;
begin
  if r.on_end is not null then
    select q.* into e from {schema}.runs q where q.end_of = r.id and q.completed_at is null;
  end if;
  return e;
end $$;

-- See cleaningMessage().
create or replace function fn.cleaning_message(p_id text, p_end_id text, p_end_status text) returns text language sql
immutable as $$
  select 'Run "' || p_id || '" is being cleaned up: run "' || p_end_id || '" (' || p_end_status || ')'
$$;

-- Why a retry from the failure would retry a child, or a child of one, which is still to be cleaned up after: see
-- orphanMessage(). NULL: it would not.
create or replace function fn.open_child(p_run_seq bigint) returns text language sql stable as $$
  with recursive retried (seq) as (
    select p_run_seq
    union select x.seq from retried cross join lateral (
      select m.run_seq as seq from {schema}.pauses w join {schema}.children m on m.pause_seq = w.seq
        join {schema}.runs c on c.seq = m.run_seq and c.status <> 'completed'
        where w.run_seq = retried.seq and w.kind = 'children'
      union all select o.seq from {schema}.runs r join {schema}.runs o on o.id = r.retrigger_of
        where r.seq = retried.seq and r.origin_id <> r.id) x)
  select case when r.completed_at is null
      then 'Child run "' || r.id || '" is about to be cancelled and cleaned up: its parent has ended'
      else fn.cleaning_message(r.id, e.id, e.status) end
    from retried join {schema}.runs r on r.seq = retried.seq
    left join {schema}.runs e on e.end_of = r.id and e.completed_at is null
    where r.on_end is not null and (r.completed_at is null or e.seq is not null) order by r.seq limit 1
$$;

-- Why a run is not retried; NULL: it can be.
create or replace function fn.not_retriable(p_run_id text, p_from text) returns text language plpgsql stable as $$
declare r {schema}.runs; e {schema}.runs; v_reason text;
begin
  select q.* into r from {schema}.runs q where q.id = p_run_id;
  e := fn.open_end(r);
  if e.id is not null then
    return fn.cleaning_message(r.id, e.id, e.status);
  end if;
  if p_from = 'failure' and (r.has_pauses or r.origin_id <> r.id) then v_reason := fn.open_child(r.seq); end if;
  if v_reason is not null then return v_reason; end if;
  if r.end_of is null then return null; end if;
  perform 1 from {schema}.runs q where q.id = r.end_of and q.retriggered_as is null;
  if found then return null; end if;
  return 'Cannot retrigger run "' || r.id || '": run "' || r.end_of || '", after which it cleaned up, was retried or deleted';
end $$;

-- The steps of a run that its end runs have undone, with the first end run that did. See undoneSteps() and undoName().
create or replace function fn.undone_steps(r {schema}.runs) returns jsonb language plpgsql stable as $$
begin
  if r.on_end is null then return '{}'; end if;
  return (
    with undoing as (select distinct on (t.name) t.name, e.id from {schema}.runs e
        cross join lateral (select s.name from {schema}.steps s where s.run_seq = e.seq and s.status = 'completed'
          and s.name like 'undo %') t
        where e.end_of = r.id order by t.name, e.seq),
      recorded as (select s.name, u.name as undoing, u.id from undoing u, {schema}.steps s where s.run_seq = r.seq
        and u.name in ('undo ' || regexp_replace(s.name, '#([0-9]+)$', ' (\\1)'), 'undo ' || left(s.name, 100) || ' (' ||
          left(encode(sha256(convert_to(s.name, 'UTF8')), 'hex'), 16) || ')')),
      others as (select substr(u.name, 6) as name, u.id from undoing u
        where not exists (select from recorded c where c.undoing = u.name))
    select coalesce(jsonb_object_agg(x.name, x.id), '{}') from (
      select c.name, c.id from recorded c
      union all select substr(c.undoing, 6), c.id from recorded c
        where c.undoing <> 'undo ' || regexp_replace(c.name, '#([0-9]+)$', ' (\\1)')
      union all select o.name, o.id from others o
      union all select regexp_replace(o.name, ' \\(([0-9]+)\\)$', '#\\1'), o.id from others o) x);
end $$;
`;
