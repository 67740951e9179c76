import { ENTRY } from "./basics.ts";

// The part of the groups after which the journal is trimmed, if it is too long.
const TRIM_CHANCE = 0.02;

/** The kinds of writes, each with the function that does it. */
const KINDS = [
  "enqueue",
  "save_step",
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
-- A write that changes a queue, a pause or a child waits here for all other writes, so that it sees what those before it
-- have committed.
create or replace function fn.lock_all() returns void language plpgsql volatile as $$
begin
  perform pg_advisory_xact_lock(hashtextextended('holdfast/write/' || {literal}, 0));
  perform fn.lock_journal();
end $$;

-- A write that changes nothing but runs under its leases waits for those, and not for others like it. The rows are locked
-- in one order.
create or replace function fn.lock_runs(p_ids text[]) returns void language plpgsql volatile as $$
begin
  perform pg_advisory_xact_lock_shared(hashtextextended('holdfast/write/' || {literal}, 0));
  perform 1 from {schema}.runs r where r.id = any(p_ids) order by r.seq for no key update;
  perform fn.lock_journal();
end $$;

-- A worker has one claim at a time.
create or replace function fn.lock_worker(p_worker text) returns void language sql volatile as $$
  select pg_advisory_xact_lock(hashtextextended('holdfast/worker/' || {literal} || '/' || p_worker, 0))
$$;

create or replace function fn.delete(p jsonb, p_now bigint) returns jsonb language sql volatile as $$
  select fn.delete_run(p ->> 'runId', p_now)
$$;

-- Performs a group of writes: see write_group.ts. Each answers or refuses for itself, and a refusal has written nothing.
-- First those that are performed together, then the others, one after another.
create or replace function fn.apply(p jsonb, p_now bigint) returns text language plpgsql ${ENTRY} as $$
declare v_now bigint; v_steps text[]; v_endings text[]; v_triggers text[]; v_new boolean; v_simple boolean;
begin
  v_new := p -> 'triggers' <> '[]' and fn.are_new_runs(array(
    select r ->> 'id' from jsonb_array_elements(p -> 'triggers') e, jsonb_array_elements(e -> 'runs') r));
  v_simple := fn.is_simple(p, v_new);
  if v_simple then perform fn.lock_runs(fn.texts(p -> 'runIds'));
  else perform fn.lock_all();
  end if;
  v_now := fn.clock(p_now);
  -- Calls that look whether the lease of another one has expired.
  if not v_simple then perform fn.begin_leases_anew(v_now); end if;
  if p -> 'steps' <> '[]' then v_steps := fn.save_steps(p -> 'steps', v_now); end if;
  if p -> 'endings' <> '[]' then v_endings := fn.finish_runs(p -> 'endings', v_now); end if;
  if v_new then v_triggers := fn.enqueue_plain(p -> 'triggers', v_now); end if;
  v_steps := fn.apply_others(p -> 'steps', v_steps, v_now);
  v_endings := fn.apply_others(p -> 'endings', v_endings, v_now);
  v_triggers := fn.apply_others(p -> 'triggers', v_triggers, v_now);
  -- A busy store has no idle claims, which trim the journal otherwise.
  if random() < ${TRIM_CHANCE} then perform fn.trim_journal(v_now); end if;
  return '{"steps":[' || array_to_string(v_steps, ',') || '],"endings":[' || array_to_string(v_endings, ',')
    || '],"triggers":[' || array_to_string(v_triggers, ',') || '],"others":['
    || array_to_string(fn.apply_others(p -> 'others', null, v_now), ',') || ']}';
end $$;

-- Whether a group changes nothing but runs under a lease, and adds others that stand in no line. p_new: its plain triggers
-- add runs.
create or replace function fn.is_simple(p jsonb, p_new boolean) returns boolean language plpgsql stable as $$
begin
  if p -> 'triggers' <> '[]' and not p_new then return false; end if;
  if p -> 'endings' <> '[]'
      and not fn.are_plain_endings(array(select e ->> 'runId' from jsonb_array_elements(p -> 'endings') e)) then
    return false;
  end if;
  return p -> 'others' = '[]' or not exists (select 1 from jsonb_array_elements(p -> 'others') e
    where e ->> 'kind' not in ('save_step', 'renew', 'save_input'));
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
