import { hadLease, underLease } from "../basics.ts";

/** How runs pause and are signalled. */
export const PAUSES = `
-- Prepares pauses and, if requested and none of them is over, parks the run. See Store.pause().
create or replace function fn.pause(p jsonb, p_now bigint) returns jsonb language plpgsql as $$
declare
  r {schema}.runs; n record; x jsonb; w {schema}.pauses; v_cancelled jsonb := '[]'; v_answer jsonb; v_places bigint[];
  v_retry_at bigint := (p ->> 'retryAt')::bigint; v_timer bigint; v_over boolean; v_receives boolean;
  v_seqs bigint[] := '{}';
begin
  select q.* into r from {schema}.runs q where q.id = p ->> 'runId' and ${hadLease("q", "p")} for no key update;
  if (${underLease("r", "p")}) is not true then
    -- The answer for a call that is repeated after it has parked the run.
    if r.status is distinct from 'waiting' or not (p ->> 'park')::boolean then return '{"refused": "lease_lost"}'; end if;
    v_answer := fn.asked_pauses(r.seq, p -> 'pauses', p_now);
    if jsonb_array_length(v_answer -> 'pauses') < jsonb_array_length(p -> 'pauses') then
      return '{"refused": "lease_lost"}';
    end if;
    return v_answer || '{"parked": true, "cancelled": []}';
  end if;
  if fn.lacks_children(r.seq, p -> 'pauses') then return '{"refused": "lease_lost"}'; end if;
  select coalesce(sum(jsonb_array_length(e -> 'children' -> 'runs')), 0) into v_timer
    from jsonb_array_elements(p -> 'pauses') e where e ->> 'children' is not null;
  if v_timer > 0 then v_places := fn.draw_places(v_timer::int); end if;
  n := fn.new_reports(p -> 'reports', r.last_report_no);
  update {schema}.runs set has_pauses = true, updated_at = p_now, progress = coalesce(n.progress, progress),
    last_report_no = n.last_no where seq = r.seq;
  r.has_pauses := true;
  perform fn.note_all(r.seq, n.facts, p_now);
  for x in select e from jsonb_array_elements(p -> 'pauses') e loop
    insert into {schema}.pauses (id, run_seq, kind, name, metadata, status, created_at, payload_schema, receive, deadline_at)
      values (x ->> 'id', r.seq, x ->> 'kind', x ->> 'name', x ->> 'metadata', 'pending', p_now, x ->> 'payloadSchema',
        (x -> 'receive')::text,
        ceil(coalesce((x -> 'deadline' ->> 'at')::numeric, p_now + (x -> 'deadline' ->> 'afterMs')::numeric))::bigint)
      on conflict do nothing;
    if found and (x ->> 'prepared')::boolean then
      update {schema}.pauses set prepared_no = fn.next_recorded_no(r.seq) where id = x ->> 'id';
    end if;
    if x ->> 'children' is not null then
      select q.* into w from {schema}.pauses q where q.run_seq = r.seq and q.kind = x ->> 'kind' and q.name = x ->> 'name';
      v_cancelled := v_cancelled || fn.add_children(r, w, x -> 'children', v_places, p_now);
      v_places := v_places[1 + jsonb_array_length(x -> 'children' -> 'runs'):];
    end if;
  end loop;
  -- What is there is taken before a deadline is looked at: a timeout of 0 means "what is there now".
  v_receives := fn.take_asked(r.seq, p -> 'pauses', p_now);
  perform fn.commit_deadlines(r.seq, p_now);
  if v_receives and fn.has_closed_inbox(r.seq) then perform fn.end_receives(r.seq, p_now); end if;
  v_answer := fn.asked_pauses(r.seq, p -> 'pauses', p_now) || jsonb_build_object('cancelled', v_cancelled);
  select coalesce(bool_or(e ->> 'outcome' is not null), false), min((e ->> 'deadline_at')::bigint),
    coalesce(array_agg((e ->> 'seq')::bigint) filter (where e ->> 'kind' <> 'patch'), '{}')
    into v_over, v_timer, v_seqs from jsonb_array_elements(v_answer -> 'pauses') e;
  if not (p ->> 'park')::boolean or v_over or coalesce(v_retry_at <= p_now, false) then
    return v_answer || '{"parked": false}';
  end if;
  r.timer_at := least(v_timer, v_retry_at); r.abandonments := 0;
  r.progress := coalesce(n.progress, r.progress); r.last_report_no := n.last_no;
  perform fn.leave_lease(r, case when v_retry_at is null then 'parked' else 'retrying' end, array(
    select '"waiting",' || a.rest || ']' from (
      select 0 as kind, e.no, case when e.x ->> 'kind' = 'wait' then to_json(e.x ->> 'id')::text else 'null' end || ','
          || to_json(e.x ->> 'name')::text || ',' || coalesce(e.x ->> 'deadline_at', 'null') as rest
        from jsonb_array_elements(v_answer -> 'pauses') with ordinality e (x, no) where e.x ->> 'kind' <> 'patch'
      union all
      select 1, row_number() over (order by s.position, s.seq),
          'null,' || to_json(s.name)::text || ',' || s.retry_at
        from {schema}.steps s where s.run_seq = r.seq and s.status = 'retrying') a
    order by a.kind, a.no), null, p_now);
  update {schema}.pauses q set awaited = q.seq = any(v_seqs),
    suspended_at = case when q.seq = any(v_seqs) then coalesce(q.suspended_at, p_now) else q.suspended_at end
    where q.run_seq = r.seq and (q.awaited or q.seq = any(v_seqs));
  return v_answer || '{"parked": true}';
end $$;

-- Whether a pause lacks children that were added before those of the request. See Store.pause().
create or replace function fn.lacks_children(p_seq bigint, p_asked jsonb) returns boolean language plpgsql stable as $$
begin
  return (select exists (select from jsonb_array_elements(p_asked) x
    left join lateral (select q.* from {schema}.pauses q
      where q.run_seq = p_seq and q.kind = x ->> 'kind' and q.name = x ->> 'name' offset 0) w on true
    where x ->> 'kind' = 'children'
      and coalesce(w.added < coalesce((x -> 'children' ->> 'from')::int, w.total), (x -> 'children' ->> 'from')::int is distinct from 0)));
end $$;

-- The pauses of a request as they are stored, and which of the requested children they have.
create or replace function fn.asked_pauses(p_seq bigint, p_asked jsonb, p_now bigint) returns jsonb
language plpgsql stable as $$
declare v_pauses jsonb; v_created jsonb := '[]'; a record;
begin
  select coalesce(jsonb_agg(fn.pause_json(w) order by t.no), '[]') into v_pauses
    from jsonb_array_elements(p_asked) with ordinality t (x, no)
    join {schema}.pauses w on w.run_seq = p_seq and w.kind = t.x ->> 'kind' and w.name = t.x ->> 'name';
  for a in select t.x -> 'children' as children, w.seq from jsonb_array_elements(p_asked) with ordinality t (x, no)
      join {schema}.pauses w on w.run_seq = p_seq and w.kind = t.x ->> 'kind' and w.name = t.x ->> 'name'
      where t.x ->> 'children' is not null order by t.no loop
    v_created := v_created || fn.find_created(a.seq, a.children);
  end loop;
  return jsonb_build_object('pauses', v_pauses, 'created', v_created, 'now', p_now);
end $$;

-- Ends a wait by a signal. See Store.signal().
create or replace function fn.signal(p jsonb, p_now bigint) returns jsonb language plpgsql as $$
declare w {schema}.pauses; r {schema}.runs; v_awaited boolean; v_answer jsonb;
begin
  select q.* into w from {schema}.pauses q where q.id = p ->> 'waitId' and q.kind = 'wait';
  if not found then return '{"state": "none"}'; end if;
  select q.* into r from {schema}.runs q where q.seq = w.run_seq for no key update;
  select q.* into w from {schema}.pauses q where q.seq = w.seq;
  v_answer := jsonb_build_object('run', jsonb_build_object('id', r.id, 'job', r.job, 'labels', r.labels));
  if w.outcome = 'timeout' then return '{"state": "expired"}'; end if;
  if w.status <> 'pending' then return v_answer || jsonb_build_object('state', 'over', 'wait', to_jsonb(w)); end if;
  -- Deadlines that passed before the signal are committed, even if one of them refuses the signal.
  v_awaited := fn.commit_deadlines(r.seq, p_now);
  if v_awaited or w.awaited then perform fn.wake(r.seq, p_now); end if;
  if w.deadline_at <= p_now then return '{"state": "expired"}'; end if;
  update {schema}.pauses set status = 'resolved', outcome = 'signal', payload = p ->> 'payload',
    signal_id = p ->> 'signalId', trace = p ->> 'trace', resolved_at = p_now, recorded_no = fn.next_recorded_no(r.seq)
    where seq = w.seq returning * into w;
  return v_answer || jsonb_build_object('state', 'accepted', 'wait', to_jsonb(w));
end $$;
`;
