import { HEAD_START } from "../../../rules.ts";
import { underLease } from "../basics.ts";

/** What a run records: steps, pauses and their ends, and the reports of its executions. */
export const RECORDS = `
-- The reports that no earlier write under the lease has stored: their facts, the latest progress among them, and the
-- number of the last one. A report is {no, fact, progress}.
create or replace function fn.new_reports(p jsonb, p_known bigint, out facts text[], out progress text, out last_no bigint)
language plpgsql stable as $$
begin
  facts := '{}';
  last_no := p_known;
  if p is null or jsonb_array_length(p) = 0 then return; end if;
  select coalesce(array_agg(x ->> 'fact' order by t.no), '{}'), greatest(p_known, max((x ->> 'no')::bigint)),
    (array_agg(x ->> 'progress' order by t.no desc) filter (where x ->> 'progress' is not null))[1]
    into facts, last_no, progress
    from jsonb_array_elements(p) with ordinality t (x, no) where (x ->> 'no')::bigint > p_known;
  last_no := coalesce(last_no, p_known);
end $$;

-- Increments the record counter of a run: a replay delivers results in this order.
create or replace function fn.next_recorded_no(p_seq bigint) returns int language plpgsql as $$
declare r record;
begin
  update {schema}.runs set recorded = recorded + 1 where seq = p_seq returning recorded, is_held into r;
  -- It has recorded something: which prints have tried it is forgotten.
  if r.is_held then update {schema}.holds set prints = '[]' where run_seq = p_seq and since is not null; end if;
  return r.recorded;
end $$;

-- Commits the timeouts of a run's pauses whose deadline has passed; every reader of the pauses calls it first. Returns
-- whether the run waited for one of them when it last parked.
create or replace function fn.commit_deadlines(p_seq bigint, p_now bigint) returns boolean language plpgsql as $$
declare r record; v_awaited boolean := false; v_over boolean;
begin
  for r in select p.seq, p.awaited, p.deadline_at, p.receive from {schema}.pauses p
      where p.run_seq = p_seq and p.status = 'pending' and p.deadline_at <= p_now order by p.deadline_at, p.seq loop
    update {schema}.pauses set status = 'resolved', outcome = 'timeout', resolved_at = deadline_at,
      recorded_no = fn.next_recorded_no(p_seq) where seq = r.seq and status = 'pending';
    continue when not found; -- an earlier one has closed the inbox
    v_awaited := v_awaited or r.awaited;
    if r.receive::jsonb ->> 'close' is not null then
      v_over := fn.close_inbox(p_seq, r.seq, r.deadline_at);
      v_awaited := v_awaited or v_over;
    end if;
  end loop;
  return v_awaited;
end $$;

-- Makes a waiting run due, if it is not so already. A run that kept its key is the first of its queue.
create or replace function fn.wake(p_seq bigint, p_now bigint) returns void language plpgsql as $$
declare r record;
begin
  update {schema}.runs set timer_at = null, updated_at = p_now
    where seq = p_seq and status = 'waiting' and queue_state is null returning id, concurrency_key into r;
  if not found then return; end if;
  if r.concurrency_key is not null then
    perform 1 from {schema}.holders h where h.concurrency_key = r.concurrency_key and h.run_id = r.id;
    if found then update {schema}.runs set position = position - ${HEAD_START} where seq = p_seq; end if;
  end if;
  perform fn.enter_queue(p_seq, p_now);
end $$;

-- Resolves a pause whose children have all ended, and makes its run due if it waits for that.
create or replace function fn.resolve_children(p_seq bigint, p_pause bigint, p_now bigint) returns void
language plpgsql as $$
declare v_over boolean; v_awaited boolean;
begin
  v_over := fn.commit_deadlines(p_seq, p_now);
  update {schema}.pauses set status = 'resolved', outcome = 'children', resolved_at = p_now,
    recorded_no = fn.next_recorded_no(p_seq) where seq = p_pause returning awaited into v_awaited;
  -- The last change of a run that is due already says since when it is.
  update {schema}.runs set updated_at = p_now where seq = p_seq and queue_state is null;
  if v_over or v_awaited then perform fn.wake(p_seq, p_now); end if;
end $$;

-- Ends the pauses of a run that ends: those whose deadline has passed by timeout, the others with p_status. The next
-- claims cancel the children of these. If the run is a child, its end is counted, and the pause of its parent is resolved
-- if it was the last child. It is called once for each run that ends, after its row was written.
create or replace function fn.close_pauses(r {schema}.runs, p_status text, p_now bigint) returns void
language plpgsql as $$
declare v_unfinished int;
begin
  if r.has_pauses then
    perform fn.commit_deadlines(r.seq, p_now);
    insert into {schema}.orphans (parent_seq) select p.run_seq from {schema}.pauses p
      where p.run_seq = r.seq and p.kind = 'children' and p.status = 'pending' limit 1 on conflict do nothing;
    update {schema}.pauses set status = p_status where run_seq = r.seq and status = 'pending' and kind <> 'patch';
  end if;
  if r.parent_seq is null then return; end if;
  update {schema}.pauses set unfinished = unfinished - 1
    where seq = r.parent_pause and run_seq = r.parent_seq and status = 'pending' returning unfinished into v_unfinished;
  if found and v_unfinished = 0 then perform fn.resolve_children(r.parent_seq, r.parent_pause, p_now); end if;
end $$;

-- Records how an attempt at a step ended. See Store.saveStep().
create or replace function fn.save_step(p jsonb, p_now bigint) returns jsonb language plpgsql as $$
declare
  r record; n record; v_no int; v_retry_at bigint; v_status text := p ->> 'status';
  v_started_at bigint := p_now - (p ->> 'agoMs')::bigint; v_whole boolean; v_fact text; v_chunks jsonb;
begin
  select q.seq, q.last_report_no into r from {schema}.runs q where q.id = p ->> 'runId'
    and ${underLease("q", "p")} for no key update;
  if not found then return '{"refused": "lease_lost"}'; end if;
  if p -> 'chunks' is not null then
    v_chunks := fn.new_chunks(r.seq, p -> 'chunks');
    if v_chunks is null then return '{"refused": "lease_lost"}'; end if;
  end if;
  n := fn.new_reports(p -> 'reports', r.last_report_no);
  if v_status = 'retrying' then v_retry_at := p_now + ceil((p ->> 'delayMs')::numeric)::bigint; end if;
  insert into {schema}.steps as s (run_seq, name, position, status, output, failure, attempts, retry_at, recorded_no,
      started_at, completed_at)
    select r.seq, p ->> 'name', (p ->> 'index')::int, v_status, p ->> 'output', p ->> 'failure',
      (p ->> 'attempts')::int, v_retry_at, q.recorded + 1, v_started_at, case when v_status = 'retrying' then null else p_now end
    from {schema}.runs q where q.seq = r.seq
    -- Only an earlier attempt is replaced: a step that has ended stays, and a repeated call records nothing.
    on conflict (run_seq, name) do update set status = excluded.status, output = excluded.output,
      failure = excluded.failure, attempts = excluded.attempts, retry_at = excluded.retry_at,
      recorded_no = excluded.recorded_no, completed_at = excluded.completed_at
    where s.status = 'retrying' and excluded.attempts > s.attempts
    returning recorded_no into v_no;
  if v_no is null then
    update {schema}.runs set abandonments = 0, updated_at = p_now, progress = coalesce(n.progress, progress),
      last_report_no = n.last_no where seq = r.seq;
    perform fn.note_all(r.seq, n.facts, p_now);
    return (select jsonb_build_object('recordedNo', s.recorded_no, 'retryAt', s.retry_at, 'now', p_now, 'repeated', true)
      from {schema}.steps s where s.run_seq = r.seq and s.name = p ->> 'name');
  end if;
  if v_chunks is not null then perform fn.insert_chunks(r.seq, (p ->> 'generation')::int, v_chunks, p_now); end if;
  if (p ->> 'attempts')::int > 1 or v_retry_at is not null then
    insert into {schema}.attempts (run_seq, step_name, attempt, started_at, ended_at, retry_at, failure)
      values (r.seq, p ->> 'name', (p ->> 'attempts')::int, v_started_at, p_now, v_retry_at, p ->> 'failure')
      on conflict do nothing;
  end if;
  update {schema}.runs set recorded = v_no, abandonments = 0, updated_at = p_now,
    progress = coalesce(n.progress, progress), last_report_no = n.last_no where seq = r.seq;
  -- One fact states both the start and the end, if nothing else was reported between them.
  v_whole := (p ->> 'startsLast')::boolean and cardinality(n.facts) > 0;
  if v_whole then n.facts := trim_array(n.facts, 1); end if;
  perform fn.note_all(r.seq, n.facts, p_now);
  v_fact := to_json(p ->> 'name')::text || ',' || (p ->> 'index') || ',' || (p ->> 'attempts') || ','
    || case when v_whole then v_started_at::text else 'null' end || ',';
  if v_status = 'completed' then v_fact := '"step_completed",' || v_fact || (p ->> 'agoMs') || ']';
  else
    v_fact := '"step_failed",' || v_fact || coalesce(to_json(p ->> 'message')::text, 'null') || ','
      || coalesce(v_retry_at::text, 'null') || ']';
  end if;
  perform fn.note(r.seq, v_fact, p_now);
  return jsonb_build_object('recordedNo', v_no, 'retryAt', v_retry_at, 'now', p_now);
end $$;
`;
