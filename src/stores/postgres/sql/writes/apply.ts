import { ENTRY, underLease } from "../basics.ts";

// The part of the groups after which the journal is trimmed, if it is too long.
const TRIM_CHANCE = 0.02;
/** A group that needs more locks takes the lock of the schema alone: the server has room for a limited number of locks. */
export const MAX_LOCKS = 100;

/** The kinds of writes, each with the function that does it. */
const KINDS = [
  "enqueue",
  "save_step",
  "append_items",
  "pause",
  "finish",
  "renew",
  "release",
  "revoke",
  "signal",
  "send",
  "cancel",
  "delete",
  "purge",
  "forget_worker",
  "pause_job",
  "resume_job",
  "hold",
  "resume_held",
  "save_input",
  "fire_schedule",
] as const;

/** A kind of write. */
export type WriteKind = typeof KINDS[number];

/** How several writes are one transaction. */
export const APPLY = `
-- As \`fn.apply\`, and refused inside a transaction of somebody else: there a procedure may not commit.
create or replace procedure fn.apply_outside(p jsonb, p_now bigint, inout r text) language plpgsql as $$
begin
  commit;
  r := fn.apply(p, p_now);
end $$;

-- Performs a group of writes: see write_group.ts. Each answers or refuses for itself, and a refusal has written nothing.
-- First those that are performed together, then the others, one after another.
create or replace function fn.apply(p jsonb, p_now bigint) returns text language plpgsql ${ENTRY} as $$
declare
  v_now bigint; v_steps text[]; v_endings text[]; v_triggers text[]; v_others text[]; v_new boolean; v_keys text[];
  v_locks bigint[]; v_retried text[];
begin
  v_new := p -> 'triggers' <> '[]' and fn.are_new_runs(array(
    select r ->> 'id' from jsonb_array_elements(p -> 'triggers') e, jsonb_array_elements(e -> 'runs') r));
  if p -> 'triggers' = '[]' or v_new then
    select c.keys, c.locks, c.retried into v_keys, v_locks, v_retried from fn.changed_keys(p) c;
  end if;
  if v_keys is null then
    perform fn.lock_all();
    v_now := fn.clock(p_now);
    -- Some calls look whether the lease of another one has expired.
    perform fn.begin_leases_anew(v_now);
  else
    perform fn.lock_some(fn.texts(p -> 'runIds') || v_retried, v_keys, v_locks);
    v_now := fn.clock(p_now);
    -- Since it looked, a run with a fairness key can have come to one of the keys. The caller tries again.
    if fn.have_turns(v_keys) then
      raise exception 'a run with a fairness key has come meanwhile' using errcode = 'serialization_failure';
    end if;
  end if;
  if p -> 'steps' <> '[]' then v_steps := fn.save_steps(p -> 'steps', v_now); end if;
  if p -> 'endings' <> '[]' then v_endings := fn.finish_runs(p -> 'endings', v_now); end if;
  if v_new then v_triggers := fn.enqueue_plain(p -> 'triggers', v_now); end if;
  v_steps := fn.apply_others(p -> 'steps', v_steps, v_now);
  v_endings := fn.apply_others(p -> 'endings', v_endings, v_now);
  v_triggers := fn.apply_others(p -> 'triggers', v_triggers, v_now);
  v_others := fn.apply_others(p -> 'others', null, v_now);
  -- A busy store has no idle claims, which trim the journal otherwise.
  if random() < ${TRIM_CHANCE} then perform fn.trim_journal(v_now); end if;
  perform fn.commit_something();
  return '{"steps":[' || array_to_string(v_steps, ',') || '],"endings":[' || array_to_string(v_endings, ',')
    || '],"triggers":[' || array_to_string(v_triggers, ',') || '],"others":['
    || array_to_string(v_others, ',') || ']}';
end $$;

-- What a group has to lock, if it changes nothing but runs under a lease, and adds others that take no turns: then it can
-- commit beside groups of other runs and keys. The keys whose queues it changes, the locks of what its triggers depend on,
-- and the runs that it changes with retries that end or are added. The keys are NULL: it changes more than that.
create or replace function fn.changed_keys(p jsonb, out keys text[], out locks bigint[], out retried text[])
language plpgsql stable as $$
declare v_ended text[]; v_paused text[] := '{}'; v_keys text[]; v_more text[]; v_retried text[]; v_far boolean;
begin
  keys := '{}'; locks := '{}'; retried := '{}';
  if p -> 'endings' = '[]' and p -> 'others' = '[]' then return; end if;
  v_ended := array(select e ->> 'runId' from jsonb_array_elements(p -> 'endings') e);
  if p -> 'others' <> '[]' then
    select bool_or(case e ->> 'kind'
        when 'save_step' then false when 'append_items' then false when 'renew' then false when 'save_input' then false
        when 'finish' then false when 'enqueue' then false when 'fire_schedule' then false
        when 'pause' then exists (
          select from jsonb_array_elements(e -> 'pauses') x where x ->> 'children' is not null) else true end),
      v_ended || array_agg(e ->> 'runId') filter (where e ->> 'kind' = 'finish'),
      array_agg(e ->> 'runId') filter (where e ->> 'kind' = 'pause')
      into v_far, v_ended, v_paused from jsonb_array_elements(p -> 'others') e;
    if not v_far then
      select t.far, t.keys, t.locks, t.retried into v_far, v_more, locks, retried from fn.depend_on(p -> 'others') t;
    end if;
    if v_far then
      keys := null;
      return;
    end if;
  end if;
  -- Found by their ids alone. The end of a child changes its parent, that of a parent its children, and some add a run.
  select bool_or(r.id = any(v_ended) and (r.parent_seq is not null or r.on_end is not null or (r.has_pauses and exists (
      select 1 from {schema}.pauses w where w.run_seq = r.seq and w.kind = 'children' and w.status = 'pending')))),
    array_agg(r.concurrency_key), array_agg(r.retrigger_of) filter (where r.retrigger_of is not null and r.id = any(v_ended))
    into v_far, v_keys, v_retried from {schema}.runs r where r.id = any(v_ended || v_paused);
  keys := array(select distinct k from unnest(v_keys || v_more) k where k is not null);
  if v_far or cardinality(keys) + cardinality(locks) > ${MAX_LOCKS} or fn.have_turns(keys) then
    keys := null;
  elsif v_retried is not null then
    retried := retried || array(select x from unnest(v_retried) o, unnest(fn.retried_runs(o)) x);
  end if;
end $$;

-- What the runs that are added by some writes depend on: their keys, their idempotency keys and schedules, as numbers of
-- locks, and the runs that they retry, or take their idempotency key from. far: they take turns, or look for leases that
-- the server may have to begin anew.
create or replace function fn.depend_on(p_writes jsonb, out far boolean, out keys text[], out locks bigint[],
  out retried text[]) language plpgsql stable as $$
declare v_runs jsonb[] := array(select x from jsonb_array_elements(p_writes) e, jsonb_array_elements(case e ->> 'kind'
  when 'enqueue' then e -> 'runs' when 'fire_schedule' then jsonb_build_array(e -> 'run') else '[]' end) x);
begin
  select bool_or(x -> 'flow' ->> 'fairnessKey' is not null or (x ->> 'coalesce' = 'active' and fn.was_away())),
      array_agg(x ->> 'concurrencyKey'), coalesce(array_remove(array_agg(x ->> 'retriggerOf'), null), '{}')
    into far, keys, retried from unnest(v_runs) x;
  locks := array(
    select fn.lock_no('schedule', e ->> 'name') from jsonb_array_elements(p_writes) e where e ->> 'kind' = 'fire_schedule'
    union select fn.lock_no('schedule', x ->> 'scheduleName') from unnest(v_runs) x where x ->> 'scheduleName' is not null
    union select fn.lock_no('retry', coalesce(o.origin_id, o.id)) from {schema}.runs o where o.id = any(retried)
    union select fn.lock_no('idempotency', j || E'\\t' || (x ->> 'idempotencyKey'))
      from unnest(v_runs) x, jsonb_array_elements_text(x -> 'names') j where x ->> 'idempotencyKey' is not null);
  retried := retried || array(
    select r.id from unnest(v_runs) x, jsonb_array_elements_text(x -> 'names') j, unnest(fn.queues_of(j)) q
      cross join lateral (
        select o.id from {schema}.runs o where o.job = q and o.idempotency_key = x ->> 'idempotencyKey' offset 0) r
      where x ->> 'until' is not null);
end $$;

-- Whether runs in the queues of some keys take turns.
create or replace function fn.have_turns(p_keys text[]) returns boolean language plpgsql stable as $$
begin
  return cardinality(p_keys) > 0 and (select exists (select 1 from {schema}.runs r where r.concurrency_key || '' = any(p_keys)
    and r.concurrency_key is not null and r.fairness_key is not null and r.queue_state is not null));
end $$;

-- Performs those writes of a list, one after another, that have no answer yet. Returns all answers.
create or replace function fn.apply_others(p_writes jsonb, p_answers text[], p_now bigint) returns text[]
language plpgsql as $$
declare x jsonb; v_at int := 0; v_answer jsonb;
begin
  if cardinality(p_answers) > 0 and array_position(p_answers, null) is null then return p_answers; end if;
  for x in select e from jsonb_array_elements(p_writes) e loop
    v_at := v_at + 1;
    continue when p_answers[v_at] is not null;
    case x ->> 'kind'
${KINDS.map((kind) => `      when '${kind}' then v_answer := fn.${kind}(x, p_now);`).join("\n")}
    end case;
    perform fn.settle_heads();
    p_answers[v_at] := coalesce(v_answer::text, 'null');
  end loop;
  return coalesce(p_answers, '{}');
end $$;

-- The record of a step that has completed, under the lease of its run; null: it has not. It locks nothing.
create or replace function fn.find_step(p jsonb, p_now bigint) returns text language plpgsql stable ${ENTRY} as $$
declare v_seq bigint;
begin
  select q.seq into v_seq from {schema}.runs q where q.id = p ->> 'runId' and ${underLease("q", "p")};
  if not found then return '{"refused": "lease_lost"}'; end if;
  return (select jsonb_build_object('name', s.name, 'index', s.position, 'attempts', s.attempts, 'output', s.output,
      'recordedNo', s.recorded_no) from {schema}.steps s
    where s.run_seq = v_seq and s.name = p ->> 'name' and s.status = 'completed');
end $$;

-- Performs the writes of a group for a transaction that COMMIT follows in the same message: it fails, and so rolls everything
-- back, if one of them is refused (HF001, with the answers), or repeats a step (HF002). Returns the answers.
create or replace function fn.join(p jsonb, p_now bigint) returns text language plpgsql ${ENTRY} as $$
declare v_step jsonb := p -> 'others' -> 0; v_answers jsonb; v_refused boolean; v_repeated boolean;
begin
  if extract(epoch from now())::text <> p ->> 'began' then
    raise exception 'The transaction was ended by one of its statements';
  end if;
  if v_step ->> 'kind' = 'save_step' then
    -- A step alone locks what lock_some() locks. Without a look at the isolation: all that it changes is under the lock of its
    -- run, and a snapshot that is older is a serialization failure.
    perform pg_advisory_xact_lock_shared(hashtextextended('holdfast/write/' || {literal}, 0));
    perform 1 from {schema}.runs r where r.id = v_step ->> 'runId' for no key update;
    perform pg_advisory_xact_lock_shared(hashtext('holdfast/journal'), hashtext({literal}));
    v_answers := jsonb_build_array(fn.save_step(v_step, fn.clock(p_now)));
  else
    v_answers := fn.apply(p, p_now)::jsonb -> 'others';
  end if;
  select bool_or(a.x ->> 'refused' is not null or (a.w ->> 'kind' = 'signal' and (
        a.x ->> 'state' = 'accepted' or (a.x ->> 'state' = 'over' and a.x -> 'wait' ->> 'outcome' = 'signal'
        and a.x -> 'wait' ->> 'signal_id' = a.w ->> 'signalId' and a.x -> 'wait' ->> 'payload' = a.w ->> 'payload')) is not true)
        or (a.w ->> 'kind' = 'send' and (a.x ->> 'state' = 'accepted' or (a.x ->> 'state' = 'known'
        and a.x -> 'message' ->> 'name' = a.w ->> 'name' and a.x -> 'message' ->> 'payload' = a.w ->> 'payload')) is not true)),
      bool_or(a.x ->> 'repeated' is not null)
    into v_refused, v_repeated
    from rows from (jsonb_array_elements(p -> 'others'), jsonb_array_elements(v_answers)) a (w, x);
  if v_refused then raise exception 'A write was refused' using errcode = 'HF001', detail = v_answers::text; end if;
  if v_repeated then raise exception 'The step is recorded already' using errcode = 'HF002'; end if;
  return v_answers::text;
end $$;
`;
