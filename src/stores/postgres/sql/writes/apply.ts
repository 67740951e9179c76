import { ENTRY } from "../basics.ts";

// The part of the groups after which the journal is trimmed, if it is too long.
const TRIM_CHANCE = 0.02;
// A group with more keys takes the lock of the schema alone: the server has room for a limited number of locks.
const MAX_KEYS = 100;

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
create or replace function fn.delete(p jsonb, p_now bigint) returns jsonb language sql volatile as $$
  select fn.delete_run(p ->> 'runId', p ->> 'actor', p_now)
$$;

-- Performs a group of writes: see write_group.ts. Each answers or refuses for itself, and a refusal has written nothing.
-- First those that are performed together, then the others, one after another.
create or replace function fn.apply(p jsonb, p_now bigint) returns text language plpgsql ${ENTRY} as $$
declare
  v_now bigint; v_steps text[]; v_endings text[]; v_triggers text[]; v_others text[]; v_new boolean; v_keys text[];
  v_retried text[];
begin
  v_new := p -> 'triggers' <> '[]' and fn.are_new_runs(array(
    select r ->> 'id' from jsonb_array_elements(p -> 'triggers') e, jsonb_array_elements(e -> 'runs') r));
  if p -> 'triggers' = '[]' or v_new then
    select c.keys, c.retried into v_keys, v_retried from fn.changed_keys(p) c;
  end if;
  if v_keys is null then
    perform fn.lock_all();
    v_now := fn.clock(p_now);
    -- Some calls look whether the lease of another one has expired.
    perform fn.begin_leases_anew(v_now);
  else
    perform fn.lock_some(fn.texts(p -> 'runIds') || v_retried, v_keys);
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

-- The keys whose queues a group changes, if it changes nothing else but runs under a lease, and adds others: it can commit
-- beside groups with other runs and keys. NULL: it changes more than that. And the runs that are completed with those that
-- end, since these are their retries.
create or replace function fn.changed_keys(p jsonb, out keys text[], out retried text[]) language plpgsql stable as $$
declare v_ended text[]; v_paused text[] := '{}'; v_keys text[] := '{}'; v_retried text[]; v_more text[]; v_far boolean;
begin
  retried := '{}';
  if p -> 'endings' = '[]' and p -> 'others' = '[]' then
    keys := '{}';
    return;
  end if;
  v_ended := array(select e ->> 'runId' from jsonb_array_elements(p -> 'endings') e);
  if p -> 'others' <> '[]' then
    select bool_or(case e ->> 'kind'
        when 'save_step' then false when 'append_items' then false when 'renew' then false when 'save_input' then false when 'finish' then false
        when 'pause' then fn.has_children(e) when 'enqueue' then not fn.are_free_runs(e) else true end),
      v_ended || array_agg(e ->> 'runId') filter (where e ->> 'kind' = 'finish'),
      array_agg(e ->> 'runId') filter (where e ->> 'kind' = 'pause')
      into v_far, v_ended, v_paused from jsonb_array_elements(p -> 'others') e;
    if v_far then return; end if;
    v_more := array(select n ->> 'concurrencyKey' from jsonb_array_elements(p -> 'others') e,
      jsonb_array_elements(e -> 'runs') n where e ->> 'kind' = 'enqueue');
  end if;
  -- Found by their ids alone. The end of a child changes its parent, and that of a parent its children.
  select bool_or(r.id = any(v_ended) and (r.parent_seq is not null or (r.has_pauses and exists (
      select 1 from {schema}.pauses w where w.run_seq = r.seq and w.kind = 'children' and w.status = 'pending')))),
    array_agg(r.concurrency_key), array_agg(r.retrigger_of) filter (where r.retrigger_of is not null and r.id = any(v_ended))
    into v_far, v_keys, v_retried from {schema}.runs r where r.id = any(v_ended || v_paused);
  v_keys := array(select distinct k from unnest(v_keys || v_more) k where k is not null);
  if v_far or cardinality(v_keys) > ${MAX_KEYS} or fn.have_turns(v_keys) then return; end if;
  keys := v_keys;
  if v_retried is not null then retried := array(select x from unnest(v_retried) o, unnest(fn.retried_runs(o)) x); end if;
end $$;

-- Whether a pause has children.
create or replace function fn.has_children(p_pause jsonb) returns boolean language plpgsql immutable as $$
begin
  return (select exists (select 1 from jsonb_array_elements(p_pause -> 'pauses') x where x ->> 'children' is not null));
end $$;

-- Whether all runs of a trigger are new ones that take no turns, whatever runs there are.
create or replace function fn.are_free_runs(p_trigger jsonb) returns boolean language plpgsql immutable as $$
begin
  return (select not exists (select 1 from jsonb_array_elements(p_trigger -> 'runs') n
    where n ->> 'idempotencyKey' is not null or n ->> 'coalesce' is not null or n ->> 'retriggerOf' is not null
      or n ->> 'scheduleName' is not null or n -> 'flow' ->> 'fairnessKey' is not null));
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
`;
