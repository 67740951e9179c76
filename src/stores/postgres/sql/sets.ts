import { JOINS_LISTS } from "./basics.ts";

// The three kinds of writes that are by far the most frequent are done for a whole group with a few statements. What is
// special about one of them is left to the function of its kind: several writes to one run in a group, more reports than
// that the step began, a run with a key, pauses or a parent, a trigger with a key or a fairness key.

/** Writes of a group that are done together. */
export const SETS = `
-- Which writes of a group can be done together: those of each kind as {no, x}, or NULL. The group is simple if it
-- changes nothing but runs under a lease, and adds others that stand in no line; run_ids are all that it names.
create or replace function fn.find_sets(p jsonb, out steps jsonb, out endings jsonb, out triggers jsonb,
  out is_simple boolean, out run_ids text[])
language plpgsql stable ${JOINS_LISTS} as $$
begin
  with t as materialized (
    select e.no, e.x, e.x ->> 'kind' as kind, e.x ->> 'runId' as run_id
    from jsonb_array_elements(p) with ordinality e (x, no)),
  n as (
    select q.run_id from (select t.run_id from t where t.run_id is not null
      union all select y ->> 'runId' from t, jsonb_array_elements(t.x -> 'renewals') y where t.kind = 'renew') q
    group by q.run_id having count(*) = 1),
  s as (
    select t.no, t.x, t.kind, t.x -> 'reports' as reports from t join n on n.run_id = t.run_id
    where t.kind in ('save_step', 'finish'))
  select
    jsonb_agg(jsonb_build_object('no', s.no, 'x', s.x)) filter (where s.kind = 'save_step' and (
      s.reports = '[]' or (jsonb_array_length(s.reports) = 1 and (s.x ->> 'startsLast')::boolean))),
    jsonb_agg(jsonb_build_object('no', s.no, 'x', s.x)) filter (where s.kind = 'finish' and s.reports = '[]' and exists (
      select 1 from {schema}.runs r where r.id = s.x ->> 'runId' and r.concurrency_key is null and not r.has_pauses
        and r.parent_seq is null))
    into steps, endings from s;
  select array_agg(q.run_id) into run_ids from (
    select e ->> 'runId' as run_id from jsonb_array_elements(p) e
    union select y ->> 'runId' from jsonb_array_elements(p) e, jsonb_array_elements(e -> 'renewals') y) q
    where q.run_id is not null;
  -- Triggers stay in their order: all of them or none.
  select case when bool_and(fn.is_plain_trigger(e.x)) and count(distinct e.x -> 'runs' -> 0 ->> 'id') = count(*) then
      jsonb_agg(jsonb_build_object('no', e.no, 'x', e.x) order by e.no) end
    into triggers from jsonb_array_elements(p) with ordinality e (x, no) where e.x ->> 'kind' = 'enqueue';
  is_simple := not exists (select 1 from jsonb_array_elements(p) e where case e ->> 'kind'
    when 'save_step' then false when 'renew' then false when 'save_input' then false
    when 'enqueue' then triggers is null
    else true end and e ->> 'kind' <> 'finish')
    and (select count(*) from jsonb_array_elements(p) e where e ->> 'kind' = 'finish')
      = coalesce(jsonb_array_length(endings), 0);
end $$;

-- Whether a trigger adds one run that uses nothing but labels, and was not added before.
create or replace function fn.is_plain_trigger(x jsonb) returns boolean language sql stable as $$
  select jsonb_array_length(x -> 'runs') = 1 and fn.is_plain_run(x -> 'runs' -> 0)
    and not exists (select 1 from {schema}.runs r where r.id = x -> 'runs' -> 0 ->> 'id')
    and not exists (select 1 from {schema}.deleted d where d.id = x -> 'runs' -> 0 ->> 'id')
$$;

create or replace function fn.is_plain_run(n jsonb) returns boolean language sql immutable as $$
  select n ->> 'flow' is null and n ->> 'concurrencyKey' is null and n ->> 'idempotencyKey' is null
    and n ->> 'retriggerOf' is null and n ->> 'scheduleName' is null
$$;

-- Steps, each with no report but that it began. p_writes are {no, write}. Returns {no, answer} of each.
create or replace function fn.save_steps(p_writes jsonb, p_now bigint) returns table (no bigint, answer jsonb)
language plpgsql ${JOINS_LISTS} as $$
declare
  v_ids text[] := array(select e -> 'x' ->> 'runId' from jsonb_array_elements(p_writes) e);
begin
  return query
  with i as materialized (
    select (e ->> 'no')::bigint as no, e -> 'x' ->> 'runId' as id, (e -> 'x' ->> 'generation')::int as generation,
      e -> 'x' ->> 'name' as name, (e -> 'x' ->> 'index')::int as index, e -> 'x' ->> 'status' as status,
      e -> 'x' ->> 'output' as output, e -> 'x' ->> 'failure' as failure, (e -> 'x' ->> 'attempts')::int as attempts,
      p_now + ceil((e -> 'x' ->> 'delayMs')::numeric)::bigint as retry_at, (e -> 'x' ->> 'agoMs')::bigint as ago,
      e -> 'x' ->> 'message' as message, coalesce((e -> 'x' -> 'reports' -> 0 ->> 'no')::bigint, 0) as report_no
    from jsonb_array_elements(p_writes) e),
  b as materialized (
    select i.no, r.seq, r.recorded, i.report_no > r.last_report_no as is_new from i join {schema}.runs r on r.id = i.id
    where r.id = any(v_ids) and r.lease_generation = i.generation and r.status = 'running'),
  w as (
    insert into {schema}.steps as s (run_seq, name, position, status, output, failure, attempts, retry_at, recorded_no,
        started_at, completed_at)
      select b.seq, i.name, i.index, i.status, i.output, i.failure, i.attempts, i.retry_at, b.recorded + 1, p_now - i.ago,
        case when i.status <> 'retrying' then p_now end
      from i join b on b.no = i.no order by i.no
    on conflict (run_seq, name) do update set status = excluded.status, output = excluded.output,
      failure = excluded.failure, attempts = excluded.attempts, retry_at = excluded.retry_at,
      recorded_no = excluded.recorded_no, completed_at = excluded.completed_at
    where s.status = 'retrying' and excluded.attempts > s.attempts
    returning s.run_seq, s.recorded_no),
  u as (
    update {schema}.runs r set recorded = b.recorded + 1, abandonments = 0, updated_at = p_now,
      last_report_no = greatest(r.last_report_no, i.report_no)
    from i join b on b.no = i.no join w on w.run_seq = b.seq where r.id = any(v_ids) and r.seq = b.seq),
  f as (
    insert into {schema}.journal (at, run_seq, facts)
      select p_now, b.seq, '[' || b.seq || case when i.status = 'completed' then ',"step_completed",' else ',"step_failed",' end
        || to_json(i.name)::text || ',' || i.index || ',' || i.attempts || ','
        || case when b.is_new then (p_now - i.ago)::text else 'null' end || ','
        || case when i.status = 'completed' then i.ago::text
          else coalesce(to_json(i.message)::text, 'null') || ',' || coalesce(i.retry_at::text, 'null') end || ']'
      from i join b on b.no = i.no join w on w.run_seq = b.seq order by i.no)
  select i.no, case when b.seq is null then '{"refused": "lease_lost"}'
    -- It is recorded already: this is for the function of one step.
    when w.run_seq is null then null
    else jsonb_build_object('recordedNo', w.recorded_no, 'retryAt', i.retry_at, 'now', p_now) end
  from i left join b on b.no = i.no left join w on w.run_seq = b.seq;
end $$;

-- Endings of runs without a key, pauses and a parent, without reports. The same parameters and answers.
create or replace function fn.finish_runs(p_writes jsonb, p_now bigint) returns table (no bigint, answer jsonb)
language plpgsql ${JOINS_LISTS} as $$
declare v_ids text[] := array(select e -> 'x' ->> 'runId' from jsonb_array_elements(p_writes) e);
begin
  return query
  with i as materialized (
    select (e ->> 'no')::bigint as no, e -> 'x' ->> 'runId' as id, (e -> 'x' ->> 'generation')::int as generation,
      e -> 'x' ->> 'status' as status, e -> 'x' ->> 'output' as output, e -> 'x' ->> 'error' as error,
      e -> 'x' ->> 'failure' as failure, e -> 'x' ->> 'failedStep' as failed_step, e -> 'x' ->> 'fact' as fact
    from jsonb_array_elements(p_writes) e),
  u as (
    update {schema}.runs r set status = i.status, output = i.output, error = i.error, failure = i.failure,
      failed_step = i.failed_step, lease_owner = null, lease_claim = null, lease_expires_at = null, updated_at = p_now,
      completed_at = p_now
    from i where r.id = any(v_ids) and r.id = i.id and r.lease_generation = i.generation and r.status = 'running'
    returning i.no, r.seq, r.job, r.status),
  c as (
    insert into {schema}.counts (status, job, runs)
      select m.status, m.job, sum(m.runs) from (select u.status, u.job, 1 as runs from u
        union all select 'running', u.job, -1 from u) m group by m.status, m.job),
  f as (
    insert into {schema}.journal (at, run_seq, facts)
      select p_now, u.seq, '[' || u.seq || ',' || i.fact from u join i on i.no = u.no order by u.no)
  -- What has not ended now is for the function of one ending: it has ended before, or the lease is lost.
  select i.no, case when u.no is not null then 'null'::jsonb end from i left join u on u.no = i.no;
end $$;

-- Triggers of one run each that use nothing but labels. The same parameters and answers.
create or replace function fn.enqueue_plain(p_writes jsonb, p_now bigint) returns table (no bigint, answer jsonb)
language plpgsql ${JOINS_LISTS} as $$
begin
  return query
  with i as materialized (
    select e.no, e.n, nextval('{schema}.runs_seq_seq'::regclass) as seq from (
      select (e ->> 'no')::bigint as no, e -> 'x' -> 'runs' -> 0 as n from jsonb_array_elements(p_writes) e
      order by (e ->> 'no')::bigint) e),
  r as (
    insert into {schema}.runs as q (seq, id, job, status, queue, position, queue_state, labels, trace, created_at,
        updated_at) overriding system value
      select i.seq, i.n ->> 'id', i.n ->> 'queue', 'pending', i.n ->> 'queue', i.seq, 'R', i.n ->> 'labels',
        i.n ->> 'trace', p_now, p_now
      from i order by i.seq
    returning q.*),
  v as (
    insert into {schema}.inputs (run_seq, payload, input, schema_print)
      select i.seq, i.n ->> 'payload', i.n ->> 'input', i.n ->> 'schemaPrint' from i),
  l as (
    insert into {schema}.labels (key, value, run_seq)
      select y.key, y.value, i.seq from i, jsonb_each_text(i.n -> 'labelMap') y),
  c as (
    insert into {schema}.counts (status, job, runs) select 'pending', i.n ->> 'queue', count(*) from i group by i.n ->> 'queue'),
  f as (
    insert into {schema}.journal (at, run_seq, facts) select p_now, i.seq, '[' || i.seq || ',"triggered"]' from i order by i.seq)
  select i.no, jsonb_build_array(jsonb_build_object('disposition', 'created',
    'run', to_jsonb(r) || jsonb_build_object('payload', i.n ->> 'payload', 'held', null)))
  from i join r on r.seq = i.seq;
end $$;
`;
