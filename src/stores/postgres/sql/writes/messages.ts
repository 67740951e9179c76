import { MAX_MESSAGES } from "../../../../model/message.ts";

// A receive takes no further messages once it has so many bytes: one answer of the server can have 256 MiB at most.
const MAX_TAKEN_BYTES = 16_777_216;

/** How messages are sent, and received. */
export const MESSAGES = `
-- Sends a message to a run, or starts one. See Store.send().
create or replace function fn.send(p jsonb, p_now bigint) returns jsonb language plpgsql as $$
declare
  r {schema}.runs; m {schema}.messages; v_answer jsonb := '{"run": null}'; v_open boolean := false; v_started jsonb;
  v_start jsonb := case when p ->> 'start' is not null then jsonb_build_object('runs', jsonb_build_array(p -> 'start')) end;
begin
  r := fn.find_inbox(p);
  if r.seq is not null then
    v_answer := jsonb_build_object('run', jsonb_build_object('id', r.id, 'job', r.job, 'labels', r.labels,
      'status', r.status, 'retriggered_as', r.retriggered_as));
    select q.* into m from {schema}.messages q where q.run_seq = r.seq and q.id = p ->> 'id';
    -- Deadlines that passed before the message are committed, even if one of them closes the inbox.
    if m.seq is null and r.completed_at is null and r.has_pauses and fn.commit_deadlines(r.seq, p_now) then
      perform fn.wake(r.seq, p_now);
    end if;
    v_open := r.completed_at is null and not fn.has_closed_inbox(r.seq);
    if m.seq is not null then
      return v_answer || jsonb_build_object('state', 'known',
        'message', jsonb_build_object('name', m.name, 'payload', m.payload),
        'started', case when r.id = p -> 'start' ->> 'id' then fn.run_json(r) end);
    end if;
  end if;
  if p ? 'expect' and p ->> 'expect' is distinct from (case when v_open or v_start is null then r.id end) then
    return case when v_open or v_start is null then v_answer else '{"run": null}' end || '{"state": "changed"}';
  end if;
  if v_open then
    return v_answer || jsonb_build_object('state', case when fn.accept_message(r, p, p_now) then 'accepted' else 'full' end);
  end if;
  if v_start is null then
    return v_answer || jsonb_build_object('state', case when r.seq is null then 'none' else 'ended' end);
  end if;
  -- No run with the key counts.
  v_started := fn.enqueue(v_start, p_now);
  if v_started ? 'refused' then return v_started; end if;
  select q.* into r from {schema}.runs q where q.id = p -> 'start' ->> 'id';
  perform fn.accept_message(r, p, p_now);
  return jsonb_build_object('state', 'accepted', 'started', v_started -> 0 -> 'run', 'run',
    jsonb_build_object('id', r.id, 'job', r.job, 'labels', r.labels, 'status', r.status, 'retriggered_as', null));
end $$;

-- The run to which a message is sent: that of the id, or the newest retry of the one that has the key.
create or replace function fn.find_inbox(p jsonb) returns {schema}.runs language plpgsql as $$
declare r {schema}.runs;
begin
  if p ->> 'key' is null then
    select o.* into r from {schema}.runs o where o.id = p ->> 'runId' for no key update;
    return r;
  end if;
  for r in select o.* from jsonb_array_elements_text(p -> 'names') with ordinality t (name, no),
      unnest(fn.queues_of(t.name)) with ordinality u (queue, no) cross join lateral (
        select i.* from {schema}.runs i where i.job = u.queue and i.idempotency_key = p ->> 'key' offset 0) o
      order by t.no, u.no limit 1 loop
    return fn.newest_retry(r);
  end loop;
  return null;
end $$;

-- Adds a message to a run, unless it has too many: the first open receive that takes its name takes it.
create or replace function fn.accept_message(r {schema}.runs, p jsonb, p_now bigint) returns boolean language plpgsql as $$
declare w {schema}.pauses; v_no int;
begin
  select coalesce((select q.no from {schema}.messages q where q.run_seq = r.seq order by q.no desc limit 1), 0) + 1 into v_no;
  if v_no > ${MAX_MESSAGES} then return false; end if;
  insert into {schema}.messages (run_seq, no, id, name, payload, input, trace, accepted_at)
    values (r.seq, v_no, p ->> 'id', p ->> 'name', p ->> 'payload', p ->> 'input', p ->> 'trace', p_now);
  if not r.has_pauses then
    update {schema}.runs set has_pauses = true where seq = r.seq;
    return true; -- it has no receive
  end if;
  for w in select q.* from {schema}.pauses q where q.run_seq = r.seq and q.kind = 'receive' and q.status = 'pending'
      and p ->> 'name' = any(fn.texts(q.receive::jsonb -> 'names')) order by q.seq limit 1 loop
    if fn.take_messages(w, p_now) then perform fn.wake(r.seq, p_now); end if;
  end loop;
  return true;
end $$;

-- Gives the receives of a request the unread messages that they take, and ends those that found some. One that the run has
-- already gets what the code asks for now. Returns whether the request has receives.
create or replace function fn.take_asked(p_seq bigint, p_asked jsonb, p_now bigint) returns boolean language plpgsql as $$
declare x jsonb; w {schema}.pauses; v_has boolean := false;
begin
  for x in select e from jsonb_array_elements(p_asked) e where e ->> 'kind' = 'receive' loop
    v_has := true;
    update {schema}.pauses set receive = (x -> 'receive')::text where run_seq = p_seq and kind = 'receive'
      and name = x ->> 'name' and status = 'pending' returning * into w;
    if found then perform fn.take_messages(w, p_now); end if;
  end loop;
  return v_has;
end $$;

-- Gives an open receive the unread messages that it takes, oldest first, and ends it if there are any. Returns whether the
-- run waited for it, or for another one that has ended with it, when it last parked. No value is read for their lengths.
create or replace function fn.take_messages(w {schema}.pauses, p_now bigint) returns boolean language plpgsql as $$
declare
  x jsonb := w.receive::jsonb; v_names text[] := fn.texts(x -> 'names'); v_max int := (x ->> 'max')::int;
  v_seqs bigint[]; v_trace text; v_awaited boolean := false;
begin
  select array_agg(m.seq order by m.no), (array_agg(m.trace order by m.no))[1] into v_seqs, v_trace from (
    select q.seq, q.no, q.trace, sum(octet_length(coalesce(q.input, q.payload)))
        over (order by q.no rows between unbounded preceding and 1 preceding) as before
      from {schema}.messages q
      where q.run_seq = w.run_seq and q.pause_seq is null and q.name = any(v_names) order by q.no limit v_max) m
    where coalesce(m.before, 0) < ${MAX_TAKEN_BYTES};
  if v_seqs is null then return false; end if;
  update {schema}.messages set pause_seq = w.seq where seq = any(v_seqs);
  update {schema}.pauses set status = 'resolved', outcome = 'messages', trace = v_trace, resolved_at = p_now,
    recorded_no = fn.next_recorded_no(w.run_seq) where seq = w.seq;
  if x ->> 'close' = 'always'
      and not exists (select from {schema}.messages q where q.run_seq = w.run_seq and q.pause_seq is null) then
    v_awaited := fn.close_inbox(w.run_seq, w.seq, p_now);
  end if;
  return v_awaited or w.awaited;
end $$;

-- Whether a run has closed its inbox: it accepts no more messages.
create or replace function fn.has_closed_inbox(p_seq bigint) returns boolean language plpgsql stable as $$
begin
  return (select exists (select from {schema}.pauses q where q.run_seq = p_seq and q.receive = '"closed"'));
end $$;

-- Closes the inbox of a run by a receive that has ended, and ends its other open receives.
create or replace function fn.close_inbox(p_seq bigint, p_pause bigint, p_at bigint) returns boolean language plpgsql as $$
begin
  update {schema}.pauses set receive = '"closed"' where seq = p_pause;
  return fn.end_receives(p_seq, p_at);
end $$;

-- Ends the open receives of a run that accepts no more messages, by a timeout: nothing comes any more. Returns whether the
-- run waited for one of them when it last parked.
create or replace function fn.end_receives(p_seq bigint, p_at bigint) returns boolean language plpgsql as $$
declare w record; v_awaited boolean := false;
begin
  for w in select q.seq, q.awaited from {schema}.pauses q
      where q.run_seq = p_seq and q.kind = 'receive' and q.status = 'pending' order by q.seq loop
    update {schema}.pauses set status = 'resolved', outcome = 'timeout', resolved_at = p_at,
      recorded_no = fn.next_recorded_no(p_seq) where seq = w.seq;
    v_awaited := v_awaited or w.awaited;
  end loop;
  return v_awaited;
end $$;

-- Copies the messages of a run to its retry, in their order. Those that a copied receive took are taken, all others unread.
create or replace function fn.copy_messages(p_seq bigint, p_old bigint) returns void language plpgsql as $$
begin
  insert into {schema}.messages (run_seq, no, id, name, payload, input, trace, accepted_at, pause_seq)
    select p_seq, m.no, m.id, m.name, m.payload, m.input, m.trace, m.accepted_at,
      (select c.seq from {schema}.pauses o join {schema}.pauses c on c.run_seq = p_seq and c.kind = o.kind and c.name = o.name
        where o.seq = m.pause_seq)
    from {schema}.messages m where m.run_seq = p_old order by m.no;
  if found then update {schema}.runs set has_pauses = true where seq = p_seq; end if;
end $$;
`;
