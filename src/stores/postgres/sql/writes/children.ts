import { ENTRY } from "../basics.ts";
import { part } from "../reads/bounded_reads.ts";

// About how many characters a result takes besides its values, and how many children are read at once.
const RESULT_LENGTH = 120;
const SLICE = 512;
const NO_LIMIT = Number.MAX_SAFE_INTEGER;

/**
 * Child runs: how they are added to a pause, cancelled after the end of their parent, and how they ended. And the runs that
 * clean up after others: `on_end` is what `toOnEnd()` makes.
 */
export const CHILDREN = `
-- Adds the children that a pause w of the run r does not have yet, and resolves it if all its children have ended.
-- p_places are positions of the journal, one for each requested run. Returns the children of the old run that it has
-- cancelled.
create or replace function fn.add_children(r {schema}.runs, w {schema}.pauses, p_children jsonb, p_places bigint[],
  p_now bigint) returns jsonb language plpgsql as $$
declare
  v_cancelled jsonb := '[]'; v_added int := coalesce(w.added, 0); v_total int := (p_children ->> 'total')::int;
  v_unfinished int := coalesce(w.unfinished, v_total); v_from int := greatest(0, v_added - (p_children ->> 'from')::int);
  v_run jsonb; v_no bigint; v_former bigint[]; v_known int[]; v_pause bigint; o record; c {schema}.runs;
begin
  if w.status <> 'pending' or jsonb_array_length(p_children -> 'runs') <= v_from then return v_cancelled; end if;
  select f.pauses, f.added into v_former, v_known from fn.former_pauses(r.seq, w.name) f;
  for v_run, v_no in select x, t.no from jsonb_array_elements(p_children -> 'runs') with ordinality t (x, no)
      where t.no > v_from order by t.no loop
    v_pause := null;
    select f.pause into v_pause from unnest(v_former, v_known) with ordinality f (pause, added, no)
      where f.added > v_added order by f.no limit 1;
    select f.* into o from fn.old_child(v_pause, v_added, fn.texts(v_run -> 'names'), v_run ->> 'payload') f;
    if o.id is not null and o.completed_at is null and fn.is_orphan(o.parent_seq) then
      -- The following claims would cancel it, too late to retry it from there.
      v_cancelled := v_cancelled || fn.cancel_orphan(o.run_seq, p_now);
      o.status := 'cancelled';
    end if;
    if o.status = 'completed' then
      insert into {schema}.children (pause_seq, no, run_seq, result, payload)
        values (w.seq, v_added, o.run_seq, o.result, o.payload);
      v_unfinished := v_unfinished - 1;
    else
      -- A child that failed or was cancelled is retried from its failure, if there can be a retry.
      if o.id is not null and o.status in ('failed', 'cancelled') and (fn.open_retry(o.id)).seq is null then
        v_run := v_run || jsonb_build_object('retriggerOf', o.id, 'retriggerFrom', 'failure');
      end if;
      c := fn.insert_run(v_run, p_places[v_no], r.seq, r.id, w.seq, r.depth + 1, p_now);
      insert into {schema}.children (pause_seq, no, run_seq) values (w.seq, v_added, c.seq);
    end if;
    v_added := v_added + 1;
  end loop;
  update {schema}.pauses set total = v_total, added = v_added, unfinished = v_unfinished where seq = w.seq;
  if v_unfinished = 0 then perform fn.resolve_children(r.seq, w.seq, p_now); end if;
  return v_cancelled;
end $$;

-- The pauses of this name in the run of which a run is a retry from the failure, and in those before it, with the number
-- of their children. A run that ended between two calls has only the first children.
create or replace function fn.former_pauses(p_seq bigint, p_name text, out pauses bigint[], out added int[])
language plpgsql stable as $$
declare o record;
begin
  pauses := '{}';
  added := '{}';
  loop
    select q.seq as run_seq, w.seq, w.added, w.total into o
      from {schema}.runs r join {schema}.runs q on q.id = r.retrigger_of
      left join {schema}.pauses w on w.run_seq = q.seq and w.kind = 'children' and w.name = p_name
      where r.seq = p_seq and r.origin_id <> r.id;
    exit when not found;
    if o.added is not null then
      pauses := pauses || o.seq;
      added := added || o.added;
      exit when o.added = o.total;
    end if;
    p_seq := o.run_seq;
  end loop;
end $$;

-- The child of a pause with this number, if it has the same job and input, and its result is not lost. A deleted one has
-- no id.
create or replace function fn.old_child(p_pause bigint, p_no int, p_names text[], p_payload text, out run_seq bigint,
  out id text, out status text, out parent_seq bigint, out completed_at bigint, out result text, out payload text)
language sql stable as $$
  select m.run_seq, q.id, coalesce(q.status, m.result::jsonb ->> 'status'), q.parent_seq, q.completed_at, m.result,
    m.payload
  from {schema}.children m left join {schema}.runs q on q.seq = m.run_seq
    left join {schema}.inputs i on i.run_seq = q.seq
  where m.pause_seq = p_pause and m.no = p_no
    and fn.job_name_of(coalesce(q.job, m.result::jsonb ->> 'job')) = any(p_names)
    and case when q.seq is null then m.payload else i.payload end is not distinct from p_payload
$$;

-- Which of the requested children a pause has: those that this call, or the same call before, has created.
create or replace function fn.find_created(p_pause bigint, p_children jsonb) returns jsonb language plpgsql stable as $$
begin
  return (select coalesce(jsonb_agg(jsonb_build_object('id', r.id, 'job', r.job, 'labels', r.labels, 'start_at', r.start_at,
      'retry_of', (select jsonb_build_object('id', o.id, 'job', o.job, 'labels', o.labels)
        from {schema}.runs o where o.id = r.retrigger_of)) order by t.no), '[]')
  from jsonb_array_elements(p_children -> 'runs') with ordinality t (x, no)
    cross join lateral (select q.run_seq from {schema}.children q
      where q.pause_seq = p_pause and q.no = (p_children ->> 'from')::int + t.no - 1 offset 0) m
    cross join lateral (select q.* from {schema}.runs q where q.seq = m.run_seq offset 0) r
  where r.id = t.x ->> 'id');
end $$;

-- Cancels children of runs that have ended, the oldest ones of the first parents. Parents without further children are
-- forgotten.
create or replace function fn.cancel_orphans(p_limit int, p_now bigint) returns jsonb language plpgsql as $$
declare v_parent bigint; v_found bigint[]; v_all bigint[] := '{}'; v_room int; v_cancelled jsonb := '[]'; v_seq bigint;
begin
  for v_parent in select o.parent_seq from {schema}.orphans o order by o.parent_seq limit p_limit loop
    v_room := p_limit - cardinality(v_all);
    exit when v_room = 0;
    v_found := array(select r.seq from {schema}.runs r where r.parent_seq = v_parent and r.completed_at is null
      order by r.seq limit v_room + 1);
    v_all := v_all || v_found[1 : v_room];
    if cardinality(v_found) <= v_room then delete from {schema}.orphans where parent_seq = v_parent; end if;
  end loop;
  for v_seq in select s from unnest(v_all) s order by s loop
    v_cancelled := v_cancelled || fn.cancel_orphan(v_seq, p_now);
  end loop;
  return v_cancelled;
end $$;

create or replace function fn.cancel_orphan(p_seq bigint, p_now bigint) returns jsonb language plpgsql as $$
declare r {schema}.runs;
begin
  select q.* into r from {schema}.runs q where q.seq = p_seq for no key update;
  perform fn.cancel_run(r, null, p_now);
  return jsonb_build_object('id', r.id, 'job', r.job, 'labels', r.labels);
end $$;

-- How the children of a pause ended, from a number on: NULL for one that has not, or whose result is lost. See
-- Store.readChildren().
create or replace function fn.read_children(p jsonb, p_now bigint) returns jsonb language plpgsql stable ${ENTRY} as $$
declare v_max bigint := coalesce((p ->> 'maxLength')::bigint, ${NO_LIMIT}); w record;
begin
  select q.seq, q.total into w from {schema}.pauses q where q.id = p ->> 'pauseId';
  if w.total is null then return null; end if;
  return ${
  part(
    "fn.child_json(x.m)",
    `select m.no, m, ${RESULT_LENGTH} + coalesce(octet_length(m.result), octet_length(r.output), 0) as size
      from {schema}.children m
      left join lateral (select q.output from {schema}.runs q where q.seq = m.run_seq offset 0) r on true
      where m.pause_seq = w.seq and m.no >= (p ->> 'from')::int order by m.no limit ${SLICE}`,
  )
} || jsonb_build_object('total', w.total);
end $$;

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

-- Why there is no retry from the failure: a later run with the same steps is cleaned up after, or it would retry a child,
-- or a child of one, which is still to be cleaned up after: see orphanMessage(). NULL: there can be one.
create or replace function fn.not_clean(p_seq bigint) returns text language sql stable as $$
  with recursive retried (seq, is_child) as (
    select p_seq, false
    union select x.* from retried cross join lateral (
      select m.run_seq, true from {schema}.pauses w join {schema}.children m on m.pause_seq = w.seq
        join {schema}.runs c on c.seq = m.run_seq and c.status <> 'completed'
        where w.run_seq = retried.seq and w.kind = 'children'
      union all select o.seq, false from {schema}.runs r join {schema}.runs o on o.id = r.retrigger_of
        where r.seq = retried.seq and r.origin_id <> r.id) x)
  select coalesce(fn.cleaning_message(e.end_of, e.id, e.status),
      'Child run "' || r.id || '" is about to be cancelled and cleaned up: its parent has ended')
    from retried join {schema}.runs r on r.seq = retried.seq
    left join lateral (select q.* from {schema}.runs q where q.completed_at is null and q.end_of = any(array(select r.id
      union all select n.id from {schema}.runs n where n.origin_id = coalesce(r.origin_id, r.id) and n.seq > r.seq))) e on true
    where e.seq is not null or (is_child and r.on_end is not null and r.completed_at is null) order by r.seq limit 1
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
  if p_from = 'failure' then v_reason := fn.not_clean(r.seq); end if;
  if v_reason is not null then return v_reason; end if;
  if r.end_of is null then return null; end if;
  perform 1 from {schema}.runs q where q.id = r.end_of and q.retriggered_as is null
    and not exists (select from {schema}.runs n where n.origin_id = q.origin_id and n.seq > q.seq);
  if found then return null; end if;
  return 'Cannot retrigger run "' || r.id || '": run "' || r.end_of || '", after which it cleaned up, was retried or deleted';
end $$;

-- The steps of a run that its end runs have undone, with the first end run that did. See undoneSteps() and undoName().
create or replace function fn.undone_steps(r {schema}.runs) returns jsonb language plpgsql stable as $$
begin
  if r.on_end is null then return '{}'; end if;
  return (
    with undoing as (select distinct on (u.name) u.name, u.id from (
          select s.name, e.id, e.seq from {schema}.runs e cross join lateral (
            select q.name from {schema}.steps q where q.run_seq = e.seq and q.status = 'completed' and q.name like 'undo %') s
          where e.end_of = r.id
          union all select t.name, d ->> 'id', (d ->> 'seq')::bigint
            from jsonb_array_elements(coalesce(r.on_end::jsonb -> 'deleted', '[]')) d
            cross join jsonb_array_elements_text(d -> 'undoing') t (name)) u
        order by u.name, u.seq),
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
