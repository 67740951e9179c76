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

-- Why a run is not retried; NULL: it can be.
create or replace function fn.not_retriable(p_run_id text) returns text language plpgsql stable as $$
declare r {schema}.runs; e {schema}.runs;
begin
  select q.* into r from {schema}.runs q where q.id = p_run_id;
  e := fn.open_end(r);
  if e.id is not null then
    return 'Run "' || r.id || '" is being cleaned up: run "' || e.id || '" (' || e.status || ')';
  end if;
  if r.end_of is null then return null; end if;
  perform 1 from {schema}.runs q where q.id = r.end_of and q.retriggered_as is null;
  if found then return null; end if;
  return 'Cannot retrigger run "' || r.id || '": run "' || r.end_of || '", after which it cleaned up, was retried or deleted';
end $$;

-- The completed steps of a run that its end runs have undone, with the first end run that did. See undoName().
create or replace function fn.undone_steps(r {schema}.runs) returns jsonb language plpgsql stable as $$
begin
  if r.on_end is null then return '{}'; end if;
  return (select coalesce(jsonb_object_agg(s.name, u.id), '{}') from {schema}.steps s
    cross join lateral (select e.id from {schema}.runs e join {schema}.steps t on t.run_seq = e.seq
      where e.end_of = r.id and t.status = 'completed'
        and t.name = 'undo ' || regexp_replace(s.name, '#([0-9]+)$', ' (\\1)') order by e.seq limit 1) u
    where s.run_seq = r.seq);
end $$;
`;
