import { ENTRY } from "../basics.ts";
import { underLease } from "./under_lease.ts";

/** What a transaction of a user begins and ends with. See `Store.transact()`. */
export const TRANSACT = `
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
    perform fn.share_journal();
    v_answers := jsonb_build_array(fn.save_step(v_step, fn.clock(p_now)));
  else
    v_answers := fn.apply(p, p_now)::jsonb -> 'others';
  end if;
  select bool_or(a.x ->> 'refused' is not null or (a.w ->> 'kind' = 'signal' and (
        a.x ->> 'state' = 'accepted' or (a.x ->> 'state' = 'over' and a.x -> 'wait' ->> 'outcome' = 'signal'
        and a.x -> 'wait' ->> 'signal_id' = a.w ->> 'signalId' and a.x -> 'wait' ->> 'payload' = a.w ->> 'payload')) is not true)),
      bool_or(a.x ->> 'repeated' is not null)
    into v_refused, v_repeated
    from rows from (jsonb_array_elements(p -> 'others'), jsonb_array_elements(v_answers)) a (w, x);
  if v_refused then raise exception 'A write was refused' using errcode = 'HF001', detail = v_answers::text; end if;
  if v_repeated then raise exception 'The step is recorded already' using errcode = 'HF002'; end if;
  return v_answers::text;
end $$;
`;
