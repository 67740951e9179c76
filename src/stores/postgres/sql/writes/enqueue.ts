import { POSITIONS_PER_PRIORITY } from "../../../../model/flow.ts";
import { ownPosition } from "../flow/queues.ts";

/** How runs are added. A request is what `toNewRunParameter()` makes of it. */
export const ENQUEUE = `
-- Adds runs, or finds the existing ones that the requests lead to. See Store.enqueue().
create or replace function fn.enqueue(p jsonb, p_now bigint) returns jsonb language plpgsql as $$
declare n jsonb; v_answers jsonb[] := '{}'; v_places bigint[]; v_at int := 0; v_reason text;
begin
  for n in select x from jsonb_array_elements(p -> 'runs') x loop
    perform 1 from {schema}.deleted d where d.id = n ->> 'id';
    if found then
      return jsonb_build_object('refused', 'conflict', 'message', 'Cannot add run "' || (n ->> 'id') || '" again: it was deleted');
    end if;
    -- When the call is repeated, the old run may have been deleted.
    if n ->> 'retriggerOf' is not null then
      perform 1 from {schema}.runs r where r.id in (n ->> 'retriggerOf', n ->> 'id');
      if not found then
        return jsonb_build_object('refused', 'not_found', 'message', 'There is no run "' || (n ->> 'retriggerOf') || '"');
      end if;
      perform 1 from {schema}.runs r where r.id = n ->> 'id';
      if not found then v_reason := fn.not_retriable(n ->> 'retriggerOf', n ->> 'retriggerFrom'); end if;
      if v_reason is not null then return jsonb_build_object('refused', 'conflict', 'message', v_reason); end if;
    end if;
  end loop;
  v_places := fn.draw_places(jsonb_array_length(p -> 'runs'));
  for n in select x from jsonb_array_elements(p -> 'runs') x loop
    v_at := v_at + 1;
    v_answers[v_at] := fn.enqueue_run(n, v_places[v_at], p_now);
  end loop;
  return to_jsonb(v_answers);
end $$;

-- Draws positions of the journal for facts that come before all others of a call.
create or replace function fn.draw_places(p_count int) returns bigint[] language plpgsql volatile as $$
begin
  perform fn.lock_journal();
  return (select coalesce(array_agg(nextval('{schema}.journal_position_seq'::regclass) order by n), '{}')
  from generate_series(1, p_count) n);
end $$;

create or replace function fn.enqueue_run(n jsonb, p_place bigint, p_now bigint) returns jsonb language plpgsql as $$
declare r {schema}.runs; v_how text; v_queues text[]; v_searches boolean;
begin
  select q.* into r from {schema}.runs q where q.id = n ->> 'id';
  if found then v_how := 'created'; end if;
  if v_how is null and n ->> 'retriggerOf' is not null then
    r := fn.open_retry(n ->> 'retriggerOf');
    if r.seq is not null then v_how := 'idempotent'; end if;
  end if;
  v_searches := n ->> 'idempotencyKey' is not null or n ->> 'coalesce' is not null;
  if v_how is null and v_searches then
    select array_agg(q order by t.no, u.no) into v_queues
      from jsonb_array_elements_text(n -> 'names') with ordinality t (name, no),
        unnest(fn.queues_of(t.name)) with ordinality u (q, no);
    v_queues := v_queues || (n ->> 'queue');
    if n ->> 'idempotencyKey' is not null then
      for r in select q.* from unnest(v_queues) with ordinality u (queue, no) cross join lateral (
          select o.* from {schema}.runs o where o.job = u.queue and o.idempotency_key = n ->> 'idempotencyKey' offset 0) q
          order by u.no loop
        r := fn.counted_run(r, n ->> 'until', p_now);
        if r.seq is not null then
          v_how := 'idempotent';
          exit;
        end if;
      end loop;
    end if;
    if v_how is null and n ->> 'coalesce' is not null and n ->> 'concurrencyKey' is not null then
      r := fn.find_coalescable(n, v_queues, p_now);
      if r.seq is not null then
        v_how := 'coalesced';
        if n ->> 'joinOnly' is null or n ->> 'joinOnly' = r.id then
          perform fn.note(r.seq, '"coalesced",' || to_json(r.status)::text || ',' || (n ->> 'skipped') || ']', p_now);
        end if;
      end if;
    end if;
  end if;
  if v_how is null then
    -- The runs that have the key do not count. They still show it.
    if n ->> 'until' is not null then
      update {schema}.runs set former_key = idempotency_key, idempotency_key = null
        where job = any(v_queues) and idempotency_key = n ->> 'idempotencyKey';
    end if;
    r := fn.insert_run(n, p_place, null, null, null, 0, p_now);
    v_how := 'created';
  end if;
  return jsonb_build_object('disposition', v_how, 'run', fn.run_json(r));
end $$;

-- A retry of a run that has not ended: its newest one, or one with the same steps. NULL: there is none.
create or replace function fn.open_retry(p_id text) returns {schema}.runs language plpgsql stable as $$
declare r {schema}.runs; v_origin text collate "C";
begin
  select q.* into r from {schema}.runs q where q.id = p_id;
  v_origin := coalesce(r.origin_id, r.id);
  r := fn.newest_retry(r);
  if r.completed_at is null and r.id <> p_id then return r; end if;
  select q.* into r from {schema}.runs q where q.origin_id = v_origin and q.completed_at is null and q.id <> p_id limit 1;
  return r;
end $$;

-- The newest retry of a run, or of its newest retry, and so on; the run itself without one.
create or replace function fn.newest_retry(r {schema}.runs) returns {schema}.runs language plpgsql stable as $$
declare q {schema}.runs;
begin
  loop
    select o.* into q from {schema}.runs o where o.id = fn.retry_of(r);
    exit when not found;
    r := q;
  end loop;
  return r;
end $$;

-- The run that has the idempotency key of a request, if it counts, or its newest retry. p_until NULL: any counts.
create or replace function fn.counted_run(r {schema}.runs, p_until text, p_now bigint) returns {schema}.runs
language plpgsql stable as $$
declare v_completed boolean := r.status = 'completed' or r.completed_as is not null;
begin
  if p_until is null or (p_until ~ '^[0-9]' and p_now - r.created_at < p_until::numeric) then return r; end if;
  if p_until ~ '^[0-9]' then return null; end if;
  r := fn.newest_retry(r);
  if p_until = 'failed' and (v_completed or r.status not in ('failed', 'cancelled')) then return r; end if;
  -- A run that accepts no more messages does not count, either.
  return case when r.completed_at is null and not fn.has_closed_inbox(r.seq) then r end;
end $$;

-- The run that a request joins. A pending one whose start has passed counts, although no claim has noticed, and so does
-- one that waits to be claimed alone.
create or replace function fn.find_coalescable(n jsonb, p_queues text[], p_now bigint) returns {schema}.runs
language plpgsql stable as $$
declare r {schema}.runs; v_key text := n ->> 'concurrencyKey';
begin
  select q.* into r from unnest(p_queues) u cross join lateral (
    select o.* from {schema}.runs o where o.concurrency_key = v_key and o.job = u and o.status = 'pending'
      and not o.is_held and (o.queue_state is not null or o.due_at <= p_now or o.queue = fn.alone_queue(o.job)) order by o.seq limit 1) q
    order by q.seq limit 1;
  if found or n ->> 'coalesce' <> 'active' then return r; end if;
  select q.* into r from {schema}.runs q
    where q.id = any(array(select h.run_id from {schema}.holders h where h.concurrency_key = v_key))
      and q.job = any(p_queues) and q.lease_expires_at > p_now order by q.seq limit 1;
  if found then return r; end if;
  select q.* into r from unnest(p_queues) u cross join lateral (
    select o.* from {schema}.runs o where o.concurrency_key = v_key and o.job = u and o.status = 'waiting'
    order by o.seq limit 1) q order by q.seq limit 1;
  return r;
end $$;

-- Adds a run, perhaps as a child, with its fact at a position of the journal.
create or replace function fn.insert_run(n jsonb, p_place bigint, p_parent bigint, p_parent_id text, p_pause bigint,
  p_depth int, p_now bigint) returns {schema}.runs language plpgsql as $$
declare
  r {schema}.runs; v_old {schema}.runs; v_fact text; f jsonb := nullif(n -> 'flow', 'null'); v_changes boolean := false;
begin
  r.seq := nextval('{schema}.runs_seq_seq'::regclass);
  r.id := n ->> 'id'; r.job := n ->> 'queue'; r.queue := r.job; r.status := 'pending'; r.labels := n ->> 'labels';
  r.idempotency_key := n ->> 'idempotencyKey'; r.concurrency_key := n ->> 'concurrencyKey';
  r.retrigger_of := n ->> 'retriggerOf';
  r.schedule_name := n ->> 'scheduleName'; r.slot_at := (n ->> 'slotAt')::bigint; r.slot := n ->> 'slot';
  if r.schedule_name is not null and r.retrigger_of is not null then
    select o.slot into r.slot from {schema}.runs o where o.id = r.retrigger_of;
  end if;
  r.trace := n ->> 'trace';
  r.on_end := n ->> 'onEnd'; r.end_of := n ->> 'endOf';
  if r.retrigger_of is not null then
    -- A retry of an end run cleans up after the same run.
    select o.end_of into r.end_of from {schema}.runs o where o.id = r.retrigger_of;
  end if;
  r.parent_seq := p_parent; r.parent_id := p_parent_id; r.parent_pause := p_pause; r.depth := p_depth;
  r.created_at := p_now; r.updated_at := p_now; r.position := r.seq; r.priority := 0; r.key_concurrency := 1;
  r.lease_generation := 0; r.last_report_no := 0; r.recorded := 0; r.parked_no := 0; r.has_pauses := false; r.is_held := false;
  r.interruptions := 0; r.abandonments := 0; r.abandonments_alone := 0;
  if f is not null then
    r.priority := (f ->> 'priority')::int; r.position := r.seq - ${POSITIONS_PER_PRIORITY} * r.priority::bigint;
    r.fairness_key := f ->> 'fairnessKey'; r.key_concurrency := (f ->> 'keyConcurrency')::bigint;
    r.key_rate_limit := (f ->> 'keyRateLimit')::bigint; r.key_rate_period := (f ->> 'keyRatePeriod')::bigint;
    r.start_at := ceil(coalesce((f ->> 'startAt')::numeric, p_now + (f ->> 'startAfterMs')::numeric))::bigint;
    if r.start_at > p_now then r.due_at := r.start_at; end if;
    r.start_within := (f ->> 'startWithin')::bigint; r.finish_within := (f ->> 'finishWithin')::bigint;
    r.start_by := greatest(coalesce(r.start_at, p_now), p_now) + r.start_within;
    r.deadline_at := r.start_by;
  end if;
  if r.end_of is not null then r.position := ${ownPosition("r")}; end if;
  if r.due_at is null then
    if r.concurrency_key is null then r.queue_state := 'R';
    elsif r.end_of is not null then
      -- It goes before others.
      v_changes := true;
      r.queue_state := 'B';
    else
      r.queue_state := fn.state_of_new_run(r.concurrency_key, r.queue, r.position, r.key_concurrency,
        r.key_rate_limit, r.key_rate_period, p_now);
      v_changes := r.queue_state is null;
      r.queue_state := coalesce(r.queue_state, 'B');
    end if;
  end if;
  insert into {schema}.runs overriding system value values (r.*);
  insert into {schema}.inputs (run_seq, payload, input, schema_print)
    values (r.seq, n ->> 'payload', n ->> 'input', n ->> 'schemaPrint');
  if r.labels <> '{}' then
    insert into {schema}.labels (key, value, run_seq) select l.key, l.value, r.seq from jsonb_each_text(n -> 'labelMap') l;
  end if;
  perform fn.move_run(r.job, null, 'pending');
  v_fact := '[' || r.seq || ',"triggered"';
  if r.schedule_name is not null or strpos(r.trace, chr(10)) > 0 then
    v_fact := v_fact || ',' || coalesce(r.start_at::text, 'null') || ',' || coalesce(to_json(r.parent_id)::text, 'null')
      || ',' || coalesce(n ->> 'schedule', 'null') || fn.actor_of_fact(r.trace);
  elsif r.parent_id is not null then
    v_fact := v_fact || ',' || coalesce(r.start_at::text, 'null') || ',' || to_json(r.parent_id)::text;
  elsif r.start_at is not null then v_fact := v_fact || ',' || r.start_at;
  end if;
  insert into {schema}.journal (position, at, facts) overriding system value
    values (p_place, p_now, v_fact || ']');
  if r.queue_state = 'R' then perform fn.add_ready(r.queue, r.fairness_key, r.position); end if;
  if r.retrigger_of is not null then
    -- A retry from the failure begins with the history of the run.
    update {schema}.runs set retriggered_as = r.id where id = r.retrigger_of returning * into v_old;
    perform fn.note(v_old.seq, '"retried",' || to_json(r.id)::text || fn.actor_of_fact(r.trace) || ']', p_now);
    if n ->> 'retriggerFrom' = 'failure' then perform fn.copy_history(r.seq, v_old, p_now); end if;
    if v_old.has_pauses then perform fn.copy_messages(r.seq, v_old.seq); end if;
    select q.* into r from {schema}.runs q where q.seq = r.seq;
  end if;
  if v_changes then perform fn.update_queue(r.concurrency_key, p_now); end if;
  return r;
end $$;

-- Copies completed steps, finished sleeps, patches and resolved waits, with their record numbers.
create or replace function fn.copy_history(p_seq bigint, o {schema}.runs, p_now bigint) returns void
language plpgsql as $$
declare w {schema}.pauses; v_pause bigint; v_copied boolean; v_has_pauses boolean := false; v_left jsonb := '[]';
  r {schema}.runs; v_undone jsonb := '{}';
begin
  for r in select q.* from {schema}.runs q where q.seq = o.seq
      or (q.origin_id = coalesce(o.origin_id, o.id) and q.seq > o.seq) order by q.seq loop
    v_undone := v_undone || fn.undone_steps(r);
  end loop;
  insert into {schema}.steps (run_seq, name, position, status, output, attempts, recorded_no, started_at, completed_at)
    select p_seq, s.name, s.position, s.status, s.output, s.attempts, s.recorded_no, s.started_at, s.completed_at
    from {schema}.steps s where s.run_seq = o.seq and s.status = 'completed' and not v_undone ? s.name order by s.seq;
  perform fn.copy_chunks(p_seq, o.seq);
  for w in select p.* from {schema}.pauses p where p.run_seq = o.seq and o.has_pauses order by p.seq loop
    -- If the last record is the end of a wait, and the run has begun and not parked since, that wait is not copied: the new
    -- run creates it again.
    v_copied := case when w.kind = 'patch' then true when w.status <> 'resolved' then false
      when w.kind = 'children' then not exists (select 1 from {schema}.children m where m.pause_seq = w.seq
        and coalesce(fn.child_json(m) ->> 'status', '') <> 'completed') -- all have, and no result is lost
      else w.kind in ('sleep', 'receive') or w.recorded_no < o.recorded or w.recorded_no <= o.parked_no
        or o.started_at is null end;
    if not v_copied then
      v_left := v_left || jsonb_build_object('kind', w.kind, 'name', w.name);
      continue;
    end if;
    v_has_pauses := true;
    insert into {schema}.pauses (id, run_seq, kind, name, metadata, status, awaited, outcome, payload, signal_id,
        prepared_no, recorded_no, created_at, deadline_at, suspended_at, resolved_at, first_resumed_at, total, added,
        unfinished, payload_schema, trace, receive)
      values (fn.new_id(p_now), p_seq, w.kind, w.name, w.metadata, w.status, false, w.outcome, w.payload, w.signal_id,
        w.prepared_no, w.recorded_no, w.created_at, w.deadline_at, w.suspended_at, w.resolved_at, w.first_resumed_at,
        w.total, w.added, w.unfinished, w.payload_schema, w.trace, w.receive) returning seq into v_pause;
    insert into {schema}.children (pause_seq, no, run_seq, result, payload)
      select v_pause, m.no, m.run_seq, m.result, m.payload from {schema}.children m where m.pause_seq = w.seq;
  end loop;
  update {schema}.runs set recorded = o.recorded, has_pauses = has_pauses or v_has_pauses,
    origin_id = coalesce(o.origin_id, o.id) where seq = p_seq;
  -- What was begun and not completed, in this run and in those before it.
  insert into {schema}.copies (run_seq, copied_up_to, unfinished, undone)
    select p_seq, o.recorded, coalesce(jsonb_agg(distinct u.record), '[]')::text, (
        select nullif(coalesce((select c.undone::jsonb from {schema}.copies c where c.run_seq = o.seq), '{}') || v_undone, '{}')::text)
      from (
      select x as record from {schema}.copies c, jsonb_array_elements(c.unfinished::jsonb) x where c.run_seq = o.seq
      union all select jsonb_build_object('kind', 'step', 'name', s.name)
        from {schema}.steps s where s.run_seq = o.seq and (s.status <> 'completed' or v_undone ? s.name)
      union all select x from jsonb_array_elements(v_left) x) u;
end $$;

-- A UUIDv7 (RFC 9562, section 5.7).
create or replace function fn.new_id(p_now bigint) returns text language sql volatile as $$
  select substr(t, 1, 8) || '-' || substr(t, 9, 4) || '-7' || substr(gen_random_uuid()::text, 16)
  from lpad(to_hex(greatest(p_now, 0)), 12, '0') t
$$;
`;
