import { MAX_COUNTED_WAITS } from "../../../../model/wait.ts";
import { MAX_FAILURES, SEARCHED_BY_END } from "../../../operate/timeline_rows.ts";
import { ENTRY } from "../basics.ts";

// The place of a wait without a deadline.
const LAST = "9000000000000000";

/** What is shown of runs: their timelines and failures, open waits, and how runs are found. */
export const OPERATOR_READS = `
-- A part of the records of a run. See Store.getTimeline().
create or replace function fn.get_timeline(p jsonb, p_now bigint) returns jsonb language plpgsql stable ${ENTRY} as $$
declare
  r {schema}.runs; v_limit int := (p ->> 'limit')::int; v_steps jsonb; v_names text[]; v_attempts jsonb := '[]';
  v_pauses jsonb := '[]'; v_count int := 0;
begin
  select q.* into r from {schema}.runs q where q.id = p ->> 'runId';
  if not found then return null; end if;
  select coalesce(jsonb_agg(to_jsonb(o) order by o.position, o.no), '[]'),
      coalesce(array_agg(o.name) filter (where o.attempts > 1 or o.status = 'retrying'), '{}') into v_steps, v_names from (
    select s.seq as no, s.position, s.name, s.status, s.attempts, s.retry_at, s.started_at, s.completed_at, s.failure
    from {schema}.steps s where s.run_seq = r.seq order by s.position, s.seq limit v_limit
    offset (p -> 'from' ->> 'steps')::int) o;
  if cardinality(v_names) > 0 then
    select coalesce(jsonb_agg(to_jsonb(a) order by a.step_name, a.attempt), '[]') into v_attempts
      from {schema}.attempts a where a.run_seq = r.seq and a.step_name = any(v_names);
  end if;
  if r.has_pauses then
    select count(*) into v_count from {schema}.pauses w where w.run_seq = r.seq and w.kind <> 'patch';
    select coalesce(jsonb_agg(jsonb_build_object('kind', o.kind, 'id', o.id, 'name', o.name, 'status', o.status,
        'outcome', o.outcome, 'createdAt', o.created_at, 'suspendedAt', o.suspended_at, 'resolvedAt', o.resolved_at,
        'firstResumedAt', o.first_resumed_at, 'deadlineAt', o.deadline_at, 'trace', o.trace,
        'childRunId', case when o.kind = 'children' then (select q.id from {schema}.children m
          join {schema}.runs q on q.seq = m.run_seq where m.pause_seq = o.seq and m.no = 0) end) order by o.seq), '[]')
      into v_pauses from (select w.* from {schema}.pauses w where w.run_seq = r.seq and w.kind <> 'patch' order by w.seq
        limit v_limit offset (p -> 'from' ->> 'pauses')::int) o;
  end if;
  return jsonb_build_object('now', fn.clock(p_now),
    'run', jsonb_build_object('id', r.id, 'status', r.status, 'createdAt', r.created_at, 'startAt', r.start_at,
      'startedAt', r.started_at, 'completedAt', r.completed_at,
      'trace', r.trace, 'endedBy', r.ended_by),
    'steps', v_steps, 'attempts', v_attempts, 'pauses', v_pauses,
    'interruptions', (select coalesce(jsonb_agg(jsonb_build_object('kind', o.kind, 'workerId', o.worker,
        'leasedAt', o.leased_at, 'endedAt', o.ended_at) order by o.generation), '[]')
      from (select i.* from {schema}.interruptions i where i.run_seq = r.seq order by i.generation limit v_limit
        offset (p -> 'from' ->> 'interruptions')::int) o),
    'totals', jsonb_build_object('pauses', v_count,
      'steps', (select count(*) from {schema}.steps s where s.run_seq = r.seq),
      'interruptions', (select count(*) from {schema}.interruptions i where i.run_seq = r.seq)));
end $$;

-- The failures of a run. See Store.getFailures().
create or replace function fn.get_failures(p jsonb, p_now bigint) returns jsonb language plpgsql stable ${ENTRY} as $$
declare r {schema}.runs;
begin
  select q.* into r from {schema}.runs q where q.id = p ->> 'runId';
  if not found then return null; end if;
  return jsonb_build_object('run', r.failure, 'steps', (
    select coalesce(jsonb_agg(to_jsonb(o)), '[]') from (
      (select a.step_name as name, (select s.position from {schema}.steps s where s.run_seq = r.seq and s.name = a.step_name)
          as position, a.attempt, a.failure
        from {schema}.attempts a where a.run_seq = r.seq and a.failure is not null limit ${MAX_FAILURES})
      union all
      (select s.name, s.position, s.attempts, s.failure from {schema}.steps s
        where s.run_seq = r.seq and s.failure is not null order by s.position, s.seq limit ${MAX_FAILURES})) o));
end $$;

-- Open waits, the soonest deadline first. See Store.getOpenWaits().
create or replace function fn.get_open_waits(p jsonb, p_now bigint) returns jsonb language plpgsql stable ${ENTRY} as $$
declare v_runs bigint[] := (select coalesce(array_agg(q.seq), '{}') from {schema}.runs q
  where q.id = any(fn.texts(p -> 'runIds')) having p ? 'runIds');
  v_deadline bigint := case when p -> 'after' = 'null' then -1 else coalesce((p -> 'after' ->> 'deadlineAt')::bigint, ${LAST}) end;
  v_seq bigint := coalesce((p -> 'after' ->> 'seq')::bigint, 0);
begin
  return jsonb_build_object('waits', (
      select coalesce(jsonb_agg(to_jsonb(o) || jsonb_build_object('run_id', q.id, 'job', q.job, 'labels', q.labels)
        order by coalesce(o.deadline_at, ${LAST}), o.seq), '[]')
      from ((select w.* from {schema}.pauses w where v_runs is null and w.kind = 'wait' and w.status = 'pending'
          and (coalesce(w.deadline_at, ${LAST}), w.seq) > (v_deadline, v_seq)
          order by coalesce(w.deadline_at, ${LAST}), w.seq limit (p ->> 'limit')::int)
        union all
        (select w.* from unnest(v_runs) x (seq) cross join lateral (select q.* from {schema}.pauses q
            where q.run_seq = x.seq and q.kind = 'wait' and q.status = 'pending' offset 0) w
          where (coalesce(w.deadline_at, ${LAST}), w.seq) > (v_deadline, v_seq)
          order by coalesce(w.deadline_at, ${LAST}), w.seq limit (p ->> 'limit')::int)) o
      cross join lateral (select u.* from {schema}.runs u where u.seq = o.run_seq offset 0) q),
    'total', (select count(*) from (select from {schema}.pauses w where w.kind = 'wait' and w.status = 'pending'
      order by coalesce(w.deadline_at, ${LAST}), w.seq limit ${MAX_COUNTED_WAITS + 1}) o));
end $$;

-- Finds runs by a string. See Store.searchRuns().
create or replace function fn.search_runs(p jsonb, p_now bigint) returns jsonb language plpgsql stable ${ENTRY} as $$
declare
  v_text text collate "C" := p ->> 'text'; v_limit int := (p ->> 'limit')::int; v_label int := strpos(p ->> 'text', '=');
  v_jobs text[] := array(select distinct c.job from {schema}.counts c);
begin
  return (select coalesce(jsonb_agg(jsonb_build_object('runId', o.id, 'by', o.by) order by o.rule, o.no), '[]') from (
    (select 1 as rule, row_number() over (order by a.id) as no, a.id, 'id' as by from (select q.id from {schema}.runs q
      where q.id >= v_text and q.id < v_text || 'g' order by q.id limit v_limit) a)
    union all
    (select 2, row_number() over (order by a.seq desc), a.id, 'id' from (select q.seq, q.id from {schema}.runs q
      order by q.seq desc limit ${SEARCHED_BY_END}) a where right(a.id, length(v_text)) = v_text order by a.seq desc
      limit v_limit)
    union all
    (select 3, 1, q.id, 'waitId' from {schema}.pauses w join {schema}.runs q on q.seq = w.run_seq
      where w.id = v_text and w.kind = 'wait')
    union all
    (select 4, q.seq, q.id, 'idempotencyKey' from unnest(v_jobs) j (job) cross join lateral (
      select u.seq, u.id from {schema}.runs u where u.job = j.job and u.idempotency_key = v_text offset 0) q limit v_limit)
    union all
    (select 5, -a.seq, a.id, 'idempotencyKey' from (select q.seq, q.id from {schema}.runs q
      where q.former_key = v_text order by q.seq desc limit v_limit) a)
    union all
    (select 6, a.seq, a.id, 'concurrencyKey' from (
      (select q.seq, q.id from {schema}.holders h join {schema}.runs q on q.id = h.run_id
        where h.concurrency_key = v_text and q.completed_at is null limit v_limit)
      union
      (select q.seq, q.id from {schema}.runs q where q.concurrency_key = v_text and q.status = 'pending' limit v_limit)
      union
      (select q.seq, q.id from {schema}.runs q where q.concurrency_key = v_text and q.status = 'waiting' limit v_limit)) a)
    union all
    (select 7, -a.run_seq, q.id, 'label' from (select n.run_seq from {schema}.labels n
      where v_label > 0 and n.key = left(v_text, greatest(v_label - 1, 0)) and n.value = substr(v_text, v_label + 1)
      order by n.run_seq desc limit v_limit) a join {schema}.runs q on q.seq = a.run_seq)) o);
end $$;
`;
