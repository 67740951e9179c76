import { ENTRY } from "./basics.ts";

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
-- Everybody who writes waits here for the others, so that each sees what those before have committed.
create or replace function fn.lock_all() returns void language sql volatile as $$
  select pg_advisory_xact_lock(hashtextextended('holdfast/write/' || {literal}, 0));
  select fn.lock_journal();
$$;

create or replace function fn.delete(p jsonb, p_now bigint) returns jsonb language sql volatile as $$
  select fn.delete_run(p ->> 'runId', p_now)
$$;

-- Performs writes, one after another; each answers or refuses for itself. A refusal has written nothing.
create or replace function fn.apply(p jsonb, p_now bigint) returns jsonb language plpgsql ${ENTRY} as $$
declare x jsonb; v_now bigint; v_answers jsonb[] := '{}'; v_answer jsonb;
begin
  perform fn.lock_all();
  v_now := fn.clock(p_now);
  for x in select e from jsonb_array_elements(p) e loop
    case x ->> 'kind'
${KINDS.map((kind) => `      when '${kind}' then v_answer := fn.${kind}(x, v_now);`).join("\n")}
    end case;
    perform fn.settle_heads();
    v_answers := v_answers || coalesce(v_answer, 'null');
  end loop;
  return to_jsonb(v_answers);
end $$;
`;
