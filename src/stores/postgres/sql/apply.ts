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
-- Whoever changes a queue, a pause or a child waits here for all others who write, so that each sees what those before
-- have committed.
create or replace function fn.lock_all() returns void language sql volatile as $$
  select pg_advisory_xact_lock(hashtextextended('holdfast/write/' || {literal}, 0));
  select fn.lock_journal();
$$;

-- Whoever changes nothing but runs that only he writes to waits for those, and not for others like him. He takes the
-- rows in one order.
create or replace function fn.lock_runs(p_ids text[]) returns void language sql volatile as $$
  select pg_advisory_xact_lock_shared(hashtextextended('holdfast/write/' || {literal}, 0));
  select 1 from {schema}.runs r where r.id = any(p_ids) order by r.seq for no key update;
  select fn.lock_journal();
$$;

-- A worker has one claim at a time.
create or replace function fn.lock_worker(p_worker text) returns void language sql volatile as $$
  select pg_advisory_xact_lock(hashtextextended('holdfast/worker/' || {literal} || '/' || p_worker, 0))
$$;

create or replace function fn.delete(p jsonb, p_now bigint) returns jsonb language sql volatile as $$
  select fn.delete_run(p ->> 'runId', p_now)
$$;

-- Performs writes; each answers or refuses for itself. A refusal has written nothing. First those that can be done
-- together, then the others, one after another.
create or replace function fn.apply(p jsonb, p_now bigint) returns jsonb language plpgsql ${ENTRY} as $$
declare
  x jsonb; r record; s record; v_now bigint; v_answer jsonb; v_count int := jsonb_array_length(p); v_at int := 0;
  v_answers jsonb[] := array_fill(null::jsonb, array[v_count]);
begin
  s := fn.find_sets(p);
  if s.is_simple then perform fn.lock_runs(s.run_ids);
  else perform fn.lock_all();
  end if;
  v_now := fn.clock(p_now);
  -- Calls that look whether the lease of another one has expired.
  if not s.is_simple then perform fn.begin_leases_anew(v_now); end if;
  if s.steps is not null then
    for r in select * from fn.save_steps(s.steps, v_now) loop v_answers[r.no] := r.answer; end loop;
  end if;
  if s.endings is not null then
    for r in select * from fn.finish_runs(s.endings, v_now) loop v_answers[r.no] := r.answer; end loop;
  end if;
  if s.triggers is not null then
    for r in select * from fn.enqueue_plain(s.triggers, v_now) loop v_answers[r.no] := r.answer; end loop;
  end if;
  for x in select e from jsonb_array_elements(p) e loop
    v_at := v_at + 1;
    continue when v_answers[v_at] is not null;
    case x ->> 'kind'
${KINDS.map((kind) => `      when '${kind}' then v_answer := fn.${kind}(x, v_now);`).join("\n")}
    end case;
    perform fn.settle_heads();
    v_answers[v_at] := coalesce(v_answer, 'null');
  end loop;
  -- A busy store has no idle claims, which trim the journal otherwise.
  if random() < ${TRIM_CHANCE} then perform fn.trim_journal(v_now); end if;
  return to_jsonb(v_answers);
end $$;
`;
